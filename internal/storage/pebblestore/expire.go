package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// # The cost of expiring readings
//
// If a window has expired readings, Expire seals it first. Then it visits all devices in the
// order of their names, a few per batch, and finds the oldest segment of each with one seek. If
// that has expired readings, it counts them from the headers of the segments. One batch deletes
// the segments that have nothing else, with one range deletion for each device, and writes
// those that have other readings, too, without the expired ones. It works for a tenth of the
// time and pauses for the rest. Append waits for one sync per batch.
//
// Range deletions stay in the memtable until it is full, and every reader has to sort
// them; so the memtable is flushed after every maxDeletions deletions. Later compactions
// free the space.
const (
	expireShare    = 10     // works for one tenth of the time
	expireDevices  = 64     // devices per batch
	expireReadings = 20_000 // readings per batch
	maxDeletions   = 1000
)

// Expire implements [storage.Remover]. It is slow on purpose: see above. It also works
// below the low-water mark, because it frees space.
func (s *Store) Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error) {
	e := &expirer{s: s, beforeUnixMs: beforeUnixMs, atMost: atMost, gateways: map[uint32]bool{}}
	err := e.runAndSweep(ctx)
	if err != nil {
		err = fmt.Errorf("remove readings before %d: %w", beforeUnixMs, err)
	}
	return e.done, err
}

type expirer struct {
	s            *Store
	beforeUnixMs int64
	atMost       int64
	done         storage.Expiry
	deletions    int // since the last flush

	gateways map[uint32]bool // that removed readings have named
	rows     []columns.Row   // buffer

	notSealed error // for which expired rows may be in the active window again; nil: none
}

// An expiredDevice is a device with expired readings.
type expiredDevice struct {
	name     vitals.Name
	upToMs   int64 // readings before this time are deleted
	readings int64 // their number

	damaged bool // some cannot be read, and are not counted

	// endMs is the time in the key at which the deleted range ends, or, if toNext is set, upToMs is,
	// and the range is extended to the next segment. If a range ends in a damaged block, readers
	// come across that block.
	endMs  int64
	toNext bool
}

func (e *expirer) runAndSweep(ctx context.Context) error {
	if e.s.readOnly {
		return ErrReadOnly
	}
	leave, ok := e.s.maintenance.join() // Close waits
	if !ok {
		return storage.ErrClosed
	}
	defer leave()
	if err := e.run(ctx); err != nil {
		return err
	}
	return e.s.sweepIfDue(ctx)
}

func (e *expirer) run(ctx context.Context) error {
	if err := e.seal(); err != nil {
		return err
	}
	var after []byte // the key from which to continue
	for more := true; more; {
		begun := time.Now()
		var found []expiredDevice
		var err error
		if found, after, more, err = e.find(ctx, after); err != nil {
			return err
		}
		if err := e.remove(found); err != nil {
			return err
		}
		e.done.More = more && e.done.Readings >= e.atMost
		more = more && !e.done.More
		if e.deletions >= maxDeletions || !more && e.deletions > 0 {
			e.deletions = 0
			if err := e.s.flush(ctx); err != nil {
				return err
			}
		}
		if err := e.pause(ctx, (expireShare-1)*time.Since(begun)); err != nil && more {
			return err
		}
	}
	return e.notSealed
}

// seal seals the windows if they have expired readings.
func (e *expirer) seal() error {
	s := e.s
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.mu.Lock()
	err := s.alarm.reportedErr()
	if s.closed.Load() {
		err = storage.ErrClosed
	}
	st := s.settler
	has := st.active.OldestUnixMs() < e.beforeUnixMs || st.frozen != nil && st.frozen.OldestUnixMs() < e.beforeUnixMs
	s.mu.Unlock()
	if err != nil || !has {
		return err
	}
	if err := s.sealAll(); err != nil {
		return err
	}
	if isFault(s.notSealed) {
		e.notSealed = s.notSealed
	}
	return nil
}

// pause waits for d, or until ctx ends or the store is closed.
func (e *expirer) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.s.maintenance.ctx.Done():
		return storage.ErrClosed
	}
}

// find visits the next devices, starting with the record key from. It returns those with
// expired readings, and the key from which to continue.
func (e *expirer) find(ctx context.Context, from []byte) (found []expiredDevice, next []byte, more bool, err error) {
	v, err := e.s.enter(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	defer e.s.views.release(v)
	names, err := e.devices(v, from)
	if err != nil {
		return nil, nil, false, err
	}
	it, err := v.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		return nil, nil, false, corrupt(err)
	}
	defer func() {
		// The error of Close is that of the last read, which was handled.
		_ = it.Close()
	}()
	readings := int64(0)
	most := min(expireReadings, e.atMost-e.done.Readings)
	for i := range names {
		if readings >= most {
			// The last device may have more readings than were counted.
			return found, layout.AppendRecordKey(nil, &names[i]), true, nil
		}
		x := expiredDevice{name: names[i]}
		if err := e.count(it, &x, most-readings); err != nil {
			return nil, nil, false, err
		}
		if readings += x.readings; x.readings > 0 || x.damaged {
			found = append(found, x)
		}
		if x.upToMs < e.beforeUnixMs {
			return found, layout.AppendRecordKey(nil, &x.name), true, nil // the same device again
		}
	}
	if len(names) < expireDevices {
		return found, nil, false, nil
	}
	return found, append(layout.AppendRecordKey(nil, &names[len(names)-1]), 0), true, nil
}

// devices returns the names of the next devices, starting with the record key from, at most
// expireDevices of them. If a record is damaged, it finds them in the table in memory.
func (e *expirer) devices(v *view, from []byte) (names []vitals.Name, err error) {
	sc, err := newDeviceScanner(v)
	if err != nil {
		return nil, corrupt(err)
	}
	for ok := sc.first(from); ok; ok = sc.next() {
		if names = append(names, sc.name); len(names) == expireDevices {
			break
		}
	}
	if err = sc.close(); !errors.Is(err, storage.ErrCorrupt) {
		return names, err
	}
	e.s.foundDamage("records of devices are damaged", err)
	names = names[:0]
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	var key []byte
	for _, name := range e.s.settler.table.All() {
		if key = layout.AppendRecordKey(key[:0], &name); bytes.Compare(key, from) < 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(names, name, func(a, b vitals.Name) int { return a.Compare(&b) })
		if i < expireDevices {
			names = slices.Insert(names, i, name)
			names = names[:min(len(names), expireDevices)]
		}
	}
	return names, nil
}

// count counts the expired readings of x, up to most. It does not count those of segments that
// cannot be read, but they are removed if all of them have expired.
func (e *expirer) count(it *pebble.Iterator, x *expiredDevice, most int64) error {
	x.upToMs, x.endMs = e.beforeUnixMs, e.beforeUnixMs
	start, end := layout.AppendSegmentKey(nil, &x.name, 0), layout.AppendSegmentKey(nil, &x.name, uint64(e.beforeUnixMs))
	var (
		after       int64       // readings after damage
		firstAfter  int64       // their first time
		endAfter    int64       // the time in the key of their first segment
		last        = int64(-1) // the time in the key of the last segment
		damaged     error
		part, found bool // the iterator is at a segment of which some readings stay
	)
	gap, err := walkSegments(it, start, end, func(back bool) bool {
		if found = bytes.Compare(it.Key(), end) >= 0; found {
			return false
		}
		last = max(last, layout.SegmentKeyTime(it.Key()))
		h, err := columns.SegmentHeader(it.Value(), nil)
		if err != nil {
			damaged = seal.Error(&x.name, layout.SegmentKeyTime(it.Key()), err)
			return true
		}
		for _, number := range h.Gateways {
			e.gateways[number] = true
		}
		if back {
			after, firstAfter, endAfter = after+int64(h.Count), h.FirstUnixMs, layout.SegmentKeyTime(it.Key())
			return true
		}
		if part = x.readings+int64(h.Count) > most; !part {
			x.readings += int64(h.Count)
		}
		return !part
	})
	if err != nil {
		return err
	}
	if damaged = cmp.Or(gap, damaged); damaged != nil {
		x.damaged = true
		e.s.foundDamage("expired readings of a device are damaged: they are not counted, and removed when those after them have expired, too", fmt.Errorf("device %s: %w", x.name, damaged))
	}
	if x.readings+after > most { // remove what comes before first
		x.upToMs, x.endMs = firstAfter, endAfter
		return nil
	}
	x.readings += after
	if !part && !found {
		found = it.SeekGE(end)
		if err := corrupt(it.Error()); err != nil {
			if x.endMs = last + 1; e.allExpired(&x.name) {
				return ignoreDamage(err) // it is that of another device, or was reported
			}
			return e.skip(x, err)
		}
		x.toNext = found && gap != nil
	}
	if !part && !found {
		return nil
	}
	return e.countPart(it, x, most)
}

// countPart counts the expired readings in the segment at an iterator's position.
func (e *expirer) countPart(it *pebble.Iterator, x *expiredDevice, most int64) error {
	if !seal.IsOf(it, layout.AppendSegmentPrefix(nil, &x.name)) {
		return nil
	}
	h, err := columns.SegmentHeader(it.Value(), nil)
	switch {
	case err != nil:
		return e.skip(x, seal.Error(&x.name, layout.SegmentKeyTime(it.Key()), err))
	case h.FirstUnixMs >= e.beforeUnixMs:
		return nil
	}
	if e.rows, err = seal.Decode(it, &x.name, e.rows[:0]); err != nil {
		return e.skip(x, err)
	}
	expired, _ := seal.Find(e.rows, e.beforeUnixMs)
	if left := most - x.readings; int64(expired) > left {
		expired = int(left)
		x.upToMs, x.endMs = e.rows[expired].TimeUnixMs, e.rows[expired].TimeUnixMs
	}
	for _, number := range h.Gateways {
		e.gateways[number] = true
	}
	x.readings += int64(expired)
	return nil
}

// allExpired reports whether all readings of a device that are in segments have expired.
func (e *expirer) allExpired(name *vitals.Name) bool {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	number, ok := e.s.settler.table.Find(name)
	return !ok || e.s.settler.table.At(number).SealedUnixMs < e.beforeUnixMs
}

// skip reports that expired readings of x stay because their segment is damaged. It returns
// other errors.
func (e *expirer) skip(x *expiredDevice, err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	e.s.foundDamage("readings of a device are damaged: they stay until all readings beside them have expired", fmt.Errorf("device %s: %w", x.name, err))
	return nil
}

// remove deletes the readings of the devices found, in one batch. Meanwhile, no window is
// sealed.
func (e *expirer) remove(found []expiredDevice) error {
	if len(found) == 0 {
		return nil
	}
	s := e.s
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	r, err := s.removeExpired(b, found)
	if err != nil {
		return joinClose(err, b)
	}
	total := s.readings.Load() - r.readings
	if r.uncounted {
		if err := b.Set([]byte(layout.UncountedKey), nil, nil); err != nil {
			return joinClose(err, b)
		}
	}
	if err := setReadings(b, total); err != nil {
		return joinClose(err, b)
	}
	if err := b.Set([]byte(layout.SweepKey), nil, nil); err != nil {
		return joinClose(err, b)
	}
	if err := s.commitAndPublish(b); err != nil {
		return err
	}
	if !s.sweepDue {
		s.sweepDue, s.sweepOf = true, map[uint32]bool{}
	}
	if s.sweepOf != nil {
		maps.Copy(s.sweepOf, e.gateways)
	}
	if r.uncounted {
		s.sweepOf = nil // any gateway
	}
	clear(e.gateways)
	s.readings.Store(total)
	for i := range r.devices {
		x := &r.devices[i]
		if x.gone {
			s.settler.table.Remove(x.name)
			e.done.Devices++
		} else {
			s.settler.table.At(x.number).Record = x.after
		}
	}
	s.publishDeviceCount()
	e.deletions += len(r.devices)
	e.done.Readings += r.readings
	s.counters.expiredReadings.Add(r.readings)
	s.counters.expiredDevices.Add(r.gone)
	return nil
}

// A removal is what a batch of Expire removes.
type removal struct {
	devices  []removedDevice
	readings int64
	gone     int64 // devices

	uncounted bool // there are further readings, which cannot be read
}

// A removedDevice is a device with readings that a batch removes.
type removedDevice struct {
	name   *vitals.Name
	number uint32
	after  layout.Record // its state without them
	gone   bool          // it has no others

	readings int64 // their number, which may have changed since they were found

	uncounted bool // there are further readings, which cannot be read
}

// removeExpired adds the removal of the readings of the devices found to b. s.sealing and s.mu
// must be held.
func (s *Store) removeExpired(b *pebble.Batch, found []expiredDevice) (r removal, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		return r, corrupt(err)
	}
	for i := range found {
		x := &found[i]
		number, ok := s.settler.table.Find(&x.name)
		if !ok {
			continue // it was erased meanwhile
		}
		d := removedDevice{name: &x.name, number: number, after: s.settler.table.At(number).Record}
		if err = s.removeExpiredOf(b, it, x, &d); err != nil {
			break
		}
		r.devices = append(r.devices, d)
		r.readings += d.readings
		r.uncounted = r.uncounted || d.uncounted
		if d.gone {
			r.gone++
		}
	}
	_ = it.Close() // its error is that of the last read, which was handled
	return r, err
}

// updateFromWindows updates the latest values of a device with its rows in windows, and reports
// whether it has any. s.mu must be held.
func (s *Store) updateFromWindows(name *vitals.Name, d *layout.Record) (has bool) {
	for _, w := range []*memory.Window{s.settler.active, s.settler.frozen} {
		if w != nil {
			has = w.View().Update(name, d) || has
		}
	}
	return has
}

// removeExpiredOf adds the removal of a device's expired readings to b, and updates d. Expired
// readings that have arrived since the windows were sealed stay until the next Expire.
func (s *Store) removeExpiredOf(b *pebble.Batch, it *pebble.Iterator, x *expiredDevice, d *removedDevice) error {
	start, end := layout.AppendSegmentKey(nil, &x.name, 0), layout.AppendSegmentKey(nil, &x.name, uint64(x.endMs))
	switch {
	case d.after.SealedUnixMs < x.upToMs:
		end = layout.AppendSegmentsEnd(nil, &x.name)
	case x.toNext:
		end = layout.AppendSegmentKey(nil, &x.name, uint64(x.upToMs))
		if it.SeekGE(end) && seal.IsOf(it, end[:len(end)-8]) {
			end = bytes.Clone(it.Key())
		}
	}
	n, unread, err := countSegments(it, start, end)
	if err != nil {
		return err
	}
	d.readings, d.uncounted = n, unread != nil
	for s := range vitals.NumSigns {
		if d.after.Known&(1<<s) != 0 && d.after.LatestUnixMs[s] < x.upToMs {
			d.after.Forget(1 << s)
		}
	}
	expired := d.after.NewestUnixMs < x.upToMs
	if expired {
		d.after.NewestUnixMs = 0
	}
	if has := s.updateFromWindows(&x.name, &d.after); expired && !has {
		d.gone = true
		for _, r := range purge.DeviceRanges(&x.name) {
			if err := b.DeleteRange(r.Start, r.End, nil); err != nil {
				return err
			}
		}
		return nil
	}
	if err := b.DeleteRange(start, end, nil); err != nil {
		return err
	}
	if d.after.SealedUnixMs < x.upToMs {
		d.after.SealedUnixMs, d.after.Smalls = layout.NoSegment, 0
		return seal.SetRecord(b, &x.name, &d.after)
	}
	if it.SeekGE(end) && seal.IsOf(it, end[:len(end)-8]) {
		rows, err := seal.Decode(it, &x.name, nil)
		if err == nil && rows[0].TimeUnixMs < x.upToMs {
			i, _ := seal.Find(rows, x.upToMs)
			d.readings += int64(i)
			value, err := seal.Encode(&x.name, rows[i:])
			if err != nil {
				return err
			}
			if err := b.Set(bytes.Clone(it.Key()), value, nil); err != nil {
				return err
			}
		}
	} else if err := ignoreDamage(corrupt(it.Error())); err != nil {
		return err
	}
	if err := s.resize(it, x, &d.after); err != nil {
		return err
	}
	return seal.SetRecord(b, &x.name, &d.after)
}

// resize sets the sizes of a device's last segments from their headers, as far as they are
// small, as they will be after the removal of its expired readings.
func (s *Store) resize(it *pebble.Iterator, x *expiredDevice, d *layout.Record) error {
	var sizes []uint16 // of the last segments, the last one first
	prefix := layout.AppendSegmentPrefix(nil, &x.name)
	for ok := it.SeekLT(layout.AppendSegmentsEnd(nil, &x.name)); ok && seal.IsOf(it, prefix) && len(sizes) < layout.MaxSmall; ok = it.Prev() {
		if layout.SegmentKeyTime(it.Key()) < x.upToMs {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return corrupt(err)
		}
		h, err := columns.SegmentHeader(value, nil)
		n := h.Count
		if err == nil && h.FirstUnixMs < x.upToMs {
			var rows []columns.Row
			if rows, err = seal.Decode(it, &x.name, nil); err == nil {
				i, _ := seal.Find(rows, x.upToMs)
				n = len(rows) - i
			}
		}
		if err != nil || n >= s.options.segmentRows/2 {
			break
		}
		sizes = append(sizes, uint16(n))
	}
	slices.Reverse(sizes)
	d.Smalls = uint8(copy(d.Small[:], sizes))
	return ignoreDamage(corrupt(it.Error()))
}

// NewestUnixMs returns the newest times of all devices, in no particular order.
func (s *Store) NewestUnixMs(ctx context.Context) ([]int64, error) {
	if s.readOnly {
		return nil, ErrReadOnly
	}
	all := make([]int64, 0, s.deviceCount.Load())
	for i, more := 0, true; more; i++ {
		err := ctx.Err()
		if err == nil {
			all, more, err = s.newestOfChunk(all, i)
		}
		if err != nil {
			return nil, fmt.Errorf("read newest times: %w", err)
		}
	}
	return all, nil
}

// newestOfChunk appends the newest times of the devices in chunk i of the table. Append
// waits meanwhile.
func (s *Store) newestOfChunk(all []int64, i int) (_ []int64, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, false, storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return nil, false, err
	}
	t := s.settler.table
	first, end := chunk(t, i)
	for n := first; n < end; n++ {
		if ms := t.At(n).NewestUnixMs; ms >= 0 {
			all = append(all, ms)
		}
	}
	return all, end < t.Assigned(), nil
}

// EstimateReadings returns the approximate number of readings: readings that complete others
// in memory are counted twice until they are sealed.
func (s *Store) EstimateReadings(ctx context.Context) (int64, error) {
	v, err := s.enter(ctx)
	if err != nil {
		return 0, fmt.Errorf("count readings: %w", err)
	}
	defer s.views.release(v)
	n := s.readings.Load()
	for _, w := range v.windows {
		n += int64(w.Rows())
	}
	return n, nil
}
