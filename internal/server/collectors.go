package server

import (
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/alert"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// collectors returns the collectors for /metrics.
func (s *server) collectors() []metrics.Collector {
	all := []metrics.Collector{
		s.requests, metrics.Connections(s.listeners.conns.Open), &s.listeners.handshakes, s.core, s.live, s.store, metrics.Log(s.log.lines),
		gate.Collector{Gate: s.access.gate, Files: s.access.tls, Syslog: s.access.syslog},
	}
	if s.retention != nil {
		all = append(all, s.retention)
	}
	if s.listeners.mqtt != nil {
		all = append(all, s.listeners.mqtt)
	}
	if s.listeners.mllp != nil {
		all = append(all, s.listeners.mllp)
	}
	if s.alerts.engine != nil {
		all = append(all, alert.Collector{Engine: s.alerts.engine, File: s.alerts.file}, s.alerts.senders)
	}
	if s.tracer != nil {
		all = append(all, s.tracer)
	}
	return all
}
