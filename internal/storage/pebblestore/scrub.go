package pebblestore

import (
	"context"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/verify"
)

// newScrubber returns the scrubber of s.
func (s *Store) newScrubber() *verify.Scrubber {
	return verify.NewScrubber(verify.Options{
		Dir: s.files, Name: s.dir, Reader: tableOptions(s.options), Log: s.options.Log,
		Tables: s.tableFiles, AwaitTurn: s.maintenance.awaitTurn, OnDamage: s.troubles.damage,
	})
}

// Scrub verifies all tables, one pass in each period, until ctx ends or the store is closed.
// Close waits for it. Findings are logged, and reported by Degraded and the metrics. At most
// one call may be active. For a read-only store Scrub does nothing.
func (s *Store) Scrub(ctx context.Context, period time.Duration) {
	if s.options.ReadOnly {
		return
	}
	if ctx, end, ok := s.maintenance.during(ctx); ok {
		defer end()
		s.scrubber.Run(ctx, period)
	}
}
