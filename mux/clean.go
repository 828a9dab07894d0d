package mux

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// isClean reports whether cleanPath would return the path as it is.
func isClean(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	for slash := 0; ; {
		rest := p[slash+1:]
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			return rest != "." && rest != ".."
		}
		if end == 0 || (rest[0] == '.' && (end == 1 || (end == 2 && rest[1] == '.'))) {
			return false
		}
		slash += end + 1
	}
}

// cleanPath resolves dot segments and removes empty ones. It keeps a trailing
// slash.
func cleanPath(p string) string {
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}

// redirectClean redirects the client to the clean form of the path.
func (c *compiledRouter) redirectClean(w http.ResponseWriter, req *http.Request, p string) {
	w.Header().Set("Location", withPath(req.URL, cleanPath(p), c.useEncodedPath))
	w.WriteHeader(c.redirectStatus())
}

// redirectStatus returns the status of redirects; c may be nil.
func (c *compiledRouter) redirectStatus() int {
	if c != nil && c.permanent {
		return http.StatusPermanentRedirect
	}
	return http.StatusMovedPermanently
}

// otherSlash returns the URL with the slash at the end of p added or removed. p
// is the URL's path, encoded or not.
func otherSlash(u *url.URL, p string, encoded bool) string {
	if other, found := strings.CutSuffix(p, "/"); found {
		return withPath(u, other, encoded)
	}
	return withPath(u, p+"/", encoded)
}

// withPath returns the URL with another path, which is encoded or not. The host
// stays the same.
func withPath(u *url.URL, p string, encoded bool) string {
	other := *u
	other.Path = p
	if encoded {
		// p is a valid path with whole segments or slashes removed, so
		// unescaping cannot fail. If it does, p is sent unescaped.
		if plain, err := url.PathUnescape(p); err == nil {
			other.Path, other.RawPath = plain, p
		}
	}
	location := other.String()
	if u.Host == "" && strings.HasPrefix(location, "//") {
		// Clients would take the first segment for a host. With the dot
		// prepended, http.Redirect cleans the path.
		return "/." + location
	}
	return location
}
