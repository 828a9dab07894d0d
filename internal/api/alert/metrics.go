package alert

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

// A Collector has the metrics of an engine.
type Collector struct {
	Engine *Engine
	File   *filewatch.Follower // of the rules
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	e, to, oneIf := c.Engine, metrics.Sink(ch), map[bool]float64{true: 1}
	e.mu.Lock()
	defer e.mu.Unlock()
	active := e.board.reported
	if !e.ready {
		active = len(e.before)
	}
	to.Gauge("pulsegate_alert_rules", "Rules in force.", float64(len(e.board.rules)))
	to.Gauge("pulsegate_alerts_active", "Alerts that are active.", float64(active))
	to.Gauge("pulsegate_alert_states", "States that are kept in memory, one for each device and rule, of 32 bytes each.",
		float64(e.board.states))
	to.Gauge("pulsegate_alert_devices_left_out", "Devices that have no alerts, because there is no room for their states.",
		float64(e.board.leftOut))
	to.Gauge("pulsegate_alert_devices_unread",
		"Devices whose stored readings cannot be read, so that they may have other alerts.", float64(e.board.failed()))
	to.Gauge("pulsegate_alert_ready",
		"1 if the states of all devices have been read, or could not be, since the start, or since the rules were changed. "+
			"No alert begins before.", oneIf[e.ready])
	to.Gauge("pulsegate_alert_rules_stale", "1 if the file of rules cannot be used, so that older rules are in force.",
		oneIf[c.File.Stale()])
	to.Counter("pulsegate_alert_changes_total", "Alerts that have begun or ended.", float64(e.nChanges))
	to.Counter("pulsegate_alert_readings_lost_total",
		"Readings that were evaluated late, from the store, because the queue of the evaluation was full or too many were "+
			"stored at once.", float64(e.lostEver))
}
