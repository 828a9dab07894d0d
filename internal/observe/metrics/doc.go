// Package metrics counts what a server does and shows it in the Prometheus text
// format.
//
// # Promise
//
// Counting allocates nothing: every counter has its place before the first
// request, and TestNoAllocations holds that. Only a scrape allocates.
//
// The number of series is fixed once the routes are known: labels hold route
// patterns, status classes, outcomes and reasons, never a device, a token, a path
// as it was sent, or a measured value.
//
// A histogram is coherent: its count is the sum of its buckets. Figures of
// different series are not of one moment.
//
// # How it fits together
//
// A collector stands beside the counters that it shows: the core of package ingest,
// a store, a gate, a tracer each are one. Here are the counters of requests and of
// log lines, the histogram, and the handler that shows them all. Create the counters
// first, then wrap what they measure:
//
//	requests := metrics.NewRequests()
//	requests.Route("/v1/readings")         // each template, at start
//	handler := requests.Handler(router)    // counts by http.Request.Pattern
//
//	routes.Handle("GET /metrics", metrics.Handler(version, ready, requests, core, store))
//
// A front without net/http calls [Route.Observe] itself.
//
// # Not here
//
// No HTTP listeners. No tracing, no pushing, no global registry.
package metrics
