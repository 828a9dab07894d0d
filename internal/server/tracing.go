package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
)

// TraceOptions say what is traced, and where to.
type TraceOptions struct {
	OTLPEndpoint string        `name:"otlp-endpoint" env:"PULSEGATE_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318. Default: nothing is traced."`
	TraceSample  float64       `default:"0.001" help:"Share of requests to trace, from 0 to 1, where the request itself does not say."`
	OTLPHeaders  string        `kong:"-"` // as the variable OTEL_EXPORTER_OTLP_HEADERS has them
	TraceSlow    time.Duration `default:"250ms" help:"Trace each request that takes as long. 0s: none for that."`
}

// check refuses what cannot be meant, whether or not anything is traced.
func (f *TraceOptions) check() error {
	switch {
	case !(f.TraceSample >= 0 && f.TraceSample <= 1):
		return UsageError{"--trace-sample must be from 0 to 1"}
	case f.TraceSlow < 0:
		return UsageError{"--trace-slow must be at least 0s"}
	case f.OTLPEndpoint == "":
		return nil
	}
	_, endpointErr := tracesEndpoint(f.OTLPEndpoint)
	_, headersErr := otlpHeaders(f.OTLPHeaders)
	return cmp.Or(endpointErr, headersErr)
}

// open starts to trace, if there is somewhere to export to. A nil Tracer traces
// nothing.
func (f *TraceOptions) open(version string, log *slog.Logger) (*tracing.Tracer, error) {
	if f.OTLPEndpoint == "" {
		return nil, nil
	}
	endpoint, err := tracesEndpoint(f.OTLPEndpoint)
	if err != nil {
		return nil, err
	}
	headers, err := otlpHeaders(f.OTLPHeaders)
	if err != nil {
		return nil, err
	}
	t, err := tracing.New(tracing.Config{
		Endpoint: endpoint,
		Headers:  headers,
		Sample:   f.TraceSample,
		Slow:     f.TraceSlow,
		Service:  "pulsegate",
		Version:  version,
		Log:      log,
	})
	if err != nil {
		return nil, UsageError{err.Error()}
	}
	log.Info("tracing", "endpoint", endpoint.Host, "sample", f.TraceSample, "slow", f.TraceSlow.String())
	return t, nil
}

// tracesEndpoint returns the address for traces of a collector, as OpenTelemetry's
// exporter specification derives it from OTEL_EXPORTER_OTLP_ENDPOINT.
func tracesEndpoint(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		// What is wrong with it is not shown: it may hold a password.
		return nil, UsageError{"--otlp-endpoint (or OTEL_EXPORTER_OTLP_ENDPOINT) is not of the form http://host:port"}
	}
	if !strings.HasSuffix(u.Path, "/v1/traces") {
		u = u.JoinPath("v1", "traces")
	}
	return u, nil
}

// otlpHeaders reads OTEL_EXPORTER_OTLP_HEADERS: name=value, divided by commas and
// percent-encoded. There is no flag for it, since command lines are seen by others.
func otlpHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, UsageError{fmt.Sprintf("OTEL_EXPORTER_OTLP_HEADERS: part %d is not of the form name=value", i+1)}
		}
		headers[name] = value
	}
	return headers, nil
}

// stopTracingTimeout bounds how long a server that stops waits for the collector.
const stopTracingTimeout = 3 * time.Second

// stopTracing exports what is left. That it could not is no reason to call the stop
// a failure.
func (s *Server) stopTracing() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTracingTimeout)
	defer cancel()
	if err := s.tracer.Close(ctx); err != nil {
		s.log.Warn("the last traces were not exported", "error", err)
	}
}
