package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/observe/logbudget"
)

// Log returns the collector of a log, which has no library of its own.
func Log(log *logbudget.Log) prometheus.Collector { return logCollector{log} }

type logCollector struct{ log *logbudget.Log }

func (c logCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

func (c logCollector) Collect(ch chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	s := c.log.Stats()
	counter(prometheus.NewDesc("pulsegate_log_lines_total", "Log lines that were written.", nil, nil), s.Lines)
	counter(prometheus.NewDesc("pulsegate_log_bytes_total", "Bytes of the log lines that were written.", nil, nil), s.Bytes)
	suppressed := prometheus.NewDesc("pulsegate_log_suppressed_lines_total",
		"Log lines that were counted and not written, by reason: beyond their budget, or not taken by the reader of standard error.",
		[]string{"reason"}, nil)
	counter(suppressed, s.Suppressed, "budget")
	counter(suppressed, s.Dropped, "blocked")
}
