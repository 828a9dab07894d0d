package server

import (
	"net/http"

	"github.com/pulsegate/pulsegate/internal/wire/listen"
)

// Bounds of connections that have no flag.
const (
	// maxGuests is how many connections are taken beyond --max-conns, for one answer
	// each: 503 for readings, and what was asked for to all others. So a client
	// learns that there are too many, and health checks are answered.
	maxGuests = 64

	// maxAdminConns bounds the admin listener. Each of its profiles takes memory.
	maxAdminConns = 64
)

// endLast closes connections that must not go on behind an answer.
//
// It needs to see every request, those for "OPTIONS *" too, which net/http would
// answer by itself and go on.
func endLast(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if listen.Last(r) {
			w.Header().Set("Connection", "close")
		}
		if r.Method == http.MethodOptions && r.RequestURI == "*" {
			w.Header().Set("Content-Length", "0")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// noGuests serves guests by another handler.
func noGuests(h, guests http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if listen.IsGuest(r.Context()) {
			guests.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
