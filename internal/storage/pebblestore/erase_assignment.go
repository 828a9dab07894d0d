package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How an assignment is erased
//
// The steps are those of an erased device. In step 2, the windows are sealed without the
// readings in question, and one batch deletes the segments that have any, and the device's
// record, and writes them again without. Range deletions come before the new values: they are
// dropped exactly when the earlier values are, see purge.Range.
//
// A segment that cannot be read, and may have such readings, cannot be divided. Then nothing is
// removed; only the whole device can be erased.

// EraseAssignment implements [storage.Remover]. It is permanent as [Store.Erase] is.
func (s *Store) EraseAssignment(a storage.Assignment) (storage.Erasure, error) {
	return s.EraseAssignmentRecorded(a, func(storage.Erasure) error { return nil })
}

// EraseAssignmentRecorded is [Store.EraseAssignment] for a caller that keeps a record, as
// [Store.EraseRecorded] is for one of devices.
func (s *Store) EraseAssignmentRecorded(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure, error) {
	find := func() (e storage.Erasure, err error) {
		stored, err := s.assignment(&a)
		if err == nil && stored == nil {
			err = storage.ErrNotAssigned
		}
		if err != nil {
			return e, err
		}
		e.Device = a.Device
		e.Subject, e.FromUnixMs, e.ToUnixMs = stored.Subject, stored.FromUnixMs, stored.ToUnixMs
		return e, nil
	}
	e, err := s.erase(record, func(in *intent) (bool, error) {
		stored, err := s.assignment(&a)
		return in.ofAssignment() && in.Device == a.Device && in.Subject == a.Subject && in.FromUnixMs == a.FromUnixMs && stored == nil, err
	}, find)
	if err != nil {
		return e, fmt.Errorf("erase assignment of device %s: %w", a.Device, err)
	}
	return e, nil
}

// assignment returns the stored assignment with the device, subject and beginning of a, or nil.
func (s *Store) assignment(a *storage.Assignment) (*storage.Assignment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alarm.reportedErr(); err != nil {
		return nil, err
	}
	return s.assignmentLocked(a)
}

func (s *Store) assignmentLocked(a *storage.Assignment) (*storage.Assignment, error) {
	all, err := assign.Of(s.db, &a.Device)
	if i := slices.IndexFunc(all, func(b storage.Assignment) bool { return b.Subject == a.Subject && b.FromUnixMs == a.FromUnixMs }); i >= 0 {
		return &all[i], err
	}
	return nil, err
}

// A remainder is what a device has without the readings of an erased assignment.
type remainder struct {
	device    layout.Record
	gone      bool  // it has no readings
	erased    int64 // readings that are removed from segments
	threshold int   // below which a segment is small
}

// removeAssignedLocked deletes the keys of an assignment, and of what its device measured during
// it. before is the current view. s.sealing and s.mu must be held.
func (s *Store) removeAssignedLocked(before *view, in *intent) error {
	// The end may have been set again since the intent was written.
	a, err := s.assignmentLocked(&storage.Assignment{Device: in.Device, Subject: in.Subject, FromUnixMs: in.FromUnixMs})
	if err != nil {
		return err
	}
	if a != nil {
		in.ToUnixMs = a.ToUnixMs
	} else { // a crash came between the removal and the update of the intent
		a = &storage.Assignment{Device: in.Device, Subject: in.Subject, FromUnixMs: in.FromUnixMs, ToUnixMs: in.ToUnixMs}
	}
	s.freeze()
	only := &storage.Range{Device: in.Device, FromUnixMs: a.FromUnixMs, ToUnixMs: a.ToUnixMs}
	c := s.newSealer(s.settler.frozen)
	c.locked = true
	c.Keep = func(name *vitals.Name, rows []columns.Row) ([]columns.Row, bool) {
		if *name == in.Device {
			from, _ := seal.Find(rows, only.FromUnixMs)
			to, _ := seal.Find(rows, only.ToUnixMs)
			rows = slices.Delete(rows, from, to)
		}
		return rows, true
	}
	number, known := s.settler.table.Find(&in.Device)
	r := remainder{threshold: s.options.segmentRows / 2}
	left := int64(0)
	c.finish = func(b *pebble.Batch) error {
		if known {
			r.device = s.settler.table.At(number).Record
			if err := s.removeRows(b, before, only, &r); err != nil {
				return err
			}
		}
		left = s.readings.Load() - r.erased
		if err := setReadings(b, left); err != nil {
			return err
		}
		return assign.Remove(b, a)
	}
	c.ended = func() {
		s.readings.Store(left)
		switch d := s.settler.table; {
		case !known:
		case r.gone:
			d.Remove(&in.Device)
		default:
			d.Active.Moved(d.At(number).NewestUnixMs, r.device.NewestUnixMs)
			d.At(number).Record = r.device
		}
	}
	if err := c.run(); err != nil {
		s.startSealing() // try again
		return err
	}
	s.publishDeviceCount()
	return nil
}

// removeRows adds the removal of a device's readings in a range to b.
func (s *Store) removeRows(b *pebble.Batch, before *view, in *storage.Range, r *remainder) error {
	if err := s.cutSegments(b, in, r); err != nil {
		return err
	}
	if err := s.updateLatest(before, in, r); err != nil {
		return err
	}
	ranges := purge.DeviceRanges(&in.Device)
	if r.gone = r.device.NewestUnixMs < 0; !r.gone {
		ranges = ranges[1:] // the record
	}
	for _, k := range ranges {
		if err := b.DeleteRange(k.Start, k.End, nil); err != nil {
			return err
		}
	}
	if r.gone {
		return nil
	}
	return seal.SetRecord(b, &in.Device, &r.device)
}

// cutSegments adds to b the removal of the rows of a range from a device's segments, and sets what
// r.device has of the segments that are left.
func (s *Store) cutSegments(b *pebble.Batch, in *storage.Range, r *remainder) error {
	k := purge.DeviceRanges(&in.Device)[0]
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: k.Start, UpperBound: k.End})
	if err != nil {
		return corrupt(err)
	}
	var first, last []byte // keys of the segments that have such rows
	var parts [][]columns.Row
	var sizes []int // of the segments that are left; 0: not known
	sealedMs := int64(layout.NoSegment)
	keep := func(endMs int64, rows int) { sealedMs, sizes = endMs, append(sizes, rows) }
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		endMs := layout.SegmentKeyTime(it.Key())
		h, err := columns.SegmentHeader(value, nil)
		if endMs < in.FromUnixMs || sealedMs >= in.ToUnixMs-1 || err == nil && h.FirstUnixMs >= in.ToUnixMs {
			keep(endMs, h.Count)
			continue
		}
		rows, err := seal.Decode(it, &in.Device, nil)
		if err != nil {
			return joinClose(err, it)
		}
		from, _ := seal.Find(rows, in.FromUnixMs)
		to, _ := seal.Find(rows, in.ToUnixMs)
		if from == to {
			keep(endMs, len(rows))
			continue
		}
		r.erased += int64(to - from)
		if first == nil {
			first = bytes.Clone(it.Key())
		}
		last = append(last[:0], it.Key()...)
		for _, part := range [][]columns.Row{rows[:from], rows[to:]} {
			if len(part) > 0 {
				keep(part[len(part)-1].TimeUnixMs, len(part))
				parts = append(parts, part)
			}
		}
	}
	if err := it.Close(); err != nil {
		return corrupt(err)
	}
	r.device.SealedUnixMs, r.device.Smalls = sealedMs, 0
	n := len(sizes)
	for n > 0 && len(sizes)-n < layout.MaxSmall && sizes[n-1] > 0 && sizes[n-1] < r.threshold {
		n--
	}
	for _, rows := range sizes[n:] {
		r.device.Small[r.device.Smalls] = uint16(rows)
		r.device.Smalls++
	}
	if first == nil {
		return nil
	}
	if err := b.DeleteRange(first, append(last, 0), nil); err != nil {
		return err
	}
	for _, rows := range parts {
		endMs := rows[len(rows)-1].TimeUnixMs
		value, err := seal.Encode(&in.Device, rows)
		if err != nil {
			return err
		}
		if err := b.Set(layout.AppendSegmentKey(nil, &in.Device, uint64(endMs)), value, nil); err != nil {
			return err
		}
	}
	return nil
}

// updateLatest sets the newest time and the latest values of r.device to those without the rows of
// a range. The newest time is negative if there are no others.
func (s *Store) updateLatest(v *view, in *storage.Range, r *remainder) error {
	d := &r.device
	within := func(ms int64) bool { return in.FromUnixMs <= ms && ms < in.ToUnixMs }
	lost := uint8(0)
	for sg := range vitals.NumSigns {
		if d.Known&(1<<sg) != 0 && within(d.LatestUnixMs[sg]) {
			lost |= 1 << sg
		}
	}
	d.Forget(lost)
	if lost == 0 && !within(d.NewestUnixMs) {
		return nil
	}
	// What was lost was the latest, so what replaces it is before the range.
	earlier := layout.Record{NewestUnixMs: -1}
	sc := s.newRowScanner(s.maintenance.ctx, v, &in.Device, 0, in.FromUnixMs, true, columns.MaxRows)
	for lost&^earlier.Known != 0 || earlier.NewestUnixMs < 0 {
		rows, err := sc.next(columns.MaxRows)
		if err != nil {
			return errors.Join(err, sc.close())
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			earlier.Update(rows[i].TimeUnixMs, &rows[i].Values, rows[i].UTCOffset)
		}
	}
	for sg := range vitals.NumSigns {
		if lost&earlier.Known&(1<<sg) != 0 {
			d.Known |= 1 << sg
			d.Latest[sg], d.LatestUnixMs[sg], d.Offsets[sg] = earlier.Latest[sg], earlier.LatestUnixMs[sg], earlier.Offsets[sg]
		}
	}
	if within(d.NewestUnixMs) {
		d.NewestUnixMs = earlier.NewestUnixMs
	}
	return sc.close()
}
