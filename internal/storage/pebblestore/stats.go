package pebblestore

import (
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// Stats are a store's figures. Counts begin at Open.
type Stats struct {
	Groups     int64                             // groups settled
	Readings   [storage.TooManyDevices + 1]int64 // readings settled, by storage.Outcome
	Lookups    int64                             // readings for which the tree was asked
	Syncs      int64                             // groups that were written
	SyncTime   time.Duration                     // spent in writing them, syncs included
	BatchBytes int64                             // written to the log

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
}

// Stats returns the store's figures. It takes microseconds, holds up commits for
// as long, and may run beside all other calls. After Close it returns the counts
// alone.
func (s *Store) Stats() Stats {
	c := &s.counters
	st := Stats{
		Groups:     c.groups.Load(),
		Lookups:    c.lookups.Load(),
		Syncs:      c.syncs.Load(),
		SyncTime:   time.Duration(c.syncNanos.Load()),
		BatchBytes: c.batchBytes.Load(),
		Devices:    s.deviceCount.Load(),
		FreeBytes:  s.disk.freeBytes.Load(),

		MinFreeBytes:     s.disk.markBytes.Load(),
		Failed:           s.failed() != nil,
		Recovered:        s.recovered,
		BackgroundErrors: s.troubles.background.Load(),
		Damaged:          s.troubles.damaged.Load(),
		SlowOperations:   s.troubles.slow.Load(),
		ExpiredReadings:  c.expiredReadings.Load(),
		ExpiredDevices:   c.expiredDevices.Load(),
	}
	for o := range c.outcomes {
		st.Readings[o] = c.outcomes[o].Load()
	}
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

// counters count what Append does, once a group.
type counters struct {
	groups, lookups, syncs, syncNanos, batchBytes atomic.Int64

	expiredReadings, expiredDevices atomic.Int64

	outcomes [storage.TooManyDevices + 1]atomic.Int64
}

func (c *counters) group(t *tally) {
	c.groups.Add(1)
	c.lookups.Add(t.lookups)
	for o, n := range t.outcomes {
		if n > 0 {
			c.outcomes[o].Add(n)
		}
	}
}

func (c *counters) commit(batchBytes int, took time.Duration) {
	c.syncs.Add(1)
	c.batchBytes.Add(int64(batchBytes))
	c.syncNanos.Add(int64(took))
}
