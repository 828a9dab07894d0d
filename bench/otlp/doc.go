// Package otlp checks what Pulsegate exports as traces with the decoder of
// OpenTelemetry's collector, which the server itself does not need.
package otlp
