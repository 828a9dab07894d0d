// Package metrics counts the work of a server and exports it in the Prometheus text
// format.
//
// # Promise
//
// Counting does not allocate: every counter exists before the first request.
// TestNoAllocations checks that. Only a scrape allocates.
//
// The number of series is fixed once the routes are known: label values are route
// patterns, status classes, outcomes and reasons, never a device, a token, a request
// path or a measured value.
//
// A histogram is consistent: its count is the sum of its buckets. Values of different
// series are not sampled at the same instant.
//
// # How it fits together
//
// Each component exports its own counters: the core of package ingest, a store, a gate
// and a tracer are collectors. This package has the counters of requests and of log
// lines, the histogram, and the handler that exports them all. Create the counters
// first, then wrap what they measure:
//
//	requests := new(metrics.Requests)
//	requests.Route("/v1/readings")         // each template, at start
//	handler := requests.Handler(router)    // counts by http.Request.Pattern
//
//	routes.Handle("GET /metrics", metrics.Handler(version, ready, requests, core, store))
//
// A server without net/http calls [Route.Observe] itself.
//
// # Not here
//
// No HTTP listeners. No tracing, no pushing, no global registry.
package metrics
