package main

import (
	"net/http"

	"github.com/pulsegate/pulsegate/health"
)

// withHealth answers /livez, /readyz and /healthz in front of next. On the admin
// listener they serve probes that the public one may keep out: those that have no
// client certificate, or that come while all of its connections are taken.
func withHealth(next http.Handler, state *health.Health) http.Handler {
	probes := map[string]http.Handler{
		"/livez":   state.Livez(),
		"/readyz":  state.Readyz(),
		"/healthz": state.Healthz(),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if probe := probes[r.URL.Path]; probe != nil {
			probe.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
