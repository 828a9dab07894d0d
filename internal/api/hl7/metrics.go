package hl7

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

type counters struct {
	acknowledged map[string]*atomic.Uint64 // by code; not modified
	endings      [numEndings]atomic.Uint64

	mu      sync.Mutex
	unknown map[string]uint64 // by sender, at most maxSenders and others; guarded by mu
}

// maxSenders bounds the senders with a counter of their own.
const maxSenders, others = 64, "others"

// unknown counts a message without a known code. It calls OnUnknown for the first one of a sender.
func (s *Server) unknown(sender string) {
	s.counters.mu.Lock()
	if _, counted := s.counters.unknown[sender]; !counted && len(s.counters.unknown) > maxSenders {
		sender = others
	}
	n := s.counters.unknown[sender]
	s.counters.unknown[sender]++
	s.counters.mu.Unlock()
	if n == 0 && s.opt.OnUnknown != nil {
		s.opt.OnUnknown(sender)
	}
}

// An ending is why a connection has ended.
type ending uint8

const (
	byClient     ending = iota
	badFrame            // see frames
	unauthorized        // the credentials are not, or no longer, valid
	slow                // a message was not complete in time
	idle                // no message came
	busy                // no place, no memory, overload, a full disk or a failing store
	draining
	numEndings
)

// endingTexts has the endings as labels.
var endingTexts = [numEndings]string{"client", "framing", "unauthorized", "slow", "idle", "busy", "draining"}

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector. docs/metrics.md lists the metrics.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	to.Gauge("pulsegate_mllp_connections", "Open connections of the MLLP listener.", float64(s.opt.Conns.Open()))
	for code, n := range s.counters.acknowledged {
		to.Counter("pulsegate_mllp_acknowledgements_total",
			"Acknowledged messages, by code in the original mode: AA, AE, AR.", float64(n.Load()), "code", code)
	}
	for why, text := range endingTexts {
		to.Counter("pulsegate_mllp_endings_total", "Connections that have ended, by reason.",
			float64(s.counters.endings[why].Load()), "reason", text)
	}
	s.counters.mu.Lock()
	defer s.counters.mu.Unlock()
	for sender, n := range s.counters.unknown {
		to.Counter("pulsegate_mllp_unknown_total",
			"Messages without a code of a sign, of which everything was ignored, by sender.", float64(n), "sender", sender)
	}
	to.Counter("pulsegate_mllp_held_total",
		"Times that a connection was not read for a while, because a message could not be stored then.",
		float64(s.Held.Load()))
}
