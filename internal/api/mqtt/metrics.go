package mqtt

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector. docs/metrics.md lists the metrics.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	labelled := func(name, help, label, text string, value uint64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{label}, nil), prometheus.CounterValue, float64(value), text)
	}
	c := &s.counters
	show(prometheus.GaugeValue, "pulsegate_mqtt_connections", "Open connections of the MQTT listener, in both lanes.", float64(s.opt.Conns.Open()))
	const connects = "pulsegate_mqtt_connects_total"
	labelled(connects, "CONNECT packets, by outcome.", "outcome", "accepted", c.accepted.Load())
	labelled(connects, "CONNECT packets, by outcome.", "outcome", "refused", c.refused.Load())
	for qos, text := range []string{"0", "1", "2"} {
		labelled("pulsegate_mqtt_publications_total", "Publications that were delivered, by QoS.", "qos", text, c.publications[qos].Load())
	}
	for why, text := range endingTexts {
		labelled("pulsegate_mqtt_endings_total", "Connections that the server ended, or the client with DISCONNECT, by reason.", "reason", text, c.endings[why].Load())
	}
	show(prometheus.CounterValue, "pulsegate_mqtt_held_total", "Times that a connection was not read for a while, because a publication could not be stored then.", float64(c.held.Load()))
	show(prometheus.CounterValue, "pulsegate_mqtt_slowed_total", "Times that a connection was not read for a while, because it had sent many packets that need no commit.", float64(c.slowed.Load()))
}
