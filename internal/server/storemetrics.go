package server

import (
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/metrics"
)

// activeWithin are the times for which /metrics tells how many devices were heard
// of. The alert rules compare the longest with another one, so that a device that is
// not used any more is missed for a day and not for ever.
func activeWithin() []time.Duration {
	return []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour}
}

// storeMetrics returns the store's figures as package metrics wants them.
func (s *Server) storeMetrics() metrics.Store {
	st, now := s.store.Stats(), time.Now()
	m := metrics.Store{
		Devices: st.Devices, SizeBytes: st.DiskBytes, LogBytes: st.LogBytes, Tables: st.Tables,
		CompactionDebtBytes: st.CompactionDebtBytes, FreeBytes: st.FreeBytes,
		Syncs: st.Syncs, SyncTime: st.SyncTime, WrittenBytes: st.BatchBytes,
		Lookups: st.Lookups, CacheHits: st.CacheHits, CacheMisses: st.CacheMisses,
		MinFreeBytes: st.MinFreeBytes, Failed: st.Failed, Recovered: st.Recovered,
		BackgroundErrors: st.BackgroundErrors, Damaged: st.Damaged, SlowOperations: st.SlowOperations,
	}
	for _, within := range activeWithin() {
		m.Active = append(m.Active, metrics.Active{Within: shortText(within), Devices: s.store.ActiveDevices(now, within)})
	}
	return m
}

// shortText writes whole minutes and hours as Prometheus does: 15m, 24h.
func shortText(d time.Duration) string {
	if d%time.Hour == 0 {
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/time.Minute)) + "m"
}
