package pebblestore

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A segments changes the segments of a store: it seals windows and merges small segments.
type segments struct {
	*engine

	// sealing is held while segments are changed: by the sealer, Tidy, Erase and Expire, and
	// while the tree must not change. It guards the following fields.
	sealing  sync.Mutex
	readings atomic.Int64 // in segments; may be read without sealing

	// notSealed is the error of a segment since the last call of sealAll, for which rows may
	// have stayed in groups.
	notSealed error
}

// # How a window is sealed
//
// When the active window is full, it is frozen: Append continues with a new one, and a
// goroutine writes the rows of the frozen one to segments:
//
//  1. Device by device, in the order of names, its rows are encoded, and added to a batch
//     with its record. A batch that has grown to 256 KiB is committed with the next
//     group, or alone if no group is being appended.
//  2. All segments are read back through the tree and compared.
//  3. One batch deletes the window's groups. Readers get a view without the window.
//
// After a crash before step 3, the groups are still there, and the next start reads them into
// a window. Their rows are sealed again, which changes nothing where they are in segments
// already.
//
// Package seal has these steps but the last.
//
// If a segment cannot be read, it is not merged. Late rows that belong into it are carried:
// the batch of step 3 writes them as a new group, and they go to the active window.
const (
	sealSignalRows = 2048 // after which a waiting Append is woken
	sealRetryAfter = time.Second

	// paceSlack is the part of the active window that may fill before Append waits for the
	// sealer. From then on the window fills only as fast as the frozen one is sealed.
	paceSlack = 1.0 / 8
)

// awaitRoom waits until the active window has room for a group. It returns the error of ready.
// g.mu must be held.
func (g *segments) awaitRoom() error {
	var since time.Time
	stalled := false
	for {
		if err := g.ready(); err != nil {
			return err
		}
		if g.settler.frozen == nil {
			break
		}
		filled := g.settler.active.Filled(g.options.WindowRows)
		if filled < 1 && filled <= paceSlack+g.settler.frozen.SealedPart() {
			break
		}
		if since.IsZero() {
			since = time.Now()
		}
		if filled >= 1 && !stalled {
			stalled = true
			g.counters.sealStalls.Add(1)
		}
		g.progress.Wait()
	}
	if !since.IsZero() {
		g.counters.pacedNanos.Add(int64(time.Since(since)))
	}
	return nil
}

// sealIfFull freezes the active window if it is full and no other one is frozen, and starts to
// seal it. g.mu must be held.
func (g *segments) sealIfFull() {
	if g.settler.frozen == nil && g.settler.active.Filled(g.options.WindowRows) >= 1 {
		g.freeze()
		g.startSealing()
	}
}

// freeze freezes the active window. g.mu must be held, and no window may be frozen.
func (g *segments) freeze() {
	w := g.settler.active
	w.EndGroup = g.nextGroup
	g.settler.frozen, g.settler.active = w, memory.NewWindow(w.Number+1, g.nextGroup)
}

// startSealing starts to seal the frozen window in the background.
func (g *segments) startSealing() {
	leave, ok := g.maintenance.join()
	if !ok {
		return // the store is being closed; the next start reads the groups
	}
	go func() {
		defer leave()
		g.sealInBackground()
	}()
}

func (g *segments) sealInBackground() {
	// Wake Append also if the store is being closed or has failed.
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.progress.Broadcast()
	}()
	for {
		err := g.sealFrozen()
		if err == nil || g.maintenance.ctx.Err() != nil || g.alarm.err() != nil {
			return
		}
		g.troubles.background.Add(1)
		g.options.Log.Error("readings cannot be written to segments: this is tried again", "dir", g.dir, "error", err)
		if sleep(g.maintenance.ctx, sealRetryAfter) != nil {
			return
		}
	}
}

// sealFrozen seals the frozen window, if there is one.
func (g *segments) sealFrozen() error {
	g.sealing.Lock()
	defer g.sealing.Unlock()
	return g.sealFrozenLocked()
}

func (g *segments) sealFrozenLocked() error {
	g.mu.Lock()
	w := g.settler.frozen
	g.mu.Unlock()
	if w == nil {
		return nil
	}
	return g.newSealer(w).run()
}

// sealAll seals everything that is in windows when it is called. g.sealing must be held. It returns
// no error if rows stay in groups because a segment cannot be read; see segments.notSealed.
func (g *segments) sealAll() error {
	g.notSealed = nil
	if err := g.sealFrozenLocked(); err != nil {
		return err
	}
	g.mu.Lock()
	// Append may have frozen the active window while the frozen one was sealed. Then that one is
	// sealed next: a further one has only later rows.
	if g.settler.frozen == nil && g.settler.active.Rows() > 0 {
		g.freeze()
	}
	g.mu.Unlock()
	err := g.sealFrozenLocked()
	if err != nil {
		g.startSealing() // try again
	}
	return err
}

// sealAllAndLock seals everything that is in windows when it is called, and locks g.mu. Then no
// window is frozen, and the active one has at most the rows that were added during the call. After an
// error g.mu is not locked. g.sealing must be held.
func (g *segments) sealAllAndLock() error {
	for {
		if err := g.sealAll(); err != nil {
			return err
		}
		g.mu.Lock()
		if g.settler.frozen == nil {
			return nil
		}
		g.mu.Unlock()
	}
}

// A sealer seals one window, and ends it. g.sealing must be held. It is the seal.Table of its Sealer.
type sealer struct {
	seal.Sealer
	g      *segments
	locked bool                      // engine.mu is held
	finish func(*pebble.Batch) error // if not nil, adds to the last batch, and may change Carried
	woken  int64                     // rows for which Append was woken
	named  vitals.Name               // buffer
}

// newSealer returns a sealer of a window. The caller must close its batch.
func (g *segments) newSealer(w *memory.Window) *sealer {
	c := &sealer{g: g}
	c.Sealer = seal.Sealer{
		Tree: g.db, Batch: newBatch(g.db), Rows: w, Table: c, SegmentRows: g.options.segmentRows,
		OnSealed: c.signal, OnSuperseded: g.dead.add, OnUnread: g.troubles.degrade, OnFail: g.alarm.raise,
	}
	return c
}

func (c *sealer) run() (err error) {
	begun := time.Now()
	defer func() { err = errors.Join(err, c.Batch.Close()) }()
	if c.Rows.Rows() > 0 {
		if err := c.Run(c.g.maintenance.ctx); err != nil {
			return err
		}
	}
	defer c.lock()()
	if err := c.end(); err != nil {
		return err
	}
	c.g.counters.sealedRows.Add(int64(c.Rows.Rows()))
	c.g.counters.sealNanos.Add(int64(time.Since(begun)))
	c.reportUnread()
	return nil
}

// lock locks engine.mu, unless that is held already, and returns what unlocks it.
func (c *sealer) lock() (unlock func()) {
	if c.locked {
		return func() {}
	}
	c.g.mu.Lock()
	return c.g.mu.Unlock
}

// reportUnread reports that segments were not merged, if there are any.
func (c *sealer) reportUnread() {
	if c.Unread != nil {
		c.g.notSealed = damage.First(c.g.notSealed, c.Unread)
		c.g.options.Log.Error("segments cannot be read, and are not merged", "dir", c.g.dir, "error", c.Unread)
	}
}

// States implements [seal.Table].
func (c *sealer) States(dst []layout.Record, numbers []uint32) ([]layout.Record, error) {
	defer c.lock()()
	if err := c.g.alarm.reportedErr(); err != nil {
		return dst, err
	}
	for _, number := range numbers {
		dst = append(dst, c.g.settler.table.Record(number))
	}
	return dst, nil
}

// signal counts rows that are sealed, and wakes a waiting Append from time to time.
func (c *sealer) signal(rows int) {
	if n := c.Rows.Sealed.Add(int64(rows)); n >= c.woken+sealSignalRows {
		c.woken = n
		c.g.progress.Broadcast()
	}
}

// Publish implements [seal.Table].
func (c *sealer) Publish(b *pebble.Batch, added int64, devices []seal.Sealed) error {
	total := c.g.readings.Load() + added
	if err := setReadings(b, total); err != nil {
		return err
	}
	commit := c.g.commitAlong
	if c.locked {
		commit = c.g.commit
	}
	if err := commit(b); err != nil {
		return err
	}
	c.g.counters.sealBytes.Add(int64(b.Len()))
	c.g.readings.Store(total)
	defer c.lock()()
	for i := range devices {
		x := &devices[i]
		d := c.g.settler.table.At(x.Table)
		d.SealedUnixMs, d.Sizes = x.SealedUnixMs, x.Sizes
	}
	return nil
}

// setReadings adds the number of readings in segments to a batch.
func setReadings(b *pebble.Batch, n int64) error {
	return b.Set([]byte(layout.ReadingsKey), binary.BigEndian.AppendUint64(nil, uint64(n)), nil)
}

// nameOf returns the name of a device in the window. It is valid until the next call.
func (c *sealer) nameOf(device uint32) *vitals.Name {
	c.named = c.Rows.Name(device)
	return &c.named
}

// end deletes the window's groups, and publishes a view without the window. g.mu must be held.
func (c *sealer) end() error {
	g := c.g
	if err := g.alarm.reportedErr(); err != nil {
		return err
	}
	if c.finish != nil {
		if err := c.finish(c.Batch); err != nil {
			return err
		}
	}
	next := g.nextGroup
	if c.Rows.FirstGroup < c.Rows.EndGroup {
		first, end := layout.AppendGroupKey(nil, c.Rows.FirstGroup), layout.AppendGroupKey(nil, c.Rows.EndGroup)
		if err := c.Batch.DeleteRange(first, end, nil); err != nil {
			return err
		}
	}
	c.Carried = slices.DeleteFunc(c.Carried, func(x seal.Carried) bool {
		// A row of the active window completes this one.
		_, ok := g.settler.active.Find(g.settler.table.At(c.Rows.InTable(x.Device)), x.Row.TimeUnixMs)
		return ok
	})
	if len(c.Carried) > 0 {
		var carried layout.Group
		for i := range c.Carried {
			if i == 0 || c.Carried[i].Device != c.Carried[i-1].Device {
				carried.Begin(c.nameOf(c.Carried[i].Device))
			}
			*carried.Add() = c.Carried[i].Row
		}
		if err := c.Batch.Set(layout.AppendGroupKey(nil, next), carried.Encode(), nil); err != nil {
			return err
		}
		next++
	}
	if err := c.Batch.Set([]byte(layout.GroupsKey), binary.BigEndian.AppendUint64(nil, next), nil); err != nil {
		return err
	}
	if err := g.settler.setClock(c.Batch); err != nil {
		return err
	}
	if err := g.commit(c.Batch); err != nil {
		return err
	}
	g.dead.addGroups(c.Rows.GroupBytes)
	g.decoded.clear()
	g.nextGroup, g.settler.frozen = next, nil
	c.carry()
	g.publish()
	g.progress.Broadcast()
	return nil
}

// carry adds the carried rows to the active window.
func (c *sealer) carry() {
	w := c.g.settler.active
	w.Lock()
	defer w.Unlock()
	for i := range c.Carried {
		number := c.Rows.InTable(c.Carried[i].Device)
		w.Add(c.g.settler.table.At(number), number, c.nameOf(c.Carried[i].Device), &c.Carried[i].Row)
	}
}
