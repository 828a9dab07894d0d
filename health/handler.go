package health

import (
	"net/http"

	"github.com/pulsegate/pulsegate/reply"
)

// Livez returns the handler for /livez, which always answers "ok".
func (h *Health) Livez() http.Handler {
	return h.handler(func() *reply.Answer { return h.live })
}

// Healthz returns the handler for /healthz, an alias of /livez.
func (h *Health) Healthz() http.Handler { return h.Livez() }

// Readyz returns the handler for /readyz.
func (h *Health) Readyz() http.Handler { return h.handler(h.ready.Load) }

// handler returns a handler that serves the current result of answer.
func (h *Health) handler(answer func() *reply.Answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := h.notAllowed
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			a = answer()
		}
		a.ServeHTTP(w, r)
	})
}
