// Package otlp checks the traces exported by Pulsegate with the decoder of the
// OpenTelemetry collector, on which the server itself does not depend.
package otlp
