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
	counter := func(desc *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	s := c.log.Stats()
	counter(prometheus.NewDesc("pulsegate_log_lines_total", "Log lines written.", nil, nil), s.Lines)
	counter(prometheus.NewDesc("pulsegate_log_bytes_total", "Bytes of the log lines written.", nil, nil), s.Bytes)
	suppressed := prometheus.NewDesc("pulsegate_log_suppressed_lines_total",
		"Log lines that were counted but not written, by reason: beyond their budget, or blocked because standard error was not read.",
		[]string{"reason"}, nil)
	counter(suppressed, s.Suppressed, "budget")
	counter(suppressed, s.Dropped, "blocked")
}
