package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
)

// Log returns a collector for the counters of a log. Package logbudget does not import
// the Prometheus library.
func Log(log *logbudget.Log) prometheus.Collector { return logCollector{log} }

type logCollector struct{ log *logbudget.Log }

func (c logCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c logCollector) Collect(ch chan<- prometheus.Metric) {
	s, to := c.log.Stats(), Sink(ch)
	to.Counter("pulsegate_log_lines_total", "Log lines written.", float64(s.Lines))
	to.Counter("pulsegate_log_bytes_total", "Bytes of the log lines written.", float64(s.Bytes))
	for reason, n := range map[string]int64{"budget": s.Suppressed, "blocked": s.Dropped} {
		to.Counter("pulsegate_log_suppressed_lines_total",
			"Log lines that were counted but not written, by reason: beyond their budget, or blocked because standard error "+
				"was not read.", float64(n), "reason", reason)
	}
}
