package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// pebbleLogger passes Pebble's messages to slog, and fatal ones to an alarm.
type pebbleLogger struct {
	log   *slog.Logger
	alarm *alarm
}

func (l pebbleLogger) Infof(format string, args ...any) { debugLogger{l.log}.Infof(format, args...) }

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble reported an error", "text", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.alarm.RaiseAndBlock(fmt.Sprintf(format, args...))
}

// eventListener returns the listener for Pebble's background work.
func eventListener(log *slog.Logger, a *alarm, background *backgroundErrors, d *dead) pebble.EventListener {
	l := pebble.EventListener{
		BackgroundError: background.report,
		CompactionEnd:   d.compacted,
		// The default would end the process. Damage of a table is returned to
		// its readers.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			background.troubles.damage(fmt.Errorf("%w: file %s: %w", storage.ErrCorrupt, info.Path, info.Details))
			log.Error("stored file is damaged", "file", info.Path, "error", info.Details)
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			background.troubles.slow.Add(1)
			log.Warn("disk is slow", "operation", info.OpType.String(), "file", info.Path, "took", info.Duration)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			background.troubles.stall.begin()
			log.Warn("writes are stalled", "reason", info.Reason)
		},
		WriteStallEnd: func() {
			background.troubles.stall.end()
			log.Info("writes continue")
		},
		WALCreated: func(info pebble.WALCreateInfo) {
			if info.Err != nil {
				a.RaiseBeforePanic(fmt.Sprintf("a new log %s cannot be created: %v", info.Path, info.Err))
			}
		},
	}
	return pebble.TeeEventListener(l, pebble.MakeLoggingEventListener(debugLogger{log}))
}

// debugLogger logs everything at the debug level, which may be enabled at any time. All
// lines have the same message, because lines are counted and limited by message.
type debugLogger struct{ log *slog.Logger }

func (l debugLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pebble", "text", fmt.Sprintf(format, args...))
	}
}
func (l debugLogger) Errorf(format string, args ...any) { l.Infof(format, args...) }
func (l debugLogger) Fatalf(format string, args ...any) { l.Infof(format, args...) }

// troubles counts errors that Pebble reports, and stalls.
type troubles struct {
	background atomic.Int64 // flushes and compactions that failed
	damaged    atomic.Int64 // reports of damaged files
	slow       atomic.Int64 // file operations that took longer than diskSlowAfter
	stall      stallClock

	degraded atomic.Pointer[error] // the first damage found, or nil
}

// damage counts a report of a damaged file, and records it.
func (t *troubles) damage(err error) {
	t.damaged.Add(1)
	t.degrade(err)
}

// degrade records err if it is damage. Other errors may be temporary.
func (t *troubles) degrade(err error) {
	if errors.Is(err, storage.ErrCorrupt) {
		t.degraded.CompareAndSwap(nil, &err)
	}
}

// A stallClock counts write stalls, in which Pebble delays writes because flushes or
// compactions lag. There is at most one at a time.
type stallClock struct {
	mu    sync.Mutex
	times int64
	total time.Duration // of stalls that have ended
	since time.Time     // start of the current stall; zero means none
}

func (c *stallClock) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times++
	c.since = time.Now()
}

func (c *stallClock) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += time.Since(c.since)
	c.since = time.Time{}
}

// read returns the number of stalls and their total duration so far.
func (c *stallClock) read() (times int64, total time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	total = c.total
	if !c.since.IsZero() {
		total += time.Since(c.since)
	}
	return c.times, total
}

// backgroundErrors handles the errors of flushes and compactions.
//
// Pebble retries them immediately and forever, which on a full disk would spin. In Open it
// also waits until the replayed log is flushed, no matter how often that fails.
type backgroundErrors struct {
	log      *slog.Logger
	alarm    *alarm
	troubles *troubles
	opening  atomic.Bool
	failed   atomic.Int64 // number of errors while opening
}

const (
	backgroundErrorPause = 20 * time.Millisecond
	maxOpeningErrors     = 50 // about a second
)

// report is called with Pebble's mutex held: the pause delays the next attempt, and
// delays commits by at most the same time.
func (b *backgroundErrors) report(err error) {
	time.Sleep(backgroundErrorPause)
	b.troubles.background.Add(1)
	if b.opening.Load() && b.failed.Add(1) == maxOpeningErrors {
		b.alarm.RaiseAndBlock(fmt.Sprintf("the replayed log cannot be written to tables: %v", err))
	}
	b.log.Error("a flush or compaction failed and is retried", "error", err)
}
