package pebblestore

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats are a store's figures. Counts begin at Open.
type Stats struct {
	Lookups    int64         // readings for which the tree was asked
	Syncs      int64         // groups that were written
	SyncTime   time.Duration // spent in writing them, syncs included
	BatchBytes int64         // written to the log

	ExpiredReadings int64 // removed by Expire
	ExpiredDevices  int64 // of which Expire has left no reading

	Devices             int64  // in the store; 0 when read-only
	FreeBytes           uint64 // of the file system, when last looked at; 0 when unknown
	DiskBytes           uint64 // taken by the store, log included
	LogBytes            uint64 // of the write-ahead log, to be replayed after a crash
	CompactionDebtBytes uint64 // waiting to be compacted
	Tables              int64
	CacheHits           int64
	CacheMisses         int64

	MinFreeBytes     uint64 // free space below which groups are refused; 0: no limit
	Failed           bool   // takes no group until it is opened again
	Recovered        bool   // was not closed in good order before it was opened, or with the disk low
	BackgroundErrors int64  // flushes and compactions that failed, and were tried again
	Damaged          int64  // times that a file was found damaged
	SlowOperations   int64  // operations on files that took longer than 5 s

	Stalls    int64         // times that groups had to wait for flushes or compactions
	StallTime time.Duration // that they waited, until now
}

// Stats returns the store's figures. It takes microseconds, holds up commits for
// as long, and may run beside all other calls. After Close it returns the counts
// alone.
func (s *Store) Stats() Stats {
	c := &s.counters
	st := Stats{
		Lookups:    c.lookups.Load(),
		Syncs:      c.syncs.Load(),
		SyncTime:   time.Duration(c.syncNanos.Load()),
		BatchBytes: c.batchBytes.Load(),
		Devices:    s.deviceCount.Load(),
		FreeBytes:  s.disk.freeBytes.Load(),

		MinFreeBytes:     s.disk.markBytes.Load(),
		Failed:           s.alarm.failed() != nil,
		Recovered:        s.recovered,
		BackgroundErrors: s.troubles.background.Load(),
		Damaged:          s.troubles.damaged.Load(),
		SlowOperations:   s.troubles.slow.Load(),
		ExpiredReadings:  c.expiredReadings.Load(),
		ExpiredDevices:   c.expiredDevices.Load(),
	}
	st.Stalls, st.StallTime = s.troubles.stall.read()
	// A reader's view keeps Pebble open.
	v, err := s.views.acquire()
	if err != nil {
		return st
	}
	defer s.views.release(v)
	m := s.db.Metrics()
	st.DiskBytes = m.DiskSpaceUsage()
	st.LogBytes = m.WAL.Size
	st.CompactionDebtBytes = m.Compact.EstimatedDebt
	for i := range m.Levels {
		st.Tables += m.Levels[i].TablesCount
	}
	st.CacheHits, st.CacheMisses = m.BlockCache.Hits, m.BlockCache.Misses
	return st
}

// counters count what Append and Expire do.
type counters struct {
	lookups, syncs, syncNanos, batchBytes atomic.Int64

	expiredReadings, expiredDevices atomic.Int64
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector. docs/metrics.md lists the metrics.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	truth := map[bool]float64{true: 1}

	st := s.Stats()
	show(gauge, "pulsegate_store_devices", "Devices that the store holds.", float64(st.Devices))
	show(gauge, "pulsegate_store_failed", "1 after a failed write or sync: no readings are taken until the next start, and the process is about to end.", truth[st.Failed])
	show(gauge, "pulsegate_store_recovered", "1 if the store was not closed in good order before this start: after a kill, a power cut or a failed sync.", truth[st.Recovered])
	show(counter, "pulsegate_store_background_errors_total", "Flushes and compactions that failed. They are tried again.", float64(st.BackgroundErrors))
	show(counter, "pulsegate_store_damage_total", "Times that a stored file was found damaged.", float64(st.Damaged))
	show(counter, "pulsegate_store_slow_operations_total", "Operations on the store's files that took longer than 5 s.", float64(st.SlowOperations))
	show(counter, "pulsegate_store_stalls_total", "Times that groups had to wait for flushes or compactions.", float64(st.Stalls))
	show(counter, "pulsegate_store_stall_seconds_total", "Time for which groups have waited for flushes or compactions.", st.StallTime.Seconds())
	show(gauge, "pulsegate_store_min_free_bytes", "Free space below which readings are refused. 0: no limit.", float64(st.MinFreeBytes))
	show(gauge, "pulsegate_store_size_bytes", "Disk space that the store takes, its log included.", float64(st.DiskBytes))
	show(gauge, "pulsegate_store_log_bytes", "Size of the write-ahead log, which is replayed after a crash.", float64(st.LogBytes))
	show(gauge, "pulsegate_store_tables", "Sorted tables of the store.", float64(st.Tables))
	show(gauge, "pulsegate_store_compaction_debt_bytes", "Bytes that compaction has yet to rewrite before the store is in its resting form.", float64(st.CompactionDebtBytes))
	show(gauge, "pulsegate_store_free_bytes", "Free space of the store's file system, for this process.", float64(st.FreeBytes))
	show(counter, "pulsegate_store_syncs_total", "Groups that were written, each with one sync. Groups that change nothing need none.", float64(st.Syncs))
	show(counter, "pulsegate_store_sync_seconds_total", "Time spent in writing groups, syncs included.", st.SyncTime.Seconds())
	show(counter, "pulsegate_store_written_bytes_total", "Bytes written to the write-ahead log.", float64(st.BatchBytes))
	show(counter, "pulsegate_store_lookups_total", "Readings for which stored ones were looked up: those that are not newer than all of their device.", float64(st.Lookups))
	show(counter, "pulsegate_store_cache_hits_total", "Blocks that the store found in its cache.", float64(st.CacheHits))
	show(counter, "pulsegate_store_cache_misses_total", "Blocks that the store read from its files.", float64(st.CacheMisses))
	show(counter, "pulsegate_retention_removed_readings_total", "Readings that were removed because they were older than the server keeps.", float64(st.ExpiredReadings))
	show(counter, "pulsegate_retention_removed_devices_total", "Devices of which old readings were removed and no other was left.", float64(st.ExpiredDevices))

	active := prometheus.NewDesc("pulsegate_store_active_devices",
		"Devices whose newest reading was measured within the time that the label tells, to the minute.", []string{"within"}, nil)
	// The alert rules compare the longest with another one, so that a device that is
	// not used any more is missed for a day and not for ever.
	now := time.Now()
	for label, within := range map[string]time.Duration{"15m": 15 * time.Minute, "1h": time.Hour, "24h": MaxActiveWithin} {
		ch <- prometheus.MustNewConstMetric(active, gauge, float64(s.ActiveDevices(now, within)), label)
	}
}
