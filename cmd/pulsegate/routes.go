package main

import (
	"net/http"
	"strings"

	"github.com/pulsegate/pulsegate/health"
	"github.com/pulsegate/pulsegate/internal/ingest"
	"github.com/pulsegate/pulsegate/internal/metrics"
	"github.com/pulsegate/pulsegate/internal/problem"
	"github.com/pulsegate/pulsegate/internal/query"
	"github.com/pulsegate/pulsegate/reply"
)

// routes is what the public listener serves.
func routes(requests *metrics.Requests, core *ingest.Core, reads *query.Handler, state *health.Health, problems *problem.Set) http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, h http.Handler, methods ...string) {
		for _, m := range methods {
			mux.Handle(m+" "+path, requests.Route(m+" "+path).Handler(h))
		}
		if methods[0] == http.MethodGet {
			methods = append(methods, http.MethodHead) // which ServeMux serves with GET
		}
		mux.Handle(path, requests.Route(path).Handler(notAllowed(problems, methods...)))
	}
	handle("/v1/readings", core.Handler(), http.MethodPost)
	handle("/v1/devices", http.HandlerFunc(reads.Devices), http.MethodGet)
	handle("/v1/devices/{device}", http.HandlerFunc(reads.Device), http.MethodGet)
	handle("/v1/devices/{device}/readings", http.HandlerFunc(reads.Readings), http.MethodGet)
	mux.Handle("/livez", requests.Route("/livez").Handler(state.Livez()))
	mux.Handle("/readyz", requests.Route("/readyz").Handler(state.Readyz()))
	mux.Handle("/healthz", requests.Route("/healthz").Handler(state.Healthz()))
	mux.Handle("/", requests.Route("/").Handler(problems.NotFound.Answer("", nil)))
	return mux
}

// notAllowed answers methods that a path does not have.
func notAllowed(problems *problem.Set, methods ...string) http.Handler {
	return problems.MethodNotAllowed.Answer("Allowed: "+strings.Join(methods, ", ")+".", nil, reply.Allow(methods...))
}
