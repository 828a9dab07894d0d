package server

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// TraceOptions select the requests to trace, and the collector.
type TraceOptions struct {
	OTLPEndpoint string  `name:"otlp-endpoint" env:"PULSEGATE_OTLP_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"OpenTelemetry collector for OTLP over HTTP, such as http://127.0.0.1:4318. Default: no tracing."`
	TraceSample  float64 `default:"0.001" placeholder:"SHARE" help:"Share of requests to trace, from 0 to 1. Requests that take 250 ms are traced too, and so are up to 10 per second whose traceparent asks for it."`
}

// traceSlow is the duration from which on a request is traced in any case.
const traceSlow = 250 * time.Millisecond

// tracing returns the options of the tracer, or nil for no tracing. Invalid values are
// rejected in either case.
func (c *Options) tracing() (*tracing.Options, error) {
	err := firstBroken(rule{c.TraceSample >= 0 && c.TraceSample <= 1, "--trace-sample must be from 0 to 1"})
	if err != nil || c.OTLPEndpoint == "" {
		return nil, err
	}
	// There is no flag for the headers, because other users can see command lines.
	headers, err := otlpHeaders(c.Getenv("OTEL_EXPORTER_OTLP_HEADERS"))
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(c.OTLPEndpoint)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" {
		// The value is not quoted: it may contain a password.
		return nil, settings.Usagef("--otlp-endpoint (or OTEL_EXPORTER_OTLP_ENDPOINT) is not of the form http://host:port")
	}
	// The OpenTelemetry exporter specification derives the path from the variable in this
	// way.
	if !strings.HasSuffix(endpoint.Path, "/v1/traces") {
		endpoint = endpoint.JoinPath("v1", "traces")
	}
	return &tracing.Options{
		Endpoint: endpoint, Forced: tracing.DefaultForced, Headers: headers, Sample: c.TraceSample, Slow: traceSlow,
		Service: "pulsegate", Version: c.Version,
	}, nil
}

// otlpHeaders parses OTEL_EXPORTER_OTLP_HEADERS: name=value, separated by commas
// and percent-encoded.
func otlpHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return nil, settings.Usagef("OTEL_EXPORTER_OTLP_HEADERS: part %d is not of the form name=value", i+1)
		}
		headers[name] = value
	}
	return headers, nil
}

// startTracing returns a tracer, or nil without a collector. A nil Tracer traces nothing.
func startTracing(opt *Options, cfg *tracing.Options, log *Log) *tracing.Tracer {
	if cfg == nil {
		return nil
	}
	cfg.Log = log.Logger
	log.Info("tracing", "endpoint", cfg.Endpoint.Host, "sample", opt.TraceSample, "slow",
		settings.FormatDuration(traceSlow))
	return tracing.New(*cfg)
}

// stopTracingTimeout bounds how long a stopping server waits for the collector.
const stopTracingTimeout = 3 * time.Second

// stopTracing exports the remaining spans. A failure does not make the stop a failure.
func stopTracing(tracer *tracing.Tracer, log *Log) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTracingTimeout)
	defer cancel()
	if err := tracer.Close(ctx); err != nil {
		log.Warn("the last traces were not exported", "error", err)
	}
}
