package alert

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

// A Collector has the metrics of an engine.
type Collector struct {
	Engine *Engine
	File   *filewatch.Follower // of the rules
}

var (
	rulesDesc   = prometheus.NewDesc("pulsegate_alert_rules", "Rules in force.", nil, nil)
	activeDesc  = prometheus.NewDesc("pulsegate_alerts_active", "Alerts that are active.", nil, nil)
	statesDesc  = prometheus.NewDesc("pulsegate_alert_states", "States that are kept in memory, one for each device and rule, of 32 bytes each.", nil, nil)
	leftOutDesc = prometheus.NewDesc("pulsegate_alert_devices_left_out", "Devices that have no alerts, because there is no room for their states.", nil, nil)
	changesDesc = prometheus.NewDesc("pulsegate_alert_changes_total", "Alerts that have begun or ended.", nil, nil)
	lostDesc    = prometheus.NewDesc("pulsegate_alert_readings_lost_total", "Readings that were evaluated late, from the store, because the queue of the evaluation was full or too many were stored at once.", nil, nil)
	staleDesc   = prometheus.NewDesc("pulsegate_alert_rules_stale", "1 if the file of rules cannot be used, so that older rules are in force.", nil, nil)
	unreadDesc  = prometheus.NewDesc("pulsegate_alert_devices_unread", "Devices whose stored readings cannot be read, so that they may have other alerts.", nil, nil)
	readyDesc   = prometheus.NewDesc("pulsegate_alert_ready", "1 if the states of all devices have been read, or could not be, since the start, or since the rules were changed. No alert begins before.", nil, nil)
)

// Describe implements prometheus.Collector.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulesDesc, activeDesc, statesDesc, leftOutDesc, changesDesc, lostDesc, staleDesc, unreadDesc, readyDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	e := c.Engine
	e.mu.Lock()
	var ready, stale float64
	active, states := float64(e.board.reported), float64(e.board.states)
	if e.ready {
		ready = 1
	} else {
		active = float64(len(e.before))
	}
	rules, leftOut, unread, changes, lost := float64(len(e.board.rules)), float64(e.board.leftOut), float64(e.board.failed()), float64(e.nChanges), float64(e.lostEver)
	e.mu.Unlock()
	if c.File.Stale() {
		stale = 1
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(rulesDesc, rules)
	gauge(activeDesc, active)
	gauge(statesDesc, states)
	gauge(leftOutDesc, leftOut)
	gauge(unreadDesc, unread)
	gauge(readyDesc, ready)
	gauge(staleDesc, stale)
	ch <- prometheus.MustNewConstMetric(changesDesc, prometheus.CounterValue, changes)
	ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, lost)
}
