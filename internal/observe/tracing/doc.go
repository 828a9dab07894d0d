// Package tracing records how some requests spent their time, and exports OpenTelemetry
// spans with OTLP over HTTP.
//
// # Promise
//
// A request is recorded if it was sampled or slow. That is decided after the response;
// until then there are only timestamps. Recording never blocks. Requests that do not
// fit into the queue, or that no collector accepts, are dropped and counted
// ([Tracer.Stats]).
//
// Spans contain the route, the status, counts and times: no path, no device, no client
// address, no measured value, no token.
//
// # The spans of a request
//
//	POST /v1/readings ─┬─ read     the body arrives
//	                   ├─ decode   it is decoded and checked
//	                   ├─ queue    its readings wait for a commit
//	                   └─ commit   the store makes their group durable
//
// The committer reports the last two. A phase that did not take place is omitted.
//
// # Trace context
//
// A request that carries a traceparent (W3C Trace Context, https://www.w3.org/TR/trace-context/)
// belongs to that trace, and its caller decides about sampling. Other requests start a trace and
// are sampled by trace ID, as by OpenTelemetry's TraceIdRatioBased, so that services with the
// same ratio choose the same traces.
//
// # Not here
//
// No propagation: the server calls no other services. No metrics and no logs.
package tracing
