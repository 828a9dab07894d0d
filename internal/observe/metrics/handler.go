package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of a scrape. One that is under way costs memory; a few at one time are a
// second Prometheus and a person with curl.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// A Collector shows the counters that it stands beside.
type Collector = prometheus.Collector

// Handler returns the handler of /metrics: what all collectors show, whether the
// server is ready, the process and the Go runtime. version is that of the program.
// docs/metrics.md lists the metrics.
//
// Collectors and ready are called during scrapes, concurrently; they must return soon.
func Handler(version string, ready func() bool, all ...Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		// Always 1. Its name tells a scraper that this is Pulsegate, its labels which one.
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "pulsegate_build_info",
			Help:        "Always 1. The labels tell the version of Pulsegate and of Go.",
			ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pulsegate_ready",
			Help: "1 if readyz says that the server can store now.",
		}, func() float64 {
			if ready() {
				return 1
			}
			return 0
		}),
	)
	r.MustRegister(all...)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
}
