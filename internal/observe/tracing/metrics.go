package tracing

import "github.com/prometheus/client_golang/prometheus"

var requestsDesc = prometheus.NewDesc("pulsegate_traced_requests_total",
	"Traced requests, by outcome: exported to the collector, dropped because the queue was full, or failed because no collector accepted them.",
	[]string{"outcome"}, nil)

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(ch chan<- *prometheus.Desc) { ch <- requestsDesc }

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) {
	counter := func(n uint64, outcome string) {
		ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(n), outcome)
	}
	st := t.Stats()
	counter(st.Exported, "exported")
	counter(st.Dropped, "dropped")
	counter(st.Failed, "failed")
}
