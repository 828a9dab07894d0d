package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// CheckOptions configures [Check]. The zero value is valid.
type CheckOptions struct {
	// Progress, if not nil, is called periodically with the number of verified
	// bytes in tables, the number of all bytes in tables, and the number of
	// verified readings.
	Progress func(tableBytes, ofTableBytes, readings int64)

	Log *slog.Logger // as in Options
	FS  vfs.FS       // as in Options
}

// A Report is the result of Check.
type Report struct {
	Format       int // version of keys and values
	PebbleFormat int // version of Pebble's files

	Devices  int64
	Readings int64
	Values   [vitals.MaxSigns]int64 // by sign
	Signs    *vitals.Signs          // that the store has; nil if it could not be opened

	Assignments int64 // of devices to subjects

	// OldestUnixMs and NewestUnixMs are the times of the oldest and the newest
	// reading; both are 0 if there are no readings.
	OldestUnixMs, NewestUnixMs int64

	Erasing vitals.Name // device of an unfinished erasure; zero means there is none

	Tables     int   // table files
	TableBytes int64 // size of the table files
	LogBytes   int64 // size of the write-ahead log's files

	// Problems holds the first hundred problems; More is the number of further ones.
	Problems []error
	More     int
}

const maxProblems = 100

// Check opens the store in dir read-only and verifies all of it: that the log can be
// replayed, that every block of every table matches its checksum, that Pebble's levels
// are ordered, that every key and value is well-formed, and that the package comment's
// invariants of device records hold. It changes nothing but the lock file, and works
// on a store after a crash.
//
// If the store has problems, the error joins the Problems of the Report and wraps
// storage.ErrCorrupt. If the store cannot be opened, the error is also that of Open, and
// the Report holds what was found so far.
func Check(ctx context.Context, dir string, o CheckOptions) (Report, error) {
	c := &checker{ctx: ctx, progress: o.Progress}
	opts := Options{FS: o.FS, Log: o.Log, ReadOnly: true, MinFreeBytes: -1, inspect: c.files, problem: c.problemOrFault}.withDefaults()
	err := c.run(dir, opts)
	// A damaged file found so far may be the reason why the store cannot be opened.
	if err = errors.Join(errors.Join(c.report.Problems...), err); err != nil {
		return c.report, fmt.Errorf("check store %s: %w", dir, err)
	}
	return c.report, nil
}

type checker struct {
	ctx      context.Context
	progress func(tableBytes, ofTableBytes, readings int64)
	report   Report

	verified int64 // bytes of tables
}

func (c *checker) run(dir string, o Options) (err error) {
	s, err := open(dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	c.report.Signs = s.signs
	c.report.Format, c.report.PebbleFormat = s.files.Format(), int(s.db.FormatMajorVersion())
	logs, err := datadir.LogBytes(s.files.FS, s.path)
	if err != nil {
		return err
	}
	c.report.LogBytes = int64(logs)
	if err := c.tables(s, o); err != nil {
		return err
	}
	if err := c.content(s); err != nil {
		return err
	}
	err = s.db.CheckLevels(nil)
	if err == nil || isFault(err) {
		return err
	}
	c.problem(corrupt(err))
	return nil
}

// files verifies files that Pebble does not verify, or does not read.
func (c *checker) files(d *datadir.Dir) (*datadir.List, error) {
	l, err := d.Verify(c.problem)
	if err != nil {
		return nil, err
	}
	if err := d.VerifyOldManifests(c.problem); err != nil {
		return nil, err
	}
	in, err := purge.ReadIntent(d)
	if in != nil {
		c.report.Erasing = in.Device
	}
	if err != nil {
		err = c.problemOrFault(err)
	}
	return l, err
}

// problem adds a problem to the report.
func (c *checker) problem(err error) {
	if !errors.Is(err, storage.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	if len(c.report.Problems) >= maxProblems {
		c.report.More++
		return
	}
	c.report.Problems = append(c.report.Problems, err)
}

func (c *checker) step() error {
	if c.progress != nil {
		c.progress(c.verified, c.report.TableBytes, c.report.Readings)
	}
	return c.ctx.Err()
}

// tables verifies the checksum of every block of every table, including blocks that no
// read uses.
func (c *checker) tables(s *Store, o Options) error {
	files, err := datadir.Tables(s.db)
	if err != nil {
		return err
	}
	c.report.Tables = len(files)
	c.report.TableBytes = datadir.TotalBytes(files)
	reader := tableOptions(o)
	for _, f := range files {
		if err := c.step(); err != nil {
			return err
		}
		path := o.FS.PathJoin(s.path, f.Name)
		err := datadir.VerifyTable(c.ctx, s.files.FS, path, reader, nil)
		if isFault(err) {
			return err
		}
		if err != nil {
			c.problem(fmt.Errorf("file %s: %s", path, damage.FirstLine(err)))
		}
		c.verified += f.Bytes
	}
	return c.step()
}

// problemOrFault adds damage to the report, and returns any other error.
func (c *checker) problemOrFault(err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	c.problem(err)
	return nil
}

// content verifies all keys and values, and compares each device's record with all of
// its readings. Groups and the dictionary were verified when the store was opened.
func (c *checker) content(s *Store) error {
	v, err := s.views.acquire()
	if err != nil {
		return err
	}
	defer s.views.release(v)
	segments, err := v.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		return fmt.Errorf("read: %w", corrupt(err))
	}
	records, err := v.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.RecordPrefix}, UpperBound: []byte{layout.RecordPrefix + 1}})
	if err != nil {
		return joinClose(fmt.Errorf("read: %w", corrupt(err)), segments)
	}
	others, err := v.NewIter(nil)
	if err != nil {
		return errors.Join(fmt.Errorf("read: %w", corrupt(err)), segments.Close(), records.Close())
	}
	before, more := len(c.report.Problems), c.report.More
	k := &contentChecker{checker: c, s: s, v: v, segments: segments, records: records, names: s.gateways.names(), known: s.signs.Known()}
	err = k.devices()
	if err == nil {
		k.others(others)
		k.finish()
		err = k.assignments()
	}
	for _, it := range []*pebble.Iterator{segments, records, others} {
		if itErr := it.Error(); isFault(itErr) {
			// The problems found so far may be caused by this fault.
			c.report.Problems, c.report.More = c.report.Problems[:before], more
			err = errors.Join(err, itErr)
		} else if itErr != nil {
			c.problem(corrupt(itErr))
		}
		_ = it.Close() // returns the same error
	}
	return err
}

// A contentChecker checks the content of a tree.
type contentChecker struct {
	*checker
	s        *Store
	v        *view
	segments *pebble.Iterator
	records  *pebble.Iterator
	names    gatewayNames
	known    uint32 // the signs that the store has

	sealed  int64 // readings in segments
	damaged bool  // a segment's readings could not be counted
	rows    []columns.Row
	window  [2][]columns.Row
	value   []byte
}

// devices checks the records and rows of all devices, in the order of their names.
func (k *contentChecker) devices() error {
	pending := k.windowDevices()
	hasRecord, hasSegment := k.nextRecord(k.records.First()), k.nextSegment(k.segments.First())
	for hasRecord || hasSegment || len(pending) > 0 {
		var name vitals.Name
		for _, x := range []struct {
			ok  bool
			key func() vitals.Name
		}{
			{hasRecord, func() vitals.Name { return mustDecode(layout.DecodeRecordKey(k.records.Key())) }},
			{hasSegment, func() vitals.Name { n, _, _ := layout.DecodeSegmentKey(k.segments.Key()); return n }},
			{len(pending) > 0, func() vitals.Name { return pending[0] }},
		} {
			if x.ok {
				if n := x.key(); name.IsZero() || n.Compare(&name) < 0 {
					name = n
				}
			}
		}
		if len(pending) > 0 && pending[0] == name {
			pending = pending[1:]
		}
		var a account
		if hasRecord && mustDecode(layout.DecodeRecordKey(k.records.Key())) == name {
			k.record(&name, &a)
			hasRecord = k.nextRecord(k.records.Next())
		}
		var err error
		if hasSegment, err = k.device(&name, &a, hasSegment); err != nil {
			return err
		}
		a.match(k.checker, &name)
	}
	return k.step()
}

func mustDecode(n vitals.Name, _ error) vitals.Name { return n }

// windowDevices returns the devices with rows in the window, sorted.
func (k *contentChecker) windowDevices() (names []vitals.Name) {
	for _, w := range k.v.windows {
		for _, name := range w.Names() {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b vitals.Name) int { return a.Compare(&b) })
	return slices.Compact(names)
}

// nextRecord moves to the next valid key of a record.
func (k *contentChecker) nextRecord(ok bool) bool {
	for ; ok; ok = k.records.Next() {
		if _, err := layout.DecodeRecordKey(k.records.Key()); err == nil {
			k.report.Devices++
			return true
		}
		k.problem(fmt.Errorf("key of %d bytes is not a record's", len(k.records.Key())))
	}
	return false
}

// nextSegment moves to the next valid key of a segment.
func (k *contentChecker) nextSegment(ok bool) bool {
	for ; ok; ok = k.segments.Next() {
		_, _, err := layout.DecodeSegmentKey(k.segments.Key())
		if err == nil {
			return true
		}
		k.problem(fmt.Errorf("key of %d bytes is not a segment's: %w", len(k.segments.Key()), err))
	}
	return false
}

// record decodes the record of a device.
func (k *contentChecker) record(name *vitals.Name, a *account) {
	value, err := k.records.ValueAndErr()
	if err != nil {
		k.problem(corrupt(err))
		return
	}
	a.found = true
	if err := layout.DecodeRecord(value, &a.recorded); err != nil {
		a.damaged = true
		k.problem(seal.RecordError(name, err))
	}
}

// device verifies the segments of a device, and merges its rows in windows with them.
func (k *contentChecker) device(name *vitals.Name, a *account, has bool) (bool, error) {
	a.all = layout.Record{NewestUnixMs: -1}
	a.lastSealedMs = layout.NoSegment
	var windows []rowSource
	for i, w := range k.v.windows {
		k.window[i] = w.AppendRange(k.window[i][:0], name, 0, math.MaxInt64, false, math.MaxInt)
		windows = append(windows, rowSource{rows: k.window[i]})
		for j := range k.window[i] {
			r := &k.window[i][j]
			a.recorded.Update(r.TimeUnixMs, &r.Values, r.UTCOffset)
			k.gateway(name, r)
		}
	}
	merge := rowScanner{ctx: k.ctx, device: name, sources: append(windows, rowSource{more: func() ([]columns.Row, error) {
		for ; has && mustSegment(k.segments.Key()) == *name; has = k.nextSegment(k.segments.Next()) {
			if rows := k.segment(name, a); rows != nil {
				has = k.nextSegment(k.segments.Next())
				return rows, k.step()
			}
		}
		return nil, k.step()
	}})}
	for {
		rows, err := merge.next(math.MaxInt)
		if err != nil {
			return has, err
		}
		if len(rows) == 0 {
			return has, nil
		}
		for i := range rows {
			if rows[i].Values.Present()&^k.known != 0 {
				k.problem(fmt.Errorf("reading of device %s at %d: %w", name, rows[i].TimeUnixMs, errUnknownSign))
			}
			a.add(&rows[i])
			k.count(rows[i].TimeUnixMs, &rows[i].Values)
		}
	}
}

func mustSegment(key []byte) vitals.Name { n, _, _ := layout.DecodeSegmentKey(key); return n }

// gateway checks that the gateway of a row is in the dictionary.
func (k *contentChecker) gateway(name *vitals.Name, r *columns.Row) {
	if r.Gateway != 0 && k.names.at(r.Gateway) == nil {
		k.problem(fmt.Errorf("reading of device %s at %d: %w", name, r.TimeUnixMs, errUnknownGateway))
	}
}

// segment verifies the segment at the iterator's position, and returns its rows, or nil if it
// is damaged.
func (k *contentChecker) segment(name *vitals.Name, a *account) []columns.Row {
	last := layout.SegmentKeyTime(k.segments.Key())
	rows, err := seal.Decode(k.segments, name, k.rows[:0])
	if err != nil {
		k.problem(err)
		a.damaged, k.damaged = true, true
		return nil
	}
	k.rows = rows
	if rows[0].TimeUnixMs <= a.lastSealedMs {
		k.problem(seal.Error(name, last, errors.New("it overlaps the one before")))
		a.damaged, k.damaged = true, true
		return nil
	}
	value, _ := k.segments.ValueAndErr()
	if k.value = columns.AppendSegment(k.value[:0], rows); !bytes.Equal(k.value, value) {
		k.problem(seal.Error(name, last, errors.New("it is not encoded as it would be")))
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
	for _, r := range [][2][]byte{{{layout.StatePrefix}, {layout.RecordPrefix}}, {{layout.LastPrefix + 1}, {0xff}}} {
		it.SetBounds(r[0], r[1])
		for ok := it.First(); ok; ok = it.Next() {
			switch string(it.Key()) {
			case layout.GroupsKey, layout.GatewaysKey, layout.ReadingsKey, layout.SweepKey, layout.SignsKey:
			case layout.UncountedKey:
				k.damaged = true
			default:
				k.problem(fmt.Errorf("key of %d bytes is of no known kind", len(it.Key())))
			}
		}
	}
}

// assignments verifies all assignments.
func (k *contentChecker) assignments() (err error) {
	others := false
	for sg, d := range k.s.signs.All() {
		others = others || d.Own() || sg >= layout.FirstSigns && k.report.Values[sg] > 0
	}
	if others && k.s.files.Format() < datadir.SignsFormat {
		k.problem(fmt.Errorf("there are signs beyond the first %d, but file %s has format %d", layout.FirstSigns, datadir.FormatFile, k.s.files.Format()))
	}
	k.report.Assignments, err = assign.Verify(k.v, k.problem)
	if k.report.Assignments > 0 && k.s.files.Format() < datadir.AssignedFormat {
		k.problem(fmt.Errorf("there are assignments, but file %s has format %d", datadir.FormatFile, k.s.files.Format()))
	}
	return err
}

// finish checks the number of readings.
func (k *contentChecker) finish() {
	if n := k.s.readings.Load(); n != k.sealed && !k.damaged {
		k.problem(errors.New("wrong number of readings in segments"))
	}
}

func (c *checker) count(ms int64, values *vitals.Values) {
	if c.report.Readings == 0 {
		c.report.OldestUnixMs = ms
	}
	c.report.Readings++
	c.report.OldestUnixMs = min(c.report.OldestUnixMs, ms)
	c.report.NewestUnixMs = max(c.report.NewestUnixMs, ms)
	for s := range values.All() {
		c.report.Values[s]++
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

func (a *account) add(r *columns.Row) { a.all.Update(r.TimeUnixMs, &r.Values, r.UTCOffset) }

// match compares a device's record with its readings.
func (a *account) match(c *checker, name *vitals.Name) {
	switch {
	case a.damaged:
		return // reported when it was decoded
	case !a.found:
		c.problem(fmt.Errorf("device %s has readings but no record", name))
		return
	case a.all.NewestUnixMs < 0:
		c.problem(seal.RecordError(name, errors.New("the device has no reading")))
		return
	}
	if a.recorded.SealedUnixMs != a.lastSealedMs {
		c.problem(seal.RecordError(name, errors.New("wrong time of the last segment")))
	}
	small := a.recorded.Small[:a.recorded.Smalls]
	if len(small) > len(a.sizes) || slices.CompareFunc(a.sizes[len(a.sizes)-len(small):], small, func(n int, m uint16) int { return n - int(m) }) != 0 {
		c.problem(seal.RecordError(name, layout.ErrSizes))
	}
	got, want := public(*name, &a.recorded), public(*name, &a.all)
	if got.NewestUnixMs != want.NewestUnixMs {
		c.problem(seal.RecordError(name, errors.New("wrong newest time")))
	}
	for s := range got.Latest {
		if got.Latest[s] != want.Latest[s] {
			c.problem(seal.RecordError(name, fmt.Errorf("wrong latest %s", c.report.Signs.Field(vitals.Sign(s)))))
		}
	}
}
