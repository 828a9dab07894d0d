package health

import (
	"net/http"

	"github.com/pulsegate/pulsegate/reply"
)

// Livez returns the handler for /livez: "ok" as long as requests are served.
func (h *Health) Livez() http.Handler { return &liveHandler{h} }

// Healthz returns the handler for /healthz, which is another name of /livez.
func (h *Health) Healthz() http.Handler { return h.Livez() }

// Readyz returns the handler for /readyz.
func (h *Health) Readyz() http.Handler { return &readyHandler{h} }

// LiveAnswer returns the answer of /livez to a GET or a HEAD, for a server that
// is not net/http's.
func (h *Health) LiveAnswer() *reply.Answer { return h.live }

// ReadyAnswer returns the answer of /readyz at this moment.
func (h *Health) ReadyAnswer() *reply.Answer { return h.ready.Load() }

// RefusedAnswer returns the answer to methods other than GET and HEAD.
func (h *Health) RefusedAnswer() *reply.Answer { return h.refused }

type liveHandler struct{ h *Health }

func (l *liveHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !readable(r) {
		l.h.refused.ServeHTTP(w, r)
		return
	}
	l.h.live.ServeHTTP(w, r)
}

type readyHandler struct{ h *Health }

func (l *readyHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !readable(r) {
		l.h.refused.ServeHTTP(w, r)
		return
	}
	l.h.ready.Load().ServeHTTP(w, r)
}

// readable reports whether r may ask for health.
func readable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead
}
