package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Content is what a store holds, with what a [Checker] needs of the store to verify it.
type Content struct {
	View     pebble.Reader
	Windows  []memory.View // in the order of precedence
	Signs    *vitals.Signs // that the store has
	Readings int64         // in segments, as the store has counted them

	// HasGateway reports whether the dictionary has a number.
	HasGateway func(number uint32) bool

	// Merge calls visit with the rows of a device from its windows and segments, in the order of time, as
	// readers see them.
	Merge func(ctx context.Context, device *vitals.Name, windows [][]columns.Row, segments func() ([]columns.Row, error),
		visit func([]columns.Row)) error
}

// Content verifies all keys and values, and compares each device's record with all of
// its readings. Groups and the dictionary must have been verified.
func (c *Checker) Content(content Content) error {
	var its []*pebble.Iterator
	for _, bounds := range []*pebble.IterOptions{
		{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}},
		{LowerBound: []byte{layout.RecordPrefix}, UpperBound: []byte{layout.RecordPrefix + 1}},
		nil,
	} {
		it, err := content.View.NewIter(bounds)
		if err != nil {
			err = fmt.Errorf("read: %w", damage.Wrap(err))
			for _, it := range its {
				err = errors.Join(err, it.Close())
			}
			return err
		}
		its = append(its, it)
	}
	before, more := len(c.Report.Problems), c.Report.More
	k := &contentChecker{Checker: c, Content: content, segments: its[0], records: its[1], known: content.Signs.Known()}
	err := k.devices()
	if err == nil {
		k.others(its[2])
		k.finish()
		err = k.assignments()
	}
	for _, it := range its {
		if itErr := it.Error(); damage.IsFault(itErr) {
			// The problems found so far may be caused by this fault.
			c.Report.Problems, c.Report.More = c.Report.Problems[:before], more
			err = errors.Join(err, itErr)
		} else if itErr != nil {
			c.Problem(damage.Wrap(itErr))
		}
		_ = it.Close() // returns the same error
	}
	return err
}

// A contentChecker checks the content of a tree.
type contentChecker struct {
	*Checker
	Content
	segments *pebble.Iterator
	records  *pebble.Iterator
	known    uint32 // the signs that the store has

	recordOf, segmentOf vitals.Name // devices of the iterators' positions; zero at their ends

	sealed  int64 // readings in segments
	damaged bool  // a segment's readings could not be counted
	rows    []columns.Row
	windows [][]columns.Row // of the device
	value   []byte
}

// devices checks the records and rows of all devices, in the order of their names.
func (k *contentChecker) devices() error {
	pending := k.windowDevices()
	k.nextRecord(k.records.First())
	k.nextSegment(k.segments.First())
	for {
		name := earlier(k.recordOf, k.segmentOf)
		if len(pending) > 0 {
			name = earlier(name, pending[0])
		}
		if name.IsZero() {
			return k.step()
		}
		if len(pending) > 0 && pending[0] == name {
			pending = pending[1:]
		}
		var a account
		if k.recordOf == name {
			k.record(&name, &a)
			k.nextRecord(k.records.Next())
		}
		if err := k.device(&name, &a); err != nil {
			return err
		}
		a.match(k.Checker, &name)
	}
}

// earlier returns the first of two names, of which the zero one is no name.
func earlier(a, b vitals.Name) vitals.Name {
	if a.IsZero() || !b.IsZero() && b.Compare(&a) < 0 {
		return b
	}
	return a
}

// windowDevices returns the devices with rows in the window, sorted.
func (k *contentChecker) windowDevices() (names []vitals.Name) {
	for _, w := range k.Windows {
		for _, name := range w.Names() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b vitals.Name) int { return a.Compare(&b) })
	return slices.Compact(names)
}

// nextRecord moves to the next valid key of a record.
func (k *contentChecker) nextRecord(ok bool) {
	k.recordOf = vitals.Name{}
	for ; ok; ok = k.records.Next() {
		var err error
		if k.recordOf, err = layout.DecodeRecordKey(k.records.Key()); err == nil {
			k.Report.Devices++
			return
		}
		k.Problem(fmt.Errorf("key of %d bytes is not a record's", len(k.records.Key())))
	}
}

// nextSegment moves to the next valid key of a segment.
func (k *contentChecker) nextSegment(ok bool) {
	k.segmentOf = vitals.Name{}
	for ; ok; ok = k.segments.Next() {
		var err error
		if k.segmentOf, _, _, err = layout.DecodeSegmentKey(k.segments.Key()); err == nil {
			return
		}
		k.Problem(fmt.Errorf("key of %d bytes is not a segment's: %w", len(k.segments.Key()), err))
	}
}

// record decodes the record of a device.
func (k *contentChecker) record(name *vitals.Name, a *account) {
	value, err := k.records.ValueAndErr()
	if err != nil {
		k.Problem(damage.Wrap(err))
		return
	}
	a.found = true
	if err := layout.DecodeRecord(value, &a.recorded); err != nil {
		a.damaged = true
		k.Problem(seal.RecordError(name, err))
	}
}

// device verifies the segments of a device, and merges its rows in windows with them.
func (k *contentChecker) device(name *vitals.Name, a *account) error {
	a.all = layout.Record{NewestUnixMs: -1}
	a.lastSealedMs = layout.NoSegment
	k.windows = slices.Grow(k.windows[:0], len(k.Windows))[:len(k.Windows)]
	for i, w := range k.Windows {
		k.windows[i] = w.AppendRange(k.windows[i][:0], name, 0, math.MaxInt64, false, math.MaxInt)
		for j := range k.windows[i] {
			r := &k.windows[i][j]
			a.recorded.Update(r.TimeUnixMs, r.ChangedUnixMs(), &r.Values, r.UTCOffset)
			k.gateway(name, r)
		}
	}
	return k.Merge(k.ctx, name, k.windows, func() (rows []columns.Row, err error) {
		for rows == nil && k.segmentOf == *name {
			rows = k.segment(name, a)
			k.nextSegment(k.segments.Next())
		}
		return rows, k.step()
	}, func(rows []columns.Row) {
		for i := range rows {
			if rows[i].Values.Present()&^k.known != 0 {
				k.Problem(fmt.Errorf("reading of device %s at %d: %w", name, rows[i].TimeUnixMs, seal.ErrUnknownSign))
			}
			a.add(&rows[i])
			k.count(rows[i].TimeUnixMs, &rows[i].Values)
		}
	})
}

// gateway checks that the gateway of a row is in the dictionary.
func (k *contentChecker) gateway(name *vitals.Name, r *columns.Row) {
	if r.Gateway != 0 && !k.HasGateway(r.Gateway) {
		k.Problem(fmt.Errorf("reading of device %s at %d: %w", name, r.TimeUnixMs, seal.ErrUnknownGateway))
	}
}

// segment verifies the segment at the iterator's position, and returns its rows, or nil if it
// is damaged.
func (k *contentChecker) segment(name *vitals.Name, a *account) []columns.Row {
	last := layout.SegmentKeyTime(k.segments.Key())
	rows, err := seal.Decode(k.segments, name, k.rows[:0])
	if err != nil {
		k.Problem(err)
		a.damaged, k.damaged = true, true
		return nil
	}
	k.rows = rows
	if rows[0].TimeUnixMs <= a.lastSealedMs {
		k.Problem(seal.Error(name, last, errors.New("it overlaps the one before")))
		a.damaged, k.damaged = true, true
		return nil
	}
	if columns.ChangedUnixMs(rows) != layout.SegmentKeyChanged(k.segments.Key()) {
		k.Problem(seal.Error(name, last, errors.New("it was not changed when its key says so")))
	}
	value, _ := k.segments.ValueAndErr()
	if k.value = columns.AppendSegment(k.value[:0], rows); !bytes.Equal(k.value, value) {
		k.Problem(seal.Error(name, last, errors.New("it is not encoded as it would be")))
	}
	for i := range rows {
		k.gateway(name, &rows[i])
	}
	a.lastSealedMs = last
	a.sizes = append(a.sizes, len(rows))
	k.sealed += int64(len(rows))
	return rows
}

// others verifies that no other keys are stored than those that were checked.
func (k *contentChecker) others(it *pebble.Iterator) {
	for _, r := range [][2][]byte{{{layout.StatePrefix}, {layout.RecordPrefix}}, {{layout.EventPrefix}, {0xff}}} {
		it.SetBounds(r[0], r[1])
		for ok := it.First(); ok; ok = it.Next() {
			if it.Key()[0] == layout.EventPrefix {
				k.event(it)
				continue
			}
			switch string(it.Key()) {
			case layout.ClockKey, layout.CursorsKey, layout.GroupsKey, layout.GatewaysKey, layout.ReadingsKey, layout.SweepKey,
				layout.SignsKey,
				layout.ForgetKey:
			case layout.UncountedKey:
				k.damaged = true
			default:
				k.Problem(fmt.Errorf("key of %d bytes is of no known kind", len(it.Key())))
			}
		}
	}
}

// event verifies the event at an iterator's position.
func (k *contentChecker) event(it *pebble.Iterator) {
	_, err := layout.DecodeEventKey(it.Key())
	if value, valueErr := it.ValueAndErr(); err == nil && valueErr == nil {
		_, err = layout.DecodeEvent(value)
	}
	if err != nil {
		k.Problem(fmt.Errorf("event: %w", err))
	}
}

// assignments verifies all assignments.
func (k *contentChecker) assignments() (err error) {
	k.Report.Assignments, err = assign.Verify(k.View, k.Problem)
	return err
}

// finish checks the number of readings.
func (k *contentChecker) finish() {
	if k.Readings != k.sealed && !k.damaged {
		k.Problem(errors.New("wrong number of readings in segments"))
	}
}

func (c *Checker) count(ms int64, values *vitals.Values) {
	if c.Report.Readings == 0 {
		c.Report.OldestUnixMs = ms
	}
	c.Report.Readings++
	c.Report.OldestUnixMs = min(c.Report.OldestUnixMs, ms)
	c.Report.NewestUnixMs = max(c.Report.NewestUnixMs, ms)
	for s := range values.All() {
		c.Report.Values[s]++
	}
}

// An account is the state of one device, computed in two ways that must agree.
type account struct {
	all      layout.Record // from all readings
	recorded layout.Record // from the record and the windows
	found    bool          // there is a record
	damaged  bool          // the record or a segment could not be decoded

	lastSealedMs int64 // of the last segment, or layout.NoSegment
	sizes        []int // of the segments
}

func (a *account) add(r *columns.Row) {
	a.all.Update(r.TimeUnixMs, r.ChangedUnixMs(), &r.Values, r.UTCOffset)
}

// match compares a device's record with its readings.
func (a *account) match(c *Checker, name *vitals.Name) {
	switch {
	case a.damaged:
		return // reported when it was decoded
	case !a.found:
		c.Problem(fmt.Errorf("device %s has readings but no record", name))
		return
	case a.all.NewestUnixMs < 0:
		c.Problem(seal.RecordError(name, errors.New("the device has no reading")))
		return
	}
	if a.recorded.SealedUnixMs != a.lastSealedMs {
		c.Problem(seal.RecordError(name, errors.New("wrong time of the last segment")))
	}
	small := a.recorded.Small[:a.recorded.Smalls]
	if len(small) > len(a.sizes) ||
		slices.CompareFunc(a.sizes[len(a.sizes)-len(small):], small, func(n int, m uint16) int { return n - int(m) }) != 0 {
		c.Problem(seal.RecordError(name, layout.ErrSizes))
	}
	got, want := seal.Summary(*name, &a.recorded), seal.Summary(*name, &a.all)
	if got.NewestUnixMs != want.NewestUnixMs {
		c.Problem(seal.RecordError(name, errors.New("wrong newest time")))
	}
	if a.recorded.ArrivedUnixMs < a.all.ArrivedUnixMs {
		c.Problem(seal.RecordError(name, errors.New("a reading has arrived later")))
	}
	for s := range got.Latest {
		if got.Latest[s] != want.Latest[s] {
			c.Problem(seal.RecordError(name, fmt.Errorf("wrong latest %s", c.Report.Signs.Field(vitals.Sign(s)))))
		}
	}
}
