package seal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	batchBytes   = 256 << 10
	chunkDevices = 1024 // whose states are copied at once
	mergeAt      = 12   // segments
)

// A Table is the table of devices, as a Sealer uses it.
type Table interface {
	// States appends the records of devices by their numbers in the table. They may include readings of
	// the active window, which are durable.
	States(dst []layout.Record, numbers []uint32) ([]layout.Record, error)

	// Publish makes a batch durable that adds a number of readings to the segments, and then sets the
	// states of its devices.
	Publish(b *pebble.Batch, added int64, devices []Sealed) error
}

// A Sealer writes the rows of one window to segments. Nothing else may change segments while it runs.
type Sealer struct {
	Tree        pebble.Reader  // with the segments as they are
	Batch       *pebble.Batch  // an empty one
	Rows        *memory.Window // to which nothing is added
	Table       Table
	SegmentRows int // the largest number of readings of a segment

	// Tidy makes the Sealer merge small segments of the devices of Rows, which has no rows.
	Tidy bool

	OnSealed func(rows int) // is called with the number of rows of a device that have been sealed
	// OnSuperseded is called with the bytes of a device's segments and records that are no longer needed.
	OnSuperseded func(device *vitals.Name, segments, records int)

	OnUnread func(err error)    // is called if a segment cannot be read
	OnFail   func(cause string) // is called if a segment is not what was written

	// Carried has the rows that stay, because they belong into segments that cannot be read. Unread is an
	// error of one of these: see damage.First.
	Carried []Carried
	Unread  error

	it         *pebble.Iterator // over the segments as they were
	superseded int              // bytes of the device's segments that are in Batch
	sealed     []Sealed         // in Batch
	added      int64            // readings that Batch adds
	written    []writtenSegment

	// Buffers.
	named   vitals.Name
	numbers []uint32
	states  []layout.Record
	rows    []columns.Row
	merged  []columns.Row
	again   []columns.Row
	old     []columns.Row
	edits   []segmentEdit
	olds    []segmentTimes
	key     []byte
	value   []byte
}

// A Sealed is what a batch changes in the state of a device.
type Sealed struct {
	Table        uint32 // the device's number in the table
	SealedUnixMs int64
	layout.Sizes
}

// A Carried is a row that stays.
type Carried struct {
	Device uint32 // in the window
	Row    columns.Row
}

// segmentTimes has the times in the key of a segment.
type segmentTimes struct{ lastUnixMs, changedUnixMs int64 }

// A writtenSegment is a segment that must be read back.
type writtenSegment struct {
	device uint32 // in the window
	sum    uint32 // CRC-32C of the value
	segmentTimes
}

// A segmentEdit is a segment with late rows merged into it.
type segmentEdit struct {
	segmentTimes
	rows  []columns.Row
	taken bool // it was merged with others
}

// Run writes the rows to segments, and reads these back through the tree. It returns storage.ErrClosed when
// closing ends.
func (c *Sealer) Run(closing context.Context) (err error) {
	if err := c.openIterator(); err != nil {
		return err
	}
	err = c.segments(closing)
	_ = c.it.Close() // its error is that of the last read, which was handled
	if err != nil {
		return err
	}
	return c.readBack()
}

// segments writes the rows of all devices to segments.
func (c *Sealer) segments(closing context.Context) (err error) {
	for chunk := range slices.Chunk(c.Rows.Sorted(), chunkDevices) {
		if closing.Err() != nil {
			return storage.ErrClosed
		}
		c.numbers = c.numbers[:0]
		for _, device := range chunk {
			c.numbers = append(c.numbers, c.Rows.InTable(device))
		}
		if c.states, err = c.Table.States(c.states[:0], c.numbers); err != nil {
			return err
		}
		for i, device := range chunk {
			if err := c.device(device, &c.states[i]); err != nil {
				return err
			}
			c.OnSealed(c.Rows.RowsOf(device))
			if c.Batch.Len() >= batchBytes {
				if err := c.publish(); err != nil {
					return err
				}
			}
		}
	}
	return c.publish()
}

// publish publishes the batch.
func (c *Sealer) publish() error {
	if c.Batch.Empty() {
		return nil
	}
	if err := c.Table.Publish(c.Batch, c.added, c.sealed); err != nil {
		return err
	}
	c.added, c.sealed = 0, c.sealed[:0]
	c.Batch.Reset()
	return nil
}

// name returns the name of a device in the window. It is valid until the next call.
func (c *Sealer) name(device uint32) *vitals.Name {
	c.named = c.Rows.Name(device)
	return &c.named
}

func (c *Sealer) openIterator() (err error) {
	c.it, err = c.Tree.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix},
		UpperBound: []byte{layout.SegmentPrefix + 1}})
	return damage.Wrap(err)
}

// device adds the segments and the record of a device to the batch.
func (c *Sealer) device(device uint32, d *layout.Record) error {
	name := c.name(device)
	c.rows = c.Rows.AppendAll(c.rows[:0], device)
	c.edits, c.superseded = c.edits[:0], 0
	late, _ := Find(c.rows, d.SealedUnixMs+1)
	if late > 0 {
		c.mergeLate(device, d, c.rows[:late])
	}
	if late < len(c.rows) || c.Tidy {
		if err := c.appendNew(device, d, c.rows[late:]); err != nil {
			return err
		}
	}
	for i := range c.edits {
		if e := &c.edits[i]; !e.taken {
			c.key = layout.AppendSegmentKey(c.key[:0], name, e.lastUnixMs, e.changedUnixMs)
			if err := c.Batch.Delete(c.key, nil); err != nil {
				return err
			}
			if err := c.write(device, e.rows, nil); err != nil {
				return err
			}
		}
	}
	c.sealed = append(c.sealed, Sealed{c.Rows.InTable(device), d.SealedUnixMs, d.Sizes})
	before := c.Batch.Len()
	if err := SetRecord(c.Batch, name, d); err != nil {
		return err
	}
	c.OnSuperseded(name, c.superseded, c.Batch.Len()-before) // the record before was about as long
	return nil
}

// mergeLate merges late rows into the segments to which they belong.
func (c *Sealer) mergeLate(device uint32, d *layout.Record, rows []columns.Row) {
	name := c.name(device)
	for len(rows) > 0 {
		c.key = layout.AppendSegmentBound(c.key[:0], name, uint64(rows[0].TimeUnixMs))
		n := len(rows)
		var err error
		if c.it.SeekGE(c.key) && IsOf(c.it, c.key[:len(c.key)-8]) {
			last := layout.SegmentKeyTime(c.it.Key())
			n, _ = Find(rows, last+1)
			if c.old, err = Decode(c.it, name, c.old[:0]); err == nil {
				c.edit(last, layout.SegmentKeyChanged(c.it.Key()), rows[:n])
			} else {
				err = Error(name, rows[0].TimeUnixMs, err)
			}
		} else {
			err = c.missing(name, rows[0].TimeUnixMs)
		}
		if err != nil {
			c.notRead(err)
			for i := range rows[:n] {
				c.Carried = append(c.Carried, Carried{device, rows[i]})
			}
		}
		rows = rows[n:]
	}
	if len(c.edits) > 0 && d.Smalls > 0 {
		c.resize(name, d)
	}
}

var errNoSegment = errors.New("it is missing")

// missing returns the error of a segment at which c.it should be: that of the iterator, if it has one.
func (c *Sealer) missing(name *vitals.Name, timeUnixMs int64) error {
	return Error(name, timeUnixMs, cmp.Or(damage.Wrap(c.it.Error()), errNoSegment))
}

// notRead records that a segment could not be read. The rows that belong to it stay in groups,
// or the segment is not merged.
func (c *Sealer) notRead(err error) {
	c.OnUnread(err)
	c.Unread = damage.First(c.Unread, err)
	if c.it.Error() != nil { // the iterator cannot be used any more
		it := c.it
		if c.openIterator() == nil {
			_ = it.Close()
		} else {
			c.it = it
		}
	}
}

// edit adds an edit of the segment in c.old, unless it holds all rows already.
func (c *Sealer) edit(lastUnixMs, changedUnixMs int64, rows []columns.Row) {
	c.merged = c.merged[:0]
	old, changed := c.old, false
	for i := range rows {
		n, same := Find(old, rows[i].TimeUnixMs)
		c.merged = append(append(c.merged, old[:n]...), rows[i])
		changed = changed || !same || old[n] != rows[i]
		if old = old[n:]; same {
			old = old[1:]
		}
	}
	if !changed {
		return
	}
	c.merged = append(c.merged, old...)
	c.added += int64(len(c.merged) - len(c.old))
	c.superseded += len(c.it.Key()) + len(c.it.Value())
	if n := len(c.edits); n < cap(c.edits) {
		c.edits = c.edits[:n+1]
	} else {
		c.edits = append(c.edits, segmentEdit{})
	}
	e := &c.edits[len(c.edits)-1]
	e.lastUnixMs, e.changedUnixMs, e.taken = lastUnixMs, changedUnixMs, false
	e.rows = append(e.rows[:0], c.merged...)
}

// resize updates the sizes of a device's small segments after edits.
func (c *Sealer) resize(name *vitals.Name, d *layout.Record) {
	c.key = layout.AppendSegmentsEnd(c.key[:0], name)
	ok := c.it.SeekLT(c.key)
	c.key = layout.AppendSegmentPrefix(c.key[:0], name)
	for i := int(d.Smalls) - 1; i >= 0; i-- {
		if !ok || !IsOf(c.it, c.key) {
			c.notRead(c.missing(name, d.SealedUnixMs))
			d.Smalls = 0
			return
		}
		if e := c.editOf(layout.SegmentKeyTime(c.it.Key())); e != nil {
			d.Small[i] = uint16(min(len(e.rows), 1<<16-1))
		}
		ok = c.it.Prev()
	}
	trim(&d.Sizes, c.threshold())
}

// editOf returns the edit of the segment with a key's time, or nil.
func (c *Sealer) editOf(lastUnixMs int64) *segmentEdit {
	for i := range c.edits {
		if c.edits[i].lastUnixMs == lastUnixMs {
			return &c.edits[i]
		}
	}
	return nil
}

// threshold returns the number of readings below which a segment is small.
func (c *Sealer) threshold() int { return c.SegmentRows / 2 }

// appendNew writes rows that are newer than all segments of their device, of which a tidying sealer
// has none, and merges small segments with them.
func (c *Sealer) appendNew(device uint32, d *layout.Record, rows []columns.Row) error {
	name := c.name(device)
	c.added += int64(len(rows))
	n, total := Similar(&d.Sizes, len(rows))
	switch {
	case c.Tidy && n > 1:
	case n+1 >= mergeAt, total >= c.threshold():
	case d.Smalls == layout.MaxSmall:
		n = layout.MaxSmall
	default:
		n = 0
	}
	if n > 0 {
		if err := c.readSmall(name, d, n); err != nil {
			c.notRead(err)
			if !damage.IsFault(err) {
				d.Smalls = 0 // they stay as they are
			}
		} else {
			for _, old := range c.olds {
				if e := c.editOf(old.lastUnixMs); e != nil {
					e.taken = true
				}
				c.key = layout.AppendSegmentKey(c.key[:0], name, old.lastUnixMs, old.changedUnixMs)
				if err := c.Batch.Delete(c.key, nil); err != nil {
					return err
				}
			}
			d.Smalls -= uint8(n)
			rows = append(c.merged, rows...)
			c.merged = rows
		}
	}
	if len(rows) == 0 { // nothing was merged
		return nil
	}
	d.SealedUnixMs = rows[len(rows)-1].TimeUnixMs
	return c.write(device, rows, d)
}

// readSmall reads the last n segments of a device, which are small, into c.merged, and their
// times into c.olds.
func (c *Sealer) readSmall(name *vitals.Name, d *layout.Record, n int) error {
	total := 0
	for _, rows := range d.Small[int(d.Smalls)-n : d.Smalls] {
		total += int(rows)
	}
	c.merged, c.olds = slices.Grow(c.merged[:0], total)[:total], c.olds[:0]
	c.key = layout.AppendSegmentsEnd(c.key[:0], name)
	ok := c.it.SeekLT(c.key)
	c.key = layout.AppendSegmentPrefix(c.key[:0], name)
	for i := int(d.Smalls) - 1; n > 0; i, n = i-1, n-1 {
		if !ok || !IsOf(c.it, c.key) {
			return c.missing(name, d.SealedUnixMs)
		}
		last := layout.SegmentKeyTime(c.it.Key())
		c.olds = append(c.olds, segmentTimes{last, layout.SegmentKeyChanged(c.it.Key())})
		from := total - int(d.Small[i])
		if e := c.editOf(last); e != nil {
			copy(c.merged[from:total], e.rows)
		} else {
			c.superseded += len(c.it.Key()) + len(c.it.Value())
			rows, err := Decode(c.it, name, c.merged[from:from:total])
			if err != nil {
				return err
			}
			if len(rows) != total-from {
				return RecordError(name, layout.ErrSizes)
			}
		}
		total = from
		ok = c.it.Prev()
	}
	return nil
}

// write adds segments with rows to the batch. They are the last ones of d, unless d is nil.
func (c *Sealer) write(device uint32, rows []columns.Row, d *layout.Record) error {
	most := c.SegmentRows
	pieces := (len(rows) + most - 1) / most
	for i := range pieces {
		piece := rows[i*len(rows)/pieces : (i+1)*len(rows)/pieces]
		if err := c.writeSegment(device, piece); err != nil {
			return err
		}
		if d != nil {
			push(&d.Sizes, len(piece), c.threshold())
		}
	}
	return nil
}

// writeSegment adds a segment to the batch, and verifies that it decodes to the same rows.
func (c *Sealer) writeSegment(device uint32, rows []columns.Row) (err error) {
	last := rows[len(rows)-1].TimeUnixMs
	if c.value, c.again, err = encode(c.value[:0], c.again[:0], rows); err != nil {
		return c.fail(device, last, err)
	}
	times := segmentTimes{last, columns.ChangedUnixMs(rows)}
	c.key = layout.AppendSegmentKey(c.key[:0], c.name(device), times.lastUnixMs, times.changedUnixMs)
	c.written = append(c.written, writtenSegment{device, checksum(c.value), times})
	return c.Batch.Set(c.key, c.value, nil)
}

// fail fails the store: a segment is not what it should be. The groups still have its rows.
func (c *Sealer) fail(device uint32, lastUnixMs int64, err error) error {
	err = Error(c.name(device), lastUnixMs, err)
	c.OnFail(fmt.Sprintf("a segment cannot be written: %v", err))
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// readBack compares all segments that were written with what is stored. Get finds them in the
// newest tables. An iterator would also read blocks next to them, which may be damaged.
func (c *Sealer) readBack() error {
	for i := range c.written {
		x := &c.written[i]
		c.key = layout.AppendSegmentKey(c.key[:0], c.name(x.device), x.lastUnixMs, x.changedUnixMs)
		value, closer, err := c.Tree.Get(c.key)
		if errors.Is(err, pebble.ErrNotFound) {
			return c.fail(x.device, x.lastUnixMs, errNoSegment)
		}
		if err != nil {
			return fmt.Errorf("read segment back: %w", damage.Wrap(err))
		}
		same := checksum(value) == x.sum
		if err := closer.Close(); err != nil {
			return fmt.Errorf("read segment back: %w", damage.Wrap(err))
		}
		if !same {
			return c.fail(x.device, x.lastUnixMs, errReadBack)
		}
	}
	return nil
}
