package mqtt

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector. docs/metrics.md lists the metrics.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	c, to := &s.counters, metrics.Sink(ch)
	to.Gauge("pulsegate_mqtt_connections", "Open connections of the MQTT listener, in both lanes.",
		float64(s.opt.Conns.Open()))
	for outcome, n := range map[string]uint64{"accepted": c.accepted.Load(), "refused": c.refused.Load()} {
		to.Counter("pulsegate_mqtt_connects_total", "CONNECT packets, by outcome.", float64(n), "outcome", outcome)
	}
	for qos, text := range []string{"0", "1", "2"} {
		to.Counter("pulsegate_mqtt_publications_total", "Publications that were delivered, by QoS.",
			float64(c.publications[qos].Load()), "qos", text)
	}
	for why, text := range endingTexts {
		to.Counter("pulsegate_mqtt_endings_total",
			"Connections that the server ended, or the client with DISCONNECT, by reason.", float64(c.endings[why].Load()),
			"reason", text)
	}
	to.Counter("pulsegate_mqtt_held_total",
		"Times that a connection was not read for a while, because a publication could not be stored then.",
		float64(s.held.Load()))
	to.Counter("pulsegate_mqtt_slowed_total",
		"Times that a connection was not read for a while, because it had sent many packets that need no commit.",
		float64(c.slowed.Load()))
}
