package tracing

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// Describe implements prometheus.Collector.
func (t *Tracer) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(t, ch) }

// Collect implements prometheus.Collector.
func (t *Tracer) Collect(ch chan<- prometheus.Metric) {
	st := t.Stats()
	for outcome, n := range map[string]uint64{"exported": st.Exported, "dropped": st.Dropped, "failed": st.Failed} {
		metrics.Sink(ch).Counter("pulsegate_traced_requests_total",
			"Traced requests, by outcome: exported to the collector, dropped because the queue was full, or failed because no collector accepted them.", float64(n), "outcome", outcome)
	}
}
