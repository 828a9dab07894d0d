package pebblestore

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
)

// counters holds the counters of Append and Expire.
type counters struct {
	lookups, syncs, syncNanos, batchBytes atomic.Int64

	expiredReadings, expiredDevices atomic.Int64

	// Of sealing. pacedNanos is the time for which Append has waited for it, sealStalls the
	// number of times that it had to wait because the window was full.
	sealedRows, tidiedRows, sealNanos, sealBytes, sealStalls, pacedNanos atomic.Int64
}

// DeviceCount returns the number of devices in the store, or 0 if it is read-only.
func (s *Store) DeviceCount() int64 { return s.deviceCount.Load() }

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector. docs/metrics.md lists the metrics; counters start
// at Open. Collect takes microseconds, delays commits by as much, and may be called
// concurrently with all other methods. After Close the sizes are 0.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	truth := map[bool]float64{true: 1}
	count := func(name, help string, n *atomic.Int64) { show(counter, name, help, float64(n.Load())) }
	seconds := func(name, help string, d time.Duration) { show(counter, name, help, d.Seconds()) }

	show(gauge, "pulsegate_store_devices", "Devices that the store holds.", float64(s.deviceCount.Load()))
	show(gauge, "pulsegate_store_max_devices", "Devices that the store may hold: readings of further ones are rejected.",
		float64(s.options.MaxDevices))
	show(gauge, "pulsegate_store_gateways", "Gateways that stored readings name.", float64(s.gatewayCount.Load()))
	show(gauge, "pulsegate_store_max_gateways", "Gateways that the store may hold: readings of further ones are rejected.",
		float64(s.options.MaxGateways))
	show(gauge, "pulsegate_store_failed",
		"1 after a failed write or sync: no readings are taken until the next start, and the process is about to end.",
		truth[s.alarm.err() != nil])
	show(gauge, "pulsegate_store_recovered",
		"1 if the store was not closed in good order before this start: after a kill, a power cut or a failed sync.",
		truth[s.recovered])
	count("pulsegate_store_background_errors_total", "Flushes and compactions that failed. They are tried again.",
		&s.troubles.background)
	count("pulsegate_store_damage_total", "Times that a stored file was found damaged.", &s.troubles.damaged)
	show(gauge, "pulsegate_store_scrub_last_pass_timestamp_seconds",
		"Unix time at which all tables had last been read and verified. 0 before the first time.",
		float64(s.scrubber.EndedUnixMs.Load())/1000)
	count("pulsegate_store_scrub_read_bytes_total", "Bytes that were read to verify tables.", &s.scrubber.BytesRead)
	bad := prometheus.NewDesc("pulsegate_store_bad_tables",
		"Tables that could not be verified, by reason, and that the store still has.", []string{"reason"}, nil)
	ch <- prometheus.MustNewConstMetric(bad, gauge, float64(s.scrubber.Damaged.Load()), "damaged")
	ch <- prometheus.MustNewConstMetric(bad, gauge, float64(s.scrubber.Unreadable.Load()), "unreadable")
	count("pulsegate_store_slow_operations_total", "Operations on the store's files that took longer than 5 s.",
		&s.troubles.slow)
	stalls, stalled := s.troubles.stall.read()
	show(counter, "pulsegate_store_stalls_total", "Times that groups had to wait for flushes, compactions or sealing.",
		float64(stalls+s.counters.sealStalls.Load()))
	seconds("pulsegate_store_stall_seconds_total",
		"Time for which groups have waited for flushes, compactions or sealing.",
		stalled+time.Duration(s.counters.pacedNanos.Load()))
	show(gauge, "pulsegate_store_min_free_bytes", "Free space below which readings are refused. 0: no limit.",
		float64(s.disk.MarkBytes()))
	show(gauge, "pulsegate_store_free_bytes", "Free space of the store's file system, for this process.",
		float64(s.disk.FreeBytes()))

	c := &s.counters
	count("pulsegate_store_syncs_total",
		"Groups that were written, each with one sync. Groups that change nothing need none.", &c.syncs)
	seconds("pulsegate_store_sync_seconds_total", "Time spent in writing groups, syncs included.",
		time.Duration(c.syncNanos.Load()))
	count("pulsegate_store_written_bytes_total", "Bytes written to the write-ahead log.", &c.batchBytes)
	count("pulsegate_store_lookups_total",
		"Readings for which stored ones were looked up: those that are not newer than all of their device.", &c.lookups)
	count("pulsegate_store_sealed_readings_total", "Readings that were written to segments.", &c.sealedRows)
	count("pulsegate_store_tidied_readings_total", "Readings whose small segments were merged while few readings arrived.",
		&c.tidiedRows)
	seconds("pulsegate_store_seal_seconds_total", "Time spent in writing readings to segments.",
		time.Duration(c.sealNanos.Load()))
	count("pulsegate_store_segment_bytes_total", "Bytes of segments and records written to the write-ahead log.",
		&c.sealBytes)
	count("pulsegate_retention_removed_readings_total",
		"Readings that were removed because they were older than the server keeps.", &c.expiredReadings)
	count("pulsegate_retention_removed_devices_total", "Devices of which old readings were removed and no other was left.",
		&c.expiredDevices)

	m := s.metrics()
	tables := int64(0)
	for i := range m.Levels {
		tables += m.Levels[i].TablesCount
	}
	show(gauge, "pulsegate_store_size_bytes", "Disk space that the store takes, its log included.",
		float64(m.DiskSpaceUsage()))
	show(gauge, "pulsegate_store_log_bytes", "Size of the write-ahead log, which is replayed after a crash.",
		float64(m.WAL.Size))
	show(gauge, "pulsegate_store_dead_bytes",
		"Bytes that were superseded since the start and that no compaction has dropped yet. An estimate.",
		float64(s.dead.total()))
	show(gauge, "pulsegate_store_tables", "Sorted tables of the store.", float64(tables))
	show(gauge, "pulsegate_store_compaction_debt_bytes",
		"Bytes that compaction has yet to rewrite before the store is in its resting form.", float64(m.Compact.EstimatedDebt))
	show(counter, "pulsegate_store_cache_hits_total", "Blocks that the store found in its cache.",
		float64(m.BlockCache.Hits))
	show(counter, "pulsegate_store_cache_misses_total", "Blocks that the store read from its files.",
		float64(m.BlockCache.Misses))

	active := prometheus.NewDesc("pulsegate_store_active_devices",
		"Devices whose newest reading was measured within the time in the label, to the minute.", []string{"within"}, nil)
	// The alert rules compare the longest period with a shorter one, so that a device
	// that is no longer used raises the alert for a day and not forever.
	now := time.Now()
	for label, within := range map[string]time.Duration{"15m": 15 * time.Minute, "1h": time.Hour, "24h": MaxActiveWithin} {
		ch <- prometheus.MustNewConstMetric(active, gauge, float64(s.ActiveDevices(now, within)), label)
	}
}

// MaxActiveWithin is the longest period that [Store.ActiveDevices] accepts.
const MaxActiveWithin = memory.MaxActiveWithin

// ActiveDevices returns the number of devices whose newest reading was measured
// within the given period before now, or after now. The period is precise to the
// minute and limited to MaxActiveWithin. ActiveDevices takes microseconds and may be
// called concurrently with all other methods. For a read-only store it returns 0.
func (s *Store) ActiveDevices(now time.Time, within time.Duration) int64 {
	if s.settler == nil {
		return 0
	}
	return s.settler.table.Active.Since(now.Add(-min(within, MaxActiveWithin)).UnixMilli())
}
