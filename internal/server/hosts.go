package server

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/pulsegate/pulsegate/internal/api/problem"
)

// hosts decides for which hosts a listener on a loopback address answers: loopback names
// and addresses, and the address that it listens on.
//
// A page in a browser on this machine reaches loopback like any program. The owner of a
// name can point it at loopback at any time (DNS rebinding), and the browser then takes
// the listener for the page's own site. But the browser sends that name in Host.
type hosts struct{ own string }

// newHosts returns the hosts for a listener's address.
func newHosts(addr string) *hosts {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	return &hosts{host}
}

// has reports whether a host, with or without a port, is allowed. An empty one is,
// because browsers never send it.
func (h *hosts) has(host string) bool {
	if host == "" || isLoopback(host) {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return h.own != "" && strings.EqualFold(strings.Trim(host, "[]"), h.own)
}

// usual reports whether a Host field is certainly allowed, for the fast lane. It
// returns false for unusual spellings. It does not allocate.
func (h *hosts) usual(field []byte) bool {
	for _, host := range [...]string{"127.0.0.1", "localhost", "[::1]"} {
		if n := len(host); len(field) >= n && string(field[:n]) == host && (len(field) == n || field[n] == ':') {
			return true
		}
	}
	return false
}

// allow reports whether the request's Host is allowed and, if a browser sent an Origin,
// that one too.
func (h *hosts) allow(r *http.Request) bool {
	if !h.has(r.Host) {
		return false
	}
	for _, origin := range r.Header["Origin"] {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !h.has(u.Host) {
			return false
		}
	}
	return true
}

// only answers requests for other hosts with 403. A nil hosts allows all.
func (h *hosts) only(next http.Handler, problems *problem.Set) http.Handler {
	if h == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allow(r) {
			problems.UntrustedOrigin.Write(w, r, "Host and Origin must name loopback or the address that this server listens on.")
			return
		}
		next.ServeHTTP(w, r)
	})
}
