package tracing

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// Handler returns a handler that records the requests to next, under the pattern that a
// router in next stored in the request's Pattern. next gets the Request to fill in with
// [Of]. The nil Tracer returns next itself.
//
// Its caller must be a handler of [metrics.Requests], which knows the status.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return &handler{tracer: t, next: next}
}

type handler struct {
	tracer   *Tracer
	next     http.Handler
	requests sync.Pool // of *Request
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, _ := h.requests.Get().(*Request)
	if s == nil {
		s = new(Request)
	}
	*s = h.tracer.Begin(ParentOf(r.Header))
	s.Status, s.Lane, s.Start = metrics.Aborted, "full", time.Now()
	traced := r.WithContext(context.WithValue(r.Context(), key{}, s))
	// Deferred because of panics, on which net/http closes the connection.
	defer func() {
		s.End = time.Now()
		s.Method, s.Route = metrics.KnownMethod(r.Method, "_OTHER"), traced.Pattern // as OpenTelemetry's http.request.method
		r.Pattern = traced.Pattern
		h.tracer.Record(s)
		*s = Request{}
		h.requests.Put(s)
	}()
	h.next.ServeHTTP(w, traced)
	s.Status = metrics.Status(w)
}

// key is the key of a *Request in a context.
type key struct{}

// Of returns the record of r, to be filled in by the handler, or nil if r is not
// traced. It is valid until the handler returns.
func Of(r *http.Request) *Request {
	traced, _ := r.Context().Value(key{}).(*Request)
	return traced
}
