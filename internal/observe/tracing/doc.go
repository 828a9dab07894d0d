// Package tracing records where the time of some requests went, and exports it as
// OpenTelemetry spans by OTLP over HTTP.
//
// # Promise
//
// A request is recorded when it was sampled or when it was slow, which is decided
// when it has been answered: until then there are timestamps only. Recording never
// waits. What the queue has no room for, and what no collector takes, is dropped
// and counted ([Tracer.Stats]).
//
// Spans hold the route, the status, numbers and times: no path, no device, no
// client's address, no value, no token.
//
// # The spans of a request
//
//	POST /v1/readings ─┬─ read     the body arrives
//	                   ├─ decode   it is decoded and checked
//	                   ├─ queue    its readings wait for a commit
//	                   └─ commit   the store makes their group durable
//
// The last two are told by the committer itself. A phase that did not take place is
// left out.
//
// # Trace context
//
// A request that carries a traceparent (W3C Trace Context, https://www.w3.org/TR/trace-context/)
// belongs to that trace, and its caller decides about sampling. Others begin a
// trace, and are sampled by a share of trace IDs, as OpenTelemetry's
// TraceIdRatioBased does, so that services with one share choose the same traces.
//
// # Not here
//
// No propagation to others: the server calls nobody. No metrics and no logs.
package tracing
