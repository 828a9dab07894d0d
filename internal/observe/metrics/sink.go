package metrics

import "github.com/prometheus/client_golang/prometheus"

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
