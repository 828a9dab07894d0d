package health

import (
	"net/http"

	"github.com/pulsegate/pulsegate/reply"
)

// Livez returns the handler for /livez: "ok" as long as requests are served.
func (h *Health) Livez() http.Handler {
	return h.handler(func() *reply.Answer { return h.live })
}

// Healthz returns the handler for /healthz, which is another name of /livez.
func (h *Health) Healthz() http.Handler { return h.Livez() }

// Readyz returns the handler for /readyz.
func (h *Health) Readyz() http.Handler { return h.handler(h.ready.Load) }

// handler serves what answer returns at the moment of a request.
func (h *Health) handler(answer func() *reply.Answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := h.refused
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			a = answer()
		}
		a.ServeHTTP(w, r)
	})
}
