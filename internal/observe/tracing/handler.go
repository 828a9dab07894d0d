package tracing

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Handler returns a handler that records the requests to next, under the pattern that a
// router in next stored in the request's Pattern. next gets the Request to fill in with
// [Of]. The nil Tracer returns next itself.
//
// next must not use its ResponseWriter after it has returned.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return &handler{tracer: t, next: next}
}

type handler struct {
	tracer *Tracer
	next   http.Handler
	states sync.Pool // of *state
}

// A state is a request in progress.
type state struct {
	Request
	w http.ResponseWriter
}

// statusNone means that no status was written yet. It remains if the handler panics, on
// which net/http closes the connection.
const statusNone = -1

// knownMethods are the methods that appear in spans. Any other method is arbitrary text
// from a client (OpenTelemetry's http.request.method).
var knownMethods = [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

func method(m string) string {
	for _, known := range knownMethods {
		if m == known {
			return known
		}
	}
	return "_OTHER"
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, _ := h.states.Get().(*state)
	if s == nil {
		s = new(state)
	}
	s.Request, s.w = h.tracer.Begin(ParentOf(r.Header)), w
	s.Status, s.Lane, s.Start = statusNone, "full", time.Now()
	r = r.WithContext(context.WithValue(r.Context(), key{}, &s.Request))
	returned := false
	// Deferred because of panics.
	defer func() {
		if returned && s.Status == statusNone {
			s.Status = http.StatusOK // net/http sends 200 if the handler wrote nothing
		}
		s.End = time.Now()
		s.Method, s.Route = method(r.Method), r.Pattern
		h.tracer.Record(&s.Request)
		*s = state{}
		h.states.Put(s)
	}()
	h.next.ServeHTTP(s, r)
	returned = true
}

// key is the key of a *Request in a context.
type key struct{}

// Of returns the record of r, to be filled in by the handler, or nil if r is not
// traced. It is valid until the handler returns.
func Of(r *http.Request) *Request {
	traced, _ := r.Context().Value(key{}).(*Request)
	return traced
}

// Header implements http.ResponseWriter.
func (s *state) Header() http.Header { return s.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (s *state) WriteHeader(status int) {
	// An informational response is not final, except 101 (RFC 9110, 15.2).
	if s.Status == statusNone && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.Status = status
	}
	s.w.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (s *state) Write(p []byte) (int, error) {
	if s.Status == statusNone {
		s.Status = http.StatusOK
	}
	return s.w.Write(p)
}

// Unwrap supports http.ResponseController.
func (s *state) Unwrap() http.ResponseWriter { return s.w }
