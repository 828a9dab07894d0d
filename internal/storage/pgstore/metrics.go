package pgstore

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters holds the counters of a store.
type counters struct {
	devices, quorum, timeline       atomic.Int64 // as of the last probe
	groups, readings, nanos         atomic.Int64
	unknown, unresolved             atomic.Int64
	expiredReadings, expiredDevices atomic.Int64
	forgot                          atomic.Int64
	repairs, repaired               atomic.Int64
	contradicted, losses            atomic.Int64
	sealed, passedMs                atomic.Int64

	mu      sync.Mutex
	retries map[string]int64 // guarded by mu; by SQLSTATE
}

// group counts a group.
func (c *counters) group(took time.Duration, readings int) {
	c.groups.Add(1)
	c.readings.Add(int64(readings))
	c.nanos.Add(int64(took))
}

// otherState counts what is not counted apart.
const otherState = "other"

// maxStates bounds the number of SQLSTATE codes that are counted apart.
const maxStates = 32

// retry counts an attempt that ended with a SQLSTATE.
func (c *counters) retry(state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retries == nil {
		c.retries = map[string]int64{}
	}
	if _, known := c.retries[state]; !known && len(c.retries) >= maxStates {
		state = otherState
	}
	c.retries[state]++
}

// Describe implements prometheus.Collector.
func (s *database) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector. docs/metrics.md lists the metrics; counters start at
// Open. Collect does not ask the database.
func (s *database) Collect(ch chan<- prometheus.Metric) {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	show := func(kind prometheus.ValueType, name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	c := &s.counters
	show(gauge, "pulsegate_store_devices", "Devices that the store holds.", float64(c.devices.Load()))
	show(gauge, "pulsegate_store_max_devices", "Devices that the store may hold: readings of further ones are rejected.",
		float64(s.opt.MaxDevices))
	show(counter, "pulsegate_postgres_groups_total", "Groups that were sent to PostgreSQL.", float64(c.groups.Load()))
	show(counter, "pulsegate_postgres_group_seconds_total", "Time that groups took, retries included.",
		time.Duration(c.nanos.Load()).Seconds())
	show(counter, "pulsegate_postgres_unknown_outcomes_total",
		"Calls of which a transaction had an unknown outcome: the connection was lost, or PostgreSQL warned.",
		float64(c.unknown.Load()))
	show(counter, "pulsegate_postgres_unresolved_outcomes_total",
		"Of the unknown outcomes, those that were still unknown at the deadline.", float64(c.unresolved.Load()))
	show(gauge, "pulsegate_postgres_standbys_in_quorum",
		"Synchronous standbys that are connected to the primary. 0 without the role pg_monitor.", float64(c.quorum.Load()))
	show(gauge, "pulsegate_postgres_timeline", "Timeline of the primary. Each promotion increments it.",
		float64(c.timeline.Load()))
	show(counter, "pulsegate_postgres_sealed_readings_total", "Readings that this server has moved from rows to segments.",
		float64(c.sealed.Load()))
	var lag time.Duration
	if s.opt.SealAfter > 0 {
		lag = max(0, time.Since(time.UnixMilli(c.passedMs.Load()))-s.opt.SealAfter)
	}
	show(gauge, "pulsegate_postgres_seal_lag_seconds",
		"By how much the oldest reading that may be left to be sealed is older than --seal-after. 0 without --seal-after.",
		lag.Seconds())
	show(counter, "pulsegate_postgres_forgot_total",
		"Connections and transactions that were refused because the database lacked what was acknowledged.",
		float64(c.forgot.Load()))
	show(counter, "pulsegate_postgres_repairs_total", "Repairs of a database that lacked what was acknowledged.",
		float64(c.repairs.Load()))
	show(counter, "pulsegate_postgres_repaired_readings_total", "Readings that repairs have put back.",
		float64(c.repaired.Load()))
	show(counter, "pulsegate_postgres_contradicted_total",
		"Readings and assignments that repairs could not put back, because the database had other ones.",
		float64(c.contradicted.Load()))
	show(counter, "pulsegate_postgres_losses_total", "Losses that this server has reported.", float64(c.losses.Load()))
	var bytes, fromMs int64
	var unwritten float64
	if s.memory != nil {
		bytes, fromMs = s.memory.Stats()
		if s.memory.Trouble() != nil {
			unwritten = 1
		}
	}
	show(gauge, "pulsegate_postgres_remembered_bytes", "Bytes of what the server remembers for a repair.", float64(bytes))
	show(gauge, "pulsegate_postgres_remembered_from_timestamp_seconds",
		"When the first of what the server remembers was acknowledged. 0 if it remembers nothing.", float64(fromMs)/1000)
	show(gauge, "pulsegate_postgres_remembered_unwritten",
		"1 while the directory of what the server remembers cannot be written, else 0.", unwritten)
	var missing gap
	if g := s.missing.Load(); g != nil {
		missing = *g
	}
	show(gauge, "pulsegate_postgres_missing_from_timestamp_seconds",
		"When the first of what the database lacks was acknowledged. 0 if it lacks nothing.", float64(missing.fromMs)/1000)
	show(gauge, "pulsegate_postgres_missing_to_timestamp_seconds",
		"When the last of what the database lacks was acknowledged. 0 if it lacks nothing.", float64(missing.toMs)/1000)
	var lost Loss
	if l := s.lost.Load(); l != nil {
		lost = *l
	}
	show(gauge, "pulsegate_postgres_lost_from_timestamp_seconds",
		"When the first of what may be lost for good was acknowledged, of all servers. 0 if no loss is reported.",
		float64(lost.FromUnixMs)/1000)
	show(gauge, "pulsegate_postgres_lost_to_timestamp_seconds",
		"When the last of what may be lost for good was acknowledged, of all servers. 0 if no loss is reported.",
		float64(lost.ToUnixMs)/1000)
	show(counter, "pulsegate_retention_removed_readings_total",
		"Readings that were removed because they were older than the server keeps.", float64(c.expiredReadings.Load()))
	show(counter, "pulsegate_retention_removed_devices_total",
		"Devices of which old readings were removed and no other was left.", float64(c.expiredDevices.Load()))

	retries := prometheus.NewDesc("pulsegate_postgres_retries_total",
		"Transactions that failed, by SQLSTATE, or why there is none.", []string{"state"}, nil)
	c.mu.Lock()
	counts := map[string]int64{"connection": 0, "unreachable": 0, "warning": 0, serialization: 0, deadlock: 0}
	maps.Copy(counts, c.retries)
	c.mu.Unlock()
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(retries, counter, float64(n), state)
	}

	pool := prometheus.NewDesc("pulsegate_postgres_connections", "Connections to PostgreSQL, by pool and state.",
		[]string{"pool", "state"}, nil)
	write, read := s.write.Stat(), s.read.Stat()
	ch <- prometheus.MustNewConstMetric(pool, gauge, float64(write.AcquiredConns()), "write", "busy")
	ch <- prometheus.MustNewConstMetric(pool, gauge, float64(write.IdleConns()), "write", "idle")
	ch <- prometheus.MustNewConstMetric(pool, gauge, float64(read.AcquiredConns()), "read", "busy")
	ch <- prometheus.MustNewConstMetric(pool, gauge, float64(read.IdleConns()), "read", "idle")
}
