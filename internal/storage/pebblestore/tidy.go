package pebblestore

import (
	"context"
	"errors"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
)

// # How small segments are merged while few readings arrive
//
// A sealer merges the small segments of a device only when they make a whole one, so that a bulk
// load rewrites each reading once. Until then a device that rarely sends has many small
// segments: they take more bytes, and more time to read. While the store is quiet, merging them
// earlier takes no time from arriving readings.
//
// After a window was sealed, and after the start, Tidy goes once through the devices, and merges
// the segments of each like the runs of a log-structured merge tree, as the sealer does, but
// whatever their number. Each merge about doubles the size of a segment, so a reading is rewritten
// at most about five times before its segment is whole.
//
// A step holds segments.sealing, and is bounded by tidyRows. The pass
// pauses between two steps as long as readings arrive faster than tidyQuietBytes. Then it gives space back: see
// segments.reclaim.
const (
	tidyRows    = 64 << 10                // readings that a step merges, exceeded by one device
	tidyDevices = 4 * memory.ChunkDevices // that a step looks at
	tidyPause   = time.Second

	// tidyMaxDelay bounds the delay after failed steps, which doubles with each.
	tidyMaxDelay = 10 * time.Minute

	// tidyQuietBytes is what is written to the log in tidyPause while the store is quiet: some
	// 10,000 readings in batches, or 1,500 single ones.
	tidyQuietBytes = 128 << 10
)

// Tidy merges small segments while few readings arrive, until ctx ends or the store is closed.
// Close waits for it. At most one call may be active. For a read-only store Tidy does nothing.
func (g *segments) Tidy(ctx context.Context) {
	if g.options.ReadOnly {
		return
	}
	if ctx, end, ok := g.maintenance.during(ctx); ok {
		defer end()
		g.tidy(ctx, g.tidyStep)
	}
}

// tidy does the work of Tidy, of which step is one step.
func (g *segments) tidy(ctx context.Context, step func(from uint32) (next uint32, more bool, err error)) {
	// An interrupted pass resumes at its device. It covers only the windows that were sealed before
	// it began, because the devices before that one may have new small segments: if a window was
	// sealed during the pass, another pass follows.
	next, begun, ended, seen := uint32(0), int64(-1), int64(-1), g.counters.batchBytes.Load()
	left := int64(0) // dead bytes that are not worth a compaction
	var retryAt time.Time
	var delay time.Duration // from the last step to retryAt; 0 means it did not fail
	busy := func() bool { return g.counters.batchBytes.Load()-seen > tidyQuietBytes }
	for sleep(ctx, tidyPause) == nil {
		written, sealed := g.counters.batchBytes.Load(), g.counters.sealedRows.Load()
		quiet := written-seen <= tidyQuietBytes && !time.Now().Before(retryAt)
		seen = written
		if next == 0 {
			begun = sealed
		}
		for more := true; quiet && more && begun != ended && g.Ready() == nil && ctx.Err() == nil; {
			var err error
			if next, more, err = step(next); err != nil {
				delay = min(max(2*delay, tidyPause), tidyMaxDelay)
				retryAt = time.Now().Add(delay)
				g.notTidied(err, delay)
				break
			}
			delay = 0
			if !more {
				next, ended = 0, begun
			}
			quiet = !busy()
		}
		for more := true; quiet && more && begun == ended && g.dead.total() != left && g.Ready() == nil && ctx.Err() == nil; {
			var err error
			switch more, err = g.reclaim(ctx, busy); {
			case errors.Is(err, context.Canceled): // readings arrive, or it gave way
			case err != nil:
				delay = min(max(2*delay, tidyPause), tidyMaxDelay)
				retryAt = time.Now().Add(delay)
				g.notTidied(err, delay)
			case !more:
				left = g.dead.total()
			}
			quiet = quiet && err == nil && !busy()
		}
	}
}

// notTidied reports that a step has failed. It is tried again after delay.
func (g *segments) notTidied(err error, delay time.Duration) {
	if errors.Is(err, storage.ErrClosed) || g.alarm.err() != nil {
		return
	}
	g.troubles.background.Add(1)
	g.options.Log.Error("small segments cannot be merged: this is tried again", "dir", g.dir, "in", delay, "error", err)
}

// tidyStep merges small segments of devices whose number in the table is from or higher. It
// returns the number with which the next step begins, and whether there may be further devices.
func (g *segments) tidyStep(from uint32) (next uint32, more bool, err error) {
	g.sealing.Lock()
	defer g.sealing.Unlock()
	if g.closed.Load() {
		return from, false, storage.ErrClosed
	}
	w, rows, next, more, err := g.findSmall(from)
	if err != nil || w.Devices() == 0 {
		return next, more, err
	}
	c := g.newSealer(w)
	c.Tidy = true
	defer func() { err = errors.Join(err, c.Batch.Close()) }()
	err = c.Run(g.maintenance.ctx)
	c.reportUnread()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := errors.Join(err, g.alarm.reportedErr()); g.alarm.err() != nil {
		return from, true, err
	}
	g.publish() // so that readers do not keep the old segments
	if err != nil {
		return from, true, err
	}
	g.counters.tidiedRows.Add(int64(rows))
	return next, more, nil
}

// findSmall returns a window without rows that has the next devices with segments to merge, and the
// number of readings in these.
func (g *segments) findSmall(from uint32) (w *memory.Window, rows int, next uint32, more bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.alarm.reportedErr(); err != nil {
		return nil, 0, from, true, err
	}
	t := g.settler.table
	w = memory.NewWindow(0, 0)
	used := t.Assigned()
	for next = from; next < used && next-from < tidyDevices && rows < tidyRows; next++ {
		d := t.At(next)
		if d.NewestUnixMs < 0 { // it was removed
			continue
		}
		if n, total := seal.Similar(&d.Sizes, 0); n > 1 {
			name := t.Name(next)
			w.AddDevice(&name, next)
			rows += total
		}
	}
	return w, rows, next, next < used, nil
}
