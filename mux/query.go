package mux

import (
	"net/url"
	"strings"
)

// firstQueryValue returns the value of the first pair with the key, unescaped.
// Pairs are separated by an ampersand or a semicolon. Pairs that cannot be
// unescaped are skipped.
//
// Invariant: it agrees with url.Values.Get on queries without semicolons;
// FuzzFirstQueryValue checks it.
func firstQueryValue(query, key string) (value string, found bool) {
	for query != "" {
		pair := query
		if at := strings.IndexAny(query, "&;"); at >= 0 {
			pair, query = query[:at], query[at+1:]
		} else {
			query = ""
		}
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		// QueryUnescape returns text without escapes unchanged.
		if plain, err := url.QueryUnescape(k); err != nil || plain != key {
			continue
		}
		if v, err := url.QueryUnescape(v); err == nil {
			return v, true
		}
	}
	return "", false
}
