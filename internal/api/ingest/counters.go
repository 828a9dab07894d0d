package ingest

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// counters counts the outcomes of readings and requests, and observes committed groups.
type counters struct {
	stored    atomic.Uint64           // readings that were new, or completed a stored one
	duplicate atomic.Uint64           // readings that were stored already
	refused   [numKinds]atomic.Uint64 // requests, or readings if the kind has an outcome
	leftOut   [numSources][codes.NumDoubts]atomic.Uint64
	ignored   atomic.Uint64 // payloads
	rounded   atomic.Uint64 // values

	groupReadings  metrics.Histogram
	commitDuration metrics.Histogram
}

// newCounters returns counters whose histograms range from one reading to the largest usual
// group, and from a sync to a battery-backed cache to a stalled disk.
func newCounters() counters {
	return counters{
		groupReadings:  metrics.NewHistogram([]int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}, 1),
		commitDuration: metrics.NewHistogram(metrics.DurationBounds(10*time.Microsecond, 10*time.Second), 1e9),
	}
}

// Stored returns the number of readings that were new or completed a stored one.
func (c *Core) Stored() uint64 { return c.counters.stored.Load() }

// Commits returns the counters of the group commit and its current queue. It does not
// allocate.
func (c *Core) Commits() groupcommit.Stats { return c.committer.Stats() }

// Describe implements prometheus.Collector.
func (c *Core) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. Each value is exact, but they are not a consistent
// snapshot. docs/metrics.md lists the metrics.
func (c *Core) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	settled := func(outcome string, n uint64) {
		to.Counter("pulsegate_readings_total",
			"Readings that were settled, by outcome. Stored includes those that completed a stored reading.", float64(n),
			"outcome", outcome)
	}
	settled("stored", c.counters.stored.Load())
	settled("duplicate", c.counters.duplicate.Load())
	for k := range c.answers.kinds {
		n := c.counters.refused[k].Load()
		if kind(k) == refusedUnauthorized {
			n += c.counters.refused[refusedCredentials].Load() // these have no label of their own
		}
		switch in := &c.answers.kinds[k]; {
		case in.outcome != "":
			settled(in.outcome, n)
		case in.reason != "":
			to.Counter("pulsegate_refused_requests_total",
				"Requests of which no reading was looked at, or none is known to be stored, by reason.", float64(n),
				"reason", in.reason)
		}
	}
	for s := range numSources {
		for d := range codes.NumDoubts {
			to.Counter("pulsegate_left_out_total", "Values that were left out without an error, by input and reason.",
				float64(c.counters.leftOut[s][d].Load()), "input", s.String(), "reason", d.String())
		}
	}
	to.Counter("pulsegate_mapping_ignored_total", "Payloads and lines that a mapping with ignore has left out.",
		float64(c.counters.ignored.Load()))
	to.Counter("pulsegate_mapping_rounded_total", "Values that a mapping with round has rounded.",
		float64(c.counters.rounded.Load()))
	to.Gauge("pulsegate_queue_readings", "Readings that are admitted and not yet answered.",
		float64(c.queue.queued.Load()))
	to.Gauge("pulsegate_request_body_bytes", "Memory of request bodies that are being read.",
		float64(c.memory.held.Load()))

	ch <- c.counters.groupReadings.Metric(prometheus.NewDesc("pulsegate_commit_group_readings",
		"Readings in one commit group. A group shares one sync.", nil, nil))
	ch <- c.counters.commitDuration.Metric(prometheus.NewDesc("pulsegate_commit_duration_seconds",
		"Time in which the store settled a group and made it durable.", nil, nil))
	st := c.committer.Stats()
	to.Counter("pulsegate_commit_calls_total",
		"Calls whose group has been flushed. A request makes one, a batch larger than a group several.", float64(st.Calls))
	to.Counter("pulsegate_commit_failures_total", "Groups whose flush failed.", float64(st.Failed))
	to.Counter("pulsegate_commit_queue_full_total", "Requests that were decoded and found no room in the commit queue.",
		float64(c.queue.rejected.Load()))
	to.Gauge("pulsegate_commit_queue_calls", "Calls that wait for their group's flush, the running one included.",
		float64(st.QueuedCalls))
	to.Gauge("pulsegate_commit_queue_readings", "Readings that wait for their group's flush, the running one included.",
		float64(st.QueuedItems))
}
