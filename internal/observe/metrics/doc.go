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
// What counts is made before what is counted, so that it can be put in its way:
//
//	requests := metrics.NewRequests()
//	requests.Route("/v1/readings")         // each template, at start
//	handler := requests.Handler(router)    // counts by http.Request.Pattern
//
//	commits := metrics.NewCommits()
//	core, err := ingest.New(commits.Appender(store), ...)
//
//	admin.Handle("GET /metrics", metrics.Handler(metrics.Sources{...}))
//
// A front without net/http calls [Route.Observe] itself.
//
// # Not here
//
// No names of stores and no HTTP listeners: the wiring passes functions that
// return plain figures. No tracing, no pushing, no global registry.
package metrics
