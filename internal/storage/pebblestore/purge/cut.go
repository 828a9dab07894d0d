package purge

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A cut removes the readings of one device with times from fromMs to before toMs. It reads the headers of
// the segments that have only such readings, and divides those that have others, too.
//
// # Beside damage
//
// A range of keys can be deleted without being read. So a cut that begins with the first reading and meets a segment
// that cannot be read removes all segments that end before its own end, without counting those that are left. Another
// cut fails, and removes nothing; so does one of values, which must not say that it has removed what it has left.
//
// # Values
//
// A cut with a function strip removes some values of these readings. It writes all segments of the time again, and
// keeps the latest of what is left, so that no segment is read twice.
type cut struct {
	device       *vitals.Name
	fromMs, toMs int64 // toMs becomes earlier if most is reached
	most         int64 // readings
	small        int   // the number of readings below which a segment is small
	ofValues     bool  // it never removes what it cannot read
	rewrites     bool  // earlier values of the device's record must go, too

	strip    func(*columns.Row) (removed bool) // removes values from a row; nil: whole rows are removed
	stripped int64                             // readings of which it has removed some
	kept     layout.Record                     // with strip, of the rows of parts

	others []columns.Row // that stay, and are neither in segments nor in windows

	gateways map[uint32]bool // that the removed readings name, and perhaps others

	readings int64 // that are removed from segments
	unread   error // if not nil, further readings are removed, which cannot be read

	first, last []byte // keys of the segments that are removed, nil if there are none
	parts       []part
	rows        []columns.Row // buffer
	prefix      []byte
}

// A part is what is left of a segment.
type part struct {
	value                []byte
	rows                 int
	endMs, changedUnixMs int64 // time of the last row, and of the last change
}

// keep adds what is left of a segment, unless that is nothing.
func (c *cut) keep(rows []columns.Row) error {
	if len(rows) == 0 {
		return nil
	}
	value, err := seal.Encode(c.device, rows)
	c.parts = append(c.parts, part{value, len(rows), rows[len(rows)-1].TimeUnixMs, columns.ChangedUnixMs(rows)})
	return err
}

// stripper returns the function that removes the values of an erasure from a row.
func stripper(e *storage.Erasure, gateways Gateways) func(*columns.Row) bool {
	if e.Signs == 0 && e.Gateway.IsZero() {
		return nil
	}
	number := gateways.Number(e.Gateway) // 0 if no reading has come through it
	return func(r *columns.Row) bool {
		switch {
		case !e.Gateway.IsZero() && (number == 0 || r.Gateway != number || r.Shared && !e.Shared),
			e.Signs != 0 && r.Values.Present()&e.Signs == 0:
			return false
		}
		r.Values = e.Left(&r.Values)
		return true
	}
}

// stripRows removes values from rows, and returns those that have some left. It overwrites rows.
func (c *cut) stripRows(rows []columns.Row) []columns.Row {
	left := rows[:0]
	for i := range rows {
		r := &rows[i]
		if c.within(r.TimeUnixMs) && c.strip(r) {
			c.stripped++
		}
		if r.Values.IsZero() {
			c.readings++
			continue
		}
		c.kept.Update(r.TimeUnixMs, r.ChangedUnixMs(), &r.Values, r.UTCOffset)
		left = append(left, *r)
	}
	return left
}

// segments adds the removal from segments to b, and sets what d has of the segments that are left. The
// iterator is over all segments as they are.
func (c *cut) segments(it *pebble.Iterator, b *pebble.Batch, d *layout.Record) error {
	c.prefix, c.kept.NewestUnixMs = layout.AppendSegmentPrefix(nil, c.device), -1
	if d.SealedUnixMs == layout.NoSegment || c.toMs <= 0 {
		return nil
	}
	err := c.walk(it, d.SealedUnixMs)
	if c.strip != nil && c.stripped == 0 { // nothing has such a value
		c.first, c.parts = nil, nil
	}
	blind := c.fromMs == 0 && !c.ofValues // so the last segment keeps its key, if it stays
	if blind && errors.Is(err, storage.ErrCorrupt) {
		c.unread, err = err, nil
		c.first, c.last = c.bound(0), c.bound(min(c.toMs-1, d.SealedUnixMs)+1)
	}
	if c.first == nil || err != nil {
		return err
	}
	switch sealedMs := d.SealedUnixMs; {
	case blind && sealedMs < c.toMs:
		d.SealedUnixMs, d.Sizes = layout.NoSegment, layout.Sizes{}
	case c.unread != nil:
		d.Sizes = layout.Sizes{}
	default:
		err = c.resize(it, d)
		if blind && errors.Is(err, storage.ErrCorrupt) {
			d.SealedUnixMs, d.Sizes, err = sealedMs, layout.Sizes{}, nil
		}
	}
	if err != nil {
		return err
	}
	if err := b.DeleteRange(c.first, append(bytes.Clone(c.last), 0), nil); err != nil {
		return err
	}
	for _, p := range c.parts {
		if err := b.Set(layout.AppendSegmentKey(nil, c.device, p.endMs, p.changedUnixMs), p.value, nil); err != nil {
			return err
		}
	}
	return nil
}

// within reports whether a reading with a time is removed.
func (c *cut) within(ms int64) bool { return c.fromMs <= ms && ms < c.toMs }

// bound returns the bound of segments whose last reading has a time.
func (c *cut) bound(ms int64) []byte { return layout.AppendSegmentBound(nil, c.device, uint64(ms)) }

// walk finds what is removed. The last segment ends at lastMs: what follows it may be in a damaged block.
func (c *cut) walk(it *pebble.Iterator, lastMs int64) error {
	for ok := it.SeekGE(c.bound(c.fromMs)); ok && seal.IsOf(it, c.prefix); ok = it.Next() {
		if more, err := c.segment(it); !more || err != nil || layout.SegmentKeyTime(it.Key()) == lastMs {
			return err
		}
	}
	return damage.Wrap(it.Error())
}

// segment removes the segment at an iterator's position, or a part of it, and reports whether the next one
// may have readings to remove.
func (c *cut) segment(it *pebble.Iterator) (more bool, err error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return false, damage.Wrap(err)
	}
	endMs := layout.SegmentKeyTime(it.Key())
	h, err := columns.SegmentHeader(value, nil)
	switch {
	case err == nil && h.FirstUnixMs >= c.toMs:
		return false, nil
	case err == nil && c.strip == nil && h.FirstUnixMs >= c.fromMs && endMs < c.toMs &&
		int64(h.Count) <= c.most-c.readings:
		c.readings += int64(h.Count)
		c.name(h.Gateways)
		c.take(it.Key())
		return true, nil
	}
	rows, err := seal.Decode(it, c.device, c.rows[:0])
	c.rows = rows
	if err != nil {
		return false, err
	}
	from, _ := seal.Find(rows, c.fromMs)
	to, _ := seal.Find(rows, c.toMs)
	if c.strip != nil && from < to {
		c.name(h.Gateways)
		c.take(it.Key())
		return endMs < c.toMs, c.keep(c.stripRows(rows))
	}
	if left := c.most - c.readings; int64(to-from) > left {
		to = from + int(left)
		c.toMs = rows[to].TimeUnixMs
	}
	if from < to {
		c.readings += int64(to - from)
		c.name(h.Gateways)
		c.take(it.Key())
		if err := errors.Join(c.keep(rows[:from]), c.keep(rows[to:])); err != nil {
			return false, err
		}
	}
	return endMs < c.toMs, nil
}

func (c *cut) name(gateways []uint32) {
	for _, number := range gateways {
		c.gateways[number] = true
	}
}

// take adds the segment with a key to those that are removed.
func (c *cut) take(key []byte) {
	if c.first == nil {
		c.first = bytes.Clone(key)
	}
	c.last = bytes.Clone(key)
}

// resize sets the time of a device's last segment, and the sizes of its last segments as far as they are
// small. If the cut begins with the first reading, nothing is left before it.
func (c *cut) resize(it *pebble.Iterator, d *layout.Record) error {
	var sizes []uint16 // the last one first
	lastMs, more := int64(layout.NoSegment), true
	add := func(endMs int64, rows int) {
		lastMs = max(lastMs, endMs)
		if more = more && rows > 0 && rows < c.small && len(sizes) < layout.MaxSmall; more {
			sizes = append(sizes, uint16(rows))
		}
	}
	for ok := it.SeekLT(layout.AppendSegmentsEnd(nil, c.device)); ok && more && seal.IsOf(it, c.prefix); {
		if bytes.Compare(it.Key(), c.last) <= 0 && bytes.Compare(it.Key(), c.first) >= 0 {
			for _, p := range slices.Backward(c.parts) {
				add(p.endMs, p.rows)
			}
			ok = c.fromMs > 0 && it.SeekLT(c.first)
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return damage.Wrap(err)
		}
		h, _ := columns.SegmentHeader(value, nil) // a damaged one is not small
		add(layout.SegmentKeyTime(it.Key()), h.Count)
		ok = it.Prev()
	}
	slices.Reverse(sizes)
	d.SealedUnixMs, d.Sizes = lastMs, layout.Sizes{}
	d.Smalls = uint8(copy(d.Small[:], sizes))
	return damage.Wrap(it.Error())
}

// record updates the record of the device after segments was called, and adds it to b. If the device has no
// readings left, neither in segments nor in windows, it adds the removal of all keys of the device instead,
// and gone is true.
func (c *cut) record(it *pebble.Iterator, b *pebble.Batch, d *layout.Record, windows []*memory.Window) (gone bool,
	err error) {
	lost := uint32(0)
	for sg := range vitals.MaxSigns {
		if d.Known&(1<<sg) != 0 && c.within(d.LatestUnixMs[sg]) {
			lost |= 1 << sg
		}
	}
	d.Forget(lost)
	if c.within(d.NewestUnixMs) {
		d.NewestUnixMs = -1
	}
	adopt(d, &c.kept, lost)
	lost &^= d.Known
	if c.fromMs > 0 && (lost != 0 || d.NewestUnixMs < 0) {
		if err := c.replace(it, d, lost); err != nil {
			return false, err
		}
	}
	if c.rewrites {
		if err := c.forgetArrival(it, d, windows); err != nil {
			return false, err
		}
	}
	for _, w := range windows {
		w.View().Update(c.device, d)
	}
	for i := range c.others {
		r := &c.others[i]
		d.Update(r.TimeUnixMs, r.ChangedUnixMs(), &r.Values, r.UTCOffset)
	}
	ranges := DeviceRanges(c.device)
	if gone = d.NewestUnixMs < 0; !gone {
		if ranges = ranges[1:]; !c.rewrites {
			ranges = nil
		}
	}
	for _, r := range ranges {
		if err := b.DeleteRange(r.Start, r.End, nil); err != nil {
			return gone, err
		}
	}
	if gone {
		return true, nil
	}
	return false, seal.SetRecord(b, c.device, d)
}

// forgetArrival makes the last arrival that of the readings that are left. If a segment cannot be read because
// of damage, it stays.
func (c *cut) forgetArrival(it *pebble.Iterator, d *layout.Record, windows []*memory.Window) error {
	latest := int64(0)
	for ok := it.SeekGE(c.bound(0)); ok && seal.IsOf(it, c.prefix); ok = it.Next() {
		if c.first != nil && bytes.Compare(it.Key(), c.first) >= 0 && bytes.Compare(it.Key(), c.last) <= 0 {
			continue
		}
		latest = max(latest, layout.SegmentKeyChanged(it.Key()))
	}
	if err := damage.Wrap(it.Error()); err != nil {
		if errors.Is(err, storage.ErrCorrupt) {
			return nil
		}
		return err
	}
	for _, p := range c.parts {
		latest = max(latest, p.changedUnixMs)
	}
	for _, w := range windows {
		if rows := w.View().AppendRange(nil, c.device, 0, math.MaxInt64, false, math.MaxInt); len(rows) > 0 {
			latest = max(latest, columns.ChangedUnixMs(rows))
		}
	}
	d.ArrivedUnixMs = latest
	return nil
}

// replace sets latest values that were lost, and the newest time if it is negative, from the readings before
// the cut: those that were removed had the latest ones, so there are none after it.
func (c *cut) replace(it *pebble.Iterator, d *layout.Record, lost uint32) error {
	earlier := layout.Record{NewestUnixMs: -1}
	start := c.bound(c.fromMs)
	ok := it.SeekGE(start) && seal.IsOf(it, c.prefix) || it.Error() == nil && it.SeekLT(start)
	for ; ok && seal.IsOf(it, c.prefix) && (lost&^earlier.Known != 0 || earlier.NewestUnixMs < 0); ok = it.Prev() {
		rows, err := seal.Decode(it, c.device, nil)
		if err != nil {
			return err
		}
		n, _ := seal.Find(rows, c.fromMs)
		for i := range rows[:n] {
			earlier.Update(rows[i].TimeUnixMs, rows[i].ChangedUnixMs(), &rows[i].Values, rows[i].UTCOffset)
		}
	}
	adopt(d, &earlier, lost)
	return damage.Wrap(it.Error())
}

// adopt sets latest values that d has lost, and the newest time if it is negative, to those of from.
func adopt(d, from *layout.Record, lost uint32) {
	for sg := range vitals.MaxSigns {
		if lost&from.Known&(1<<sg) != 0 {
			d.Known |= 1 << sg
			d.Latest[sg], d.LatestUnixMs[sg], d.Offsets[sg] = from.Latest[sg], from.LatestUnixMs[sg], from.Offsets[sg]
		}
	}
	if d.NewestUnixMs < 0 {
		d.NewestUnixMs = from.NewestUnixMs
	}
}
