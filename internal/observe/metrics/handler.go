package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// Bounds of a scrape. One that is under way costs memory; a few at one time are a
// second Prometheus and a person with curl.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// Handler returns the handler of /metrics: the sources, the process and the Go
// runtime. docs/metrics.md lists the metrics.
func Handler(s Sources) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		buildInfo(s.Version),
	)
	if s.Ready != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pulsegate_ready",
			Help: "1 if readyz says that the server can store now.",
		}, func() float64 { return truth(s.Ready()) }))
	}
	if s.Requests != nil {
		r.MustRegister(s.Requests)
	}
	if s.Commits != nil {
		r.MustRegister(s.Commits)
	}
	if s.Ingest != nil {
		r.MustRegister(collector[Ingest]{s.Ingest, ingestFamilies()})
	}
	if s.Queue != nil {
		r.MustRegister(collector[groupcommit.Stats]{s.Queue, queueFamilies()})
	}
	if s.Store != nil {
		r.MustRegister(collector[Store]{s.Store, storeFamilies()})
	}
	if s.Access != nil {
		r.MustRegister(collector[Access]{s.Access, accessFamilies()})
	}
	if s.Retention != nil {
		r.MustRegister(collector[Retention]{s.Retention, retentionFamilies()})
	}
	if s.Traces != nil {
		r.MustRegister(collector[Traces]{s.Traces, tracesFamilies()})
	}
	if s.Log != nil {
		r.MustRegister(collector[Log]{s.Log, logFamilies()})
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
}

// buildInfo returns a metric that is always 1. Its name tells a scraper that this
// is Pulsegate, its labels which one.
func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "pulsegate_build_info",
		Help:        "Always 1. The labels tell the version of Pulsegate and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
