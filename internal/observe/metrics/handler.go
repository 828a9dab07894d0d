package metrics

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of scrapes. Each scrape in progress uses memory; a few at once suffice for a
// second Prometheus and a person with curl.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// A Collector exports the metrics of one component.
type Collector = prometheus.Collector

// Handler returns the handler of /metrics. It exports the metrics of all collectors,
// whether the server is ready, and those of the process and the Go runtime. version is
// the program's version. docs/metrics.md lists the metrics.
//
// Collectors and ready are called concurrently during scrapes and must return quickly.
func Handler(version string, ready func() bool, all ...Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		// Always 1. The name identifies Pulsegate, the labels its version.
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "pulsegate_build_info",
			Help:        "Always 1. The labels are the versions of Pulsegate and of Go.",
			ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pulsegate_ready",
			Help: "1 if readyz reports that the server can store readings now.",
		}, func() float64 {
			if ready() {
				return 1
			}
			return 0
		}),
	)
	r.MustRegister(all...)
	pages := promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	return http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Over HTTP/1.0, a page without its length would look whole when it is cut off. TimeoutHandler sends nothing before
		// this returns.
		out := &counted{ResponseWriter: w}
		pages.ServeHTTP(out, r)
		w.Header().Set("Content-Length", strconv.Itoa(out.bytes))
	}), scrapeTimeout, "the metrics were not collected in time\n")
}

// A counted ResponseWriter counts the bytes of the body.
type counted struct {
	http.ResponseWriter
	bytes int
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += n
	return n, err
}

// A Sink takes the current values of a collector whose Describe is [prometheus.DescribeByCollect].
type Sink chan<- prometheus.Metric

// Gauge exports the value of a gauge. labels are the names of its labels, each followed by its value.
func (s Sink) Gauge(name, help string, value float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, value, labels)
}

// Counter exports the value of a counter, with labels as in Gauge.
func (s Sink) Counter(name, help string, value float64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, value, labels)
}

func (s Sink) send(kind prometheus.ValueType, name, help string, value float64, labels []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
}
