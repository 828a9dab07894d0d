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

// pebbleLogger brings Pebble's messages to slog, and its fatal ones to an alarm.
type pebbleLogger struct {
	log   *slog.Logger
	alarm *alarm
}

func (l pebbleLogger) Infof(format string, args ...any) { debugLogger{l.log}.Infof(format, args...) }

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble reports an error", "text", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.alarm.ring(fmt.Sprintf(format, args...))
}

// eventListener returns what is to be heard of Pebble's background work.
func eventListener(log *slog.Logger, a *alarm, background *backgroundErrors) pebble.EventListener {
	l := pebble.EventListener{
		BackgroundError: background.report,
		// The default would end the process. A damaged table concerns those who
		// read it: they get the error.
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
			log.Warn("writes wait for the tree", "reason", info.Reason)
		},
		WriteStallEnd: func() {
			background.troubles.stall.end()
			log.Info("writes go on")
		},
		WALCreated: func(info pebble.WALCreateInfo) {
			if info.Err != nil {
				a.lastWord(fmt.Sprintf("a new log %s cannot be made: %v", info.Path, info.Err))
			}
		},
	}
	return pebble.TeeEventListener(l, pebble.MakeLoggingEventListener(debugLogger{log}))
}

// debugLogger logs everything at the debug level, which may be off and come on
// later. A message is the same for all of Pebble's texts: lines are counted by it.
type debugLogger struct{ log *slog.Logger }

func (l debugLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pebble", "text", fmt.Sprintf(format, args...))
	}
}
func (l debugLogger) Errorf(format string, args ...any) { l.Infof(format, args...) }
func (l debugLogger) Fatalf(format string, args ...any) { l.Infof(format, args...) }

// troubles count what went wrong in the background.
type troubles struct {
	background atomic.Int64 // flushes and compactions that failed
	damaged    atomic.Int64 // times that a file was found damaged
	slow       atomic.Int64 // file operations that took longer than diskSlowAfter
	stall      stallClock

	degraded atomic.Pointer[error] // the first damage; nil: none was found
}

// damage counts that a file was found damaged, and notes it.
func (t *troubles) damage(err error) {
	t.damaged.Add(1)
	t.degrade(err)
}

// degrade notes damage. That something could not be read for another reason may pass.
func (t *troubles) degrade(err error) {
	if errors.Is(err, storage.ErrCorrupt) {
		t.degraded.CompareAndSwap(nil, &err)
	}
}

// A stallClock counts the times that Pebble holds writes up, because flushes or
// compactions are too late. There is one at a time.
type stallClock struct {
	mu    sync.Mutex
	times int64
	total time.Duration // of those that have ended
	since time.Time     // of the one that lasts; zero: none
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

// read returns how often writes were held up, and for how long until now.
func (c *stallClock) read() (times int64, total time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	total = c.total
	if !c.since.IsZero() {
		total += time.Since(c.since)
	}
	return c.times, total
}

// backgroundErrors hears of failed flushes and compactions.
//
// Pebble tries those again at once and for ever, which on a full disk would spin.
// It also waits in Open until the log's replay is flushed, however often that
// fails.
type backgroundErrors struct {
	log      *slog.Logger
	alarm    *alarm
	troubles *troubles
	opening  atomic.Bool
	failed   atomic.Int64 // errors while opening
}

const (
	backgroundErrorPause = 20 * time.Millisecond
	maxOpeningErrors     = 50 // about a second
)

// report is called with Pebble's lock held: the pause slows down the next attempt,
// and commits at most by as much.
func (b *backgroundErrors) report(err error) {
	time.Sleep(backgroundErrorPause)
	b.troubles.background.Add(1)
	if b.opening.Load() && b.failed.Add(1) == maxOpeningErrors {
		b.alarm.ring(fmt.Sprintf("what the log holds cannot be written to tables: %v", err))
	}
	b.log.Error("background work of the store failed, and is tried again", "error", err)
}
