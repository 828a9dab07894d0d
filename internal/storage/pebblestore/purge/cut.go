package purge

import (
	"bytes"
	"errors"
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
// A range of keys can be deleted without being read. So a blind cut, which begins at the first reading,
// also removes segments that cannot be read, if all of their readings come before its end: they are not
// counted. If a damaged block ends the walk, it continues from the other end: what lies between two damaged
// blocks is not counted. A damaged segment that may have readings on both sides of the end stays. A cut
// that is not blind fails if it meets damage.
type cut struct {
	device       *vitals.Name
	fromMs, toMs int64 // toMs becomes earlier if most is reached
	most         int64 // readings
	small        int   // the number of readings below which a segment is small
	blind        bool

	others []columns.Row // that stay, and are neither in segments nor in windows

	gateways map[uint32]bool // that the removed readings name, and perhaps others

	readings int64 // that are removed from segments
	unread   error // if not nil, further readings are removed, which cannot be read
	stays    error // if not nil, a segment stays because it cannot be read

	first, last []byte // keys of the segments that are removed, nil if there are none
	parts       [][]columns.Row
	prefix      []byte
}

// segments adds the removal from segments to b, and sets what d has of the segments that are left. The
// iterator is over all segments as they are.
func (c *cut) segments(it *pebble.Iterator, b *pebble.Batch, d *layout.Record) error {
	c.prefix = layout.AppendSegmentPrefix(nil, c.device)
	if err := c.walk(it); err != nil {
		return err
	}
	if c.unread != nil {
		if c.first = c.key(0); bytes.Compare(c.last, c.key(c.toMs-1)) < 0 {
			c.last = c.key(c.toMs - 1)
		}
	}
	if c.first == nil {
		return nil
	}
	if err := b.DeleteRange(c.first, append(bytes.Clone(c.last), 0), nil); err != nil {
		return err
	}
	for _, rows := range c.parts {
		value, err := seal.Encode(c.device, rows)
		if err != nil {
			return err
		}
		if err := b.Set(c.key(rows[len(rows)-1].TimeUnixMs), value, nil); err != nil {
			return err
		}
	}
	return c.resize(it, d)
}

// within reports whether a reading with a time is removed.
func (c *cut) within(ms int64) bool { return c.fromMs <= ms && ms < c.toMs }

// key returns the key of a segment whose last reading has a time.
func (c *cut) key(ms int64) []byte { return layout.AppendSegmentKey(nil, c.device, uint64(ms)) }

// walk finds what is removed.
func (c *cut) walk(it *pebble.Iterator) error {
	next := c.key(c.fromMs)
	for ok := it.SeekGE(next); ok && seal.IsOf(it, c.prefix); ok = it.Next() {
		if more, err := c.segment(it); !more || err != nil {
			return err
		}
		next = append(bytes.Clone(it.Key()), 0)
	}
	err := damage.Wrap(it.Error())
	if !c.blind || !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	return c.walkBack(it, next)
}

// walkBack continues after a damaged block: from the end of the cut back to the key next.
func (c *cut) walkBack(it *pebble.Iterator, next []byte) error {
	end := c.key(c.toMs)
	after, firstMs := int64(0), c.toMs
	for ok := it.SeekLT(end); ok && bytes.Compare(it.Key(), next) >= 0; ok = it.Prev() {
		h, err := columns.SegmentHeader(it.Value(), nil)
		if err != nil {
			c.unread = seal.Error(c.device, layout.SegmentKeyTime(it.Key()), err)
			continue
		}
		after, firstMs = after+int64(h.Count), h.FirstUnixMs
		c.name(h.Gateways)
		c.take(next, it.Key())
	}
	switch gap := damage.Wrap(it.Error()); {
	case errors.Is(gap, storage.ErrCorrupt):
		c.unread = gap
	case gap != nil:
		return gap
	}
	if after > c.most-c.readings {
		c.toMs = firstMs // remove what comes before first
		c.last = c.key(firstMs - 1)
		return nil
	}
	c.readings += after
	if it.SeekGE(end) && seal.IsOf(it, c.prefix) {
		_, err := c.segment(it)
		return err
	}
	err := damage.Wrap(it.Error())
	if errors.Is(err, storage.ErrCorrupt) {
		c.stays, err = err, nil
	}
	return err
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
	case err == nil && h.FirstUnixMs >= c.fromMs && endMs < c.toMs && int64(h.Count) <= c.most-c.readings:
		c.readings += int64(h.Count)
		c.name(h.Gateways)
		c.take(it.Key(), it.Key())
		return true, nil
	case err != nil && c.blind && endMs < c.toMs:
		c.unread = seal.Error(c.device, endMs, err)
		return true, nil
	}
	rows, err := seal.Decode(it, c.device, nil)
	if c.blind && errors.Is(err, storage.ErrCorrupt) {
		c.stays = err
		return false, nil
	}
	if err != nil {
		return false, err
	}
	from, _ := seal.Find(rows, c.fromMs)
	to, _ := seal.Find(rows, c.toMs)
	if left := c.most - c.readings; int64(to-from) > left {
		to = from + int(left)
		c.toMs = rows[to].TimeUnixMs
	}
	if from < to {
		c.readings += int64(to - from)
		c.name(h.Gateways)
		c.take(it.Key(), it.Key())
		for _, part := range [][]columns.Row{rows[:from], rows[to:]} {
			if len(part) > 0 {
				c.parts = append(c.parts, part)
			}
		}
	}
	return endMs < c.toMs, nil
}

func (c *cut) name(gateways []uint32) {
	for _, number := range gateways {
		c.gateways[number] = true
	}
}

// take extends the range of keys that are removed.
func (c *cut) take(first, last []byte) {
	if c.first == nil {
		c.first = bytes.Clone(first)
	}
	if bytes.Compare(c.last, last) < 0 {
		c.last = bytes.Clone(last)
	}
}

// resize sets the time of a device's last segment, and the sizes of its last segments as far as they are
// small.
func (c *cut) resize(it *pebble.Iterator, d *layout.Record) error {
	if c.blind && d.SealedUnixMs < c.toMs {
		c.stays = nil // what could not be read belongs to another device
		d.SealedUnixMs, d.Sizes = layout.NoSegment, layout.Sizes{}
		return nil
	}
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
			for _, rows := range slices.Backward(c.parts) {
				add(rows[len(rows)-1].TimeUnixMs, len(rows))
			}
			ok = it.SeekLT(c.first)
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
	err := damage.Wrap(it.Error())
	if err != nil && !(c.blind && errors.Is(err, storage.ErrCorrupt)) {
		return err
	}
	if err == nil || lastMs != layout.NoSegment {
		d.SealedUnixMs = lastMs
	}
	slices.Reverse(sizes)
	d.Small = [layout.MaxSmall]uint16{}
	d.Smalls = uint8(copy(d.Small[:], sizes))
	return nil
}

// record updates the record of the device after segments was called, and adds it to b. If the device has no
// readings left, neither in segments nor in windows, it adds the removal of all keys of the device instead,
// and gone is true.
func (c *cut) record(it *pebble.Iterator, b *pebble.Batch, d *layout.Record, windows []*memory.Window) (gone bool, err error) {
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
	if c.fromMs > 0 && (lost != 0 || d.NewestUnixMs < 0) {
		if err := c.replace(it, d, lost); err != nil {
			return false, err
		}
	}
	for _, w := range windows {
		w.View().Update(c.device, d)
	}
	for i := range c.others {
		d.Update(c.others[i].TimeUnixMs, &c.others[i].Values, c.others[i].UTCOffset)
	}
	ranges := DeviceRanges(c.device)
	if gone = d.NewestUnixMs < 0; !gone {
		if ranges = ranges[1:]; c.blind { // earlier values of the record need not go
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

// replace sets latest values that were lost, and the newest time if it is negative, from the readings before
// the cut: those that were removed had the latest ones, so there are none after it.
func (c *cut) replace(it *pebble.Iterator, d *layout.Record, lost uint32) error {
	earlier := layout.Record{NewestUnixMs: -1}
	start := c.key(c.fromMs)
	ok := it.SeekGE(start) && seal.IsOf(it, c.prefix) || it.Error() == nil && it.SeekLT(start)
	for ; ok && seal.IsOf(it, c.prefix) && (lost&^earlier.Known != 0 || earlier.NewestUnixMs < 0); ok = it.Prev() {
		rows, err := seal.Decode(it, c.device, nil)
		if err != nil {
			return err
		}
		n, _ := seal.Find(rows, c.fromMs)
		for i := range rows[:n] {
			earlier.Update(rows[i].TimeUnixMs, &rows[i].Values, rows[i].UTCOffset)
		}
	}
	for sg := range vitals.MaxSigns {
		if lost&earlier.Known&(1<<sg) != 0 {
			d.Known |= 1 << sg
			d.Latest[sg], d.LatestUnixMs[sg], d.Offsets[sg] = earlier.Latest[sg], earlier.LatestUnixMs[sg], earlier.Offsets[sg]
		}
	}
	if d.NewestUnixMs < 0 {
		d.NewestUnixMs = earlier.NewestUnixMs
	}
	return damage.Wrap(it.Error())
}
