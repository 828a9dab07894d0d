package pebblestore

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

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
// s.mu must be held.
func (s *Store) awaitRoom() error {
	var since time.Time
	stalled := false
	for {
		if err := s.ready(); err != nil {
			return err
		}
		if s.settler.frozen == nil {
			break
		}
		filled := s.settler.active.Filled(s.options.WindowRows)
		if filled < 1 && filled <= paceSlack+s.settler.frozen.SealedPart() {
			break
		}
		if since.IsZero() {
			since = time.Now()
		}
		if filled >= 1 && !stalled {
			stalled = true
			s.counters.sealStalls.Add(1)
		}
		s.progress.Wait()
	}
	if !since.IsZero() {
		s.counters.pacedNanos.Add(int64(time.Since(since)))
	}
	return nil
}

// sealIfFull freezes the active window if it is full and no other one is frozen, and starts to
// seal it. s.mu must be held.
func (s *Store) sealIfFull() {
	if s.settler.frozen == nil && s.settler.active.Filled(s.options.WindowRows) >= 1 {
		s.freeze()
		s.startSealing()
	}
}

// freeze freezes the active window. s.mu must be held, and no window may be frozen.
func (s *Store) freeze() {
	w := s.settler.active
	w.EndGroup = s.nextGroup
	s.settler.frozen, s.settler.active = w, memory.NewWindow(w.Number()+1, s.nextGroup)
}

// startSealing starts to seal the frozen window in the background.
func (s *Store) startSealing() {
	leave, ok := s.maintenance.join()
	if !ok {
		return // the store is being closed; the next start reads the groups
	}
	go func() {
		defer leave()
		s.sealInBackground()
	}()
}

func (s *Store) sealInBackground() {
	// Wake Append also if the store is being closed or has failed.
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.progress.Broadcast()
	}()
	for {
		err := s.sealFrozen()
		if err == nil || s.maintenance.ctx.Err() != nil || s.alarm.err() != nil {
			return
		}
		s.troubles.background.Add(1)
		s.options.Log.Error("readings cannot be written to segments: this is tried again", "dir", s.dir, "error", err)
		if sleep(s.maintenance.ctx, sealRetryAfter) != nil {
			return
		}
	}
}

// sealFrozen seals the frozen window, if there is one.
func (s *Store) sealFrozen() error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	return s.sealFrozenLocked()
}

func (s *Store) sealFrozenLocked() error {
	s.mu.Lock()
	w := s.settler.frozen
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return s.newSealer(w).run()
}

// sealAll seals everything that is in windows when it is called. s.sealing must be held. It returns
// no error if rows stay in groups because a segment cannot be read; see Store.notSealed.
func (s *Store) sealAll() error {
	s.notSealed = nil
	if err := s.sealFrozenLocked(); err != nil {
		return err
	}
	s.mu.Lock()
	// Append may have frozen the active window meanwhile. Then that one is sealed: a further one
	// has only later rows.
	if s.settler.frozen == nil && s.settler.active.Rows() > 0 {
		s.freeze()
	}
	s.mu.Unlock()
	err := s.sealFrozenLocked()
	if err != nil {
		s.startSealing() // try again
	}
	return err
}

// sealAllAndLock seals everything that is in windows when it is called, and locks s.mu. Then no
// window is frozen, and the active one has at most the rows that were added meanwhile. After an
// error s.mu is not locked. s.sealing must be held.
func (s *Store) sealAllAndLock() error {
	for {
		if err := s.sealAll(); err != nil {
			return err
		}
		s.mu.Lock()
		if s.settler.frozen == nil {
			return nil
		}
		s.mu.Unlock()
	}
}

// A sealer seals one window, and ends it. s.sealing must be held. It is the seal.Table of its Sealer.
type sealer struct {
	seal.Sealer
	s      *Store
	locked bool                      // s.mu is held
	finish func(*pebble.Batch) error // if not nil, adds to the last batch, and may change Carried
	woken  int64                     // rows for which Append was woken
	named  vitals.Name               // buffer
}

// newSealer returns a sealer of a window. The caller must close its batch.
func (s *Store) newSealer(w *memory.Window) *sealer {
	c := &sealer{s: s}
	c.Sealer = seal.Sealer{
		Tree: s.db, Batch: newBatch(s.db), Rows: w, Table: c, SegmentRows: s.options.segmentRows,
		OnSealed: c.signal, OnUnread: s.troubles.degrade, OnFail: s.alarm.raise,
	}
	return c
}

func (c *sealer) run() (err error) {
	begun := time.Now()
	defer func() { err = errors.Join(err, c.Batch.Close()) }()
	if c.Rows.Rows() > 0 {
		if err := c.Run(c.s.maintenance.ctx); err != nil {
			return err
		}
	}
	defer c.lock()()
	if err := c.end(); err != nil {
		return err
	}
	c.s.counters.sealedRows.Add(int64(c.Rows.Rows()))
	c.s.counters.sealNanos.Add(int64(time.Since(begun)))
	c.reportUnread()
	return nil
}

// lock locks s.mu, unless that is held already, and returns what unlocks it.
func (c *sealer) lock() (unlock func()) {
	if c.locked {
		return func() {}
	}
	c.s.mu.Lock()
	return c.s.mu.Unlock
}

// reportUnread reports that segments were not merged, if there are any.
func (c *sealer) reportUnread() {
	if c.Unread != nil {
		c.s.notSealed = damage.First(c.s.notSealed, c.Unread)
		c.s.options.Log.Error("segments cannot be read, and are not merged", "dir", c.s.dir, "error", c.Unread)
	}
}

// States implements [seal.Table].
func (c *sealer) States(dst []layout.Record, numbers []uint32) ([]layout.Record, error) {
	defer c.lock()()
	if err := c.s.alarm.reportedErr(); err != nil {
		return dst, err
	}
	for _, number := range numbers {
		dst = append(dst, c.s.settler.table.At(number).Record)
	}
	return dst, nil
}

// signal counts rows that are sealed, and wakes a waiting Append from time to time.
func (c *sealer) signal(rows int) {
	if n := c.Rows.Seal(rows); n >= c.woken+sealSignalRows {
		c.woken = n
		c.s.progress.Broadcast()
	}
}

// Publish implements [seal.Table].
func (c *sealer) Publish(b *pebble.Batch, added int64, devices []seal.Sealed) error {
	total := c.s.readings.Load() + added
	if err := setReadings(b, total); err != nil {
		return err
	}
	commit := c.s.commitAlong
	if c.locked {
		commit = c.s.commit
	}
	if err := commit(b); err != nil {
		return err
	}
	c.s.counters.sealBytes.Add(int64(b.Len()))
	c.s.readings.Store(total)
	defer c.lock()()
	for i := range devices {
		x := &devices[i]
		d := c.s.settler.table.At(x.Table)
		d.SealedUnixMs, d.Smalls, d.Small = x.SealedUnixMs, x.Smalls, x.Small
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

// end deletes the window's groups, and publishes a view without the window. s.mu must be held.
func (c *sealer) end() error {
	s := c.s
	if err := s.alarm.reportedErr(); err != nil {
		return err
	}
	if c.finish != nil {
		if err := c.finish(c.Batch); err != nil {
			return err
		}
	}
	next := s.nextGroup
	if c.Rows.FirstGroup < c.Rows.EndGroup {
		first, end := layout.AppendGroupKey(nil, c.Rows.FirstGroup), layout.AppendGroupKey(nil, c.Rows.EndGroup)
		if err := c.Batch.DeleteRange(first, end, nil); err != nil {
			return err
		}
	}
	c.Carried = slices.DeleteFunc(c.Carried, func(x seal.Carried) bool {
		// A row of the active window completes this one.
		return s.settler.active.Find(s.settler.table.At(c.Rows.InTable(x.Device)), x.Row.TimeUnixMs) != nil
	})
	if len(c.Carried) > 0 {
		var g layout.Group
		for i := range c.Carried {
			g.Add(c.nameOf(c.Carried[i].Device), &c.Carried[i].Row)
		}
		if err := c.Batch.Set(layout.AppendGroupKey(nil, next), g.Encode(), nil); err != nil {
			return err
		}
		next++
	}
	if err := c.Batch.Set([]byte(layout.GroupsKey), binary.BigEndian.AppendUint64(nil, next), nil); err != nil {
		return err
	}
	if err := s.commit(c.Batch); err != nil {
		return err
	}
	s.nextGroup, s.settler.frozen = next, nil
	c.carry()
	s.publish()
	s.progress.Broadcast()
	return nil
}

// carry adds the carried rows to the active window.
func (c *sealer) carry() {
	w := c.s.settler.active
	w.Lock()
	defer w.Unlock()
	for i := range c.Carried {
		number := c.Rows.InTable(c.Carried[i].Device)
		w.Add(c.s.settler.table.At(number), number, c.nameOf(c.Carried[i].Device), &c.Carried[i].Row)
	}
}
