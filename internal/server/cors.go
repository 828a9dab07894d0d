package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// origins are the origins of the pages that may read (Cross-Origin Resource Sharing, in the
// Fetch standard). The nil origins are none.
//
// Browsers never get leave to send credentials of their own, such as cookies, whatever the
// origin: a page must know a token in order to send it.
type origins struct {
	all  bool
	list []string
}

// newOrigins parses the values of --cors-origin.
func newOrigins(texts []string) (*origins, error) {
	switch {
	case len(texts) == 0:
		return nil, nil
	case slices.Contains(texts, "*") && len(texts) > 1:
		return nil, settings.Usagef("--cors-origin: * already names every origin")
	case texts[0] == "*":
		return &origins{all: true}, nil
	}
	for _, text := range texts {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			text != strings.ToLower(u.Scheme+"://"+u.Host) || strings.Contains(text, "*") {
			return nil,
				settings.Usagef("--cors-origin: %q is not an origin such as https://ward.example, in lower case and without a path",
					text)
		}
	}
	return &origins{list: texts}, nil
}

// has reports whether an origin, as in the header field, is allowed.
func (o *origins) has(origin string) bool {
	return o != nil && (o.all || slices.Contains(o.list, origin))
}

// readable lets pages of the origins read the answers of h, which serves the methods. It also
// answers OPTIONS.
func (o *origins) readable(h http.Handler, methods string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		origin := r.Header["Origin"]
		allowed := len(origin) == 1 && o.has(origin[0])
		if allowed && o.all {
			header.Set("Access-Control-Allow-Origin", "*")
		} else if allowed {
			header.Set("Access-Control-Allow-Origin", origin[0])
		}
		if r.Method != http.MethodOptions {
			if allowed {
				header.Set("Access-Control-Expose-Headers", "Pulsegate-Notice, Retry-After")
			}
			h.ServeHTTP(w, r)
			return
		}
		header.Set("Allow", methods+", OPTIONS")
		if allowed {
			header.Set("Access-Control-Allow-Methods", methods)
			header.Set("Access-Control-Allow-Headers",
				"Authorization, Content-Type, Last-Event-ID, Cache-Control, Prefer")
			header.Set("Access-Control-Max-Age", "600") // seconds
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
