package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// CheckOptions configure [Check]. The zero CheckOptions are good.
type CheckOptions struct {
	// Progress, if not nil, is called now and then with the bytes of tables
	// whose checksums were verified, of how many, and the readings that were
	// verified.
	Progress func(tableBytes, ofTableBytes, readings int64)

	Log *slog.Logger // as in Options
	FS  vfs.FS       // as in Options
}

// A Report says what Check has found.
type Report struct {
	Format       int // of keys and values
	PebbleFormat int // of Pebble's files

	Devices  int64
	Readings int64
	Values   [vitals.NumSigns]int64 // by sign

	// OldestUnixMs and NewestUnixMs are the times of the first and the last
	// reading of any device; both are 0 when there is none.
	OldestUnixMs, NewestUnixMs int64

	Tables     int   // table files
	TableBytes int64 // in table files
	LogBytes   int64 // in files of the write-ahead log

	// Problems are the first hundred things that are wrong, and More is the
	// number of further ones.
	Problems []error
	More     int
}

const maxProblems = 100

// Check opens the store in dir read-only and verifies all of it: the log can be
// replayed, every block of every table has its checksum, Pebble's levels are in
// order, every key and value has its form, and the package comment's invariants of
// device records hold. It changes nothing but the lock file, and works on a store
// that has crashed.
//
// The error is nil when the store is sound. It wraps storage.ErrCorrupt when it is
// not, with the Problems of the Report; and as for Open when the store cannot be
// opened, with what is known by then.
func Check(ctx context.Context, dir string, o CheckOptions) (Report, error) {
	c := &checker{ctx: ctx, progress: o.Progress}
	opts := Options{FS: o.FS, Log: o.Log, ReadOnly: true, MinFreeBytes: -1, inspect: c.files}.withDefaults()
	err := c.run(dir, opts)
	// What cannot be opened may be so because of a file that is known to be damaged.
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

	c.report.Format, c.report.PebbleFormat = storeFormat, int(s.db.FormatMajorVersion())
	logs, err := logBytes(s.files.fs, s.path)
	if err != nil {
		return err
	}
	c.report.LogBytes = int64(logs)
	if err := c.tables(s, o); err != nil {
		return err
	}
	if err := c.content(s.db); err != nil {
		return err
	}
	err = s.db.CheckLevels(nil)
	if err == nil || isFault(err) {
		return err
	}
	c.problem(corrupt(err))
	return nil
}

// files verifies files that Pebble takes as they are, or does not read.
func (c *checker) files(d *directory) (*fileList, error) {
	l, err := d.verify(c.problem)
	if err != nil {
		return nil, err
	}
	if err := d.report(d.verifyOldManifests(), c.problem); err != nil {
		return nil, err
	}
	_, err = d.readIntent()
	return l, d.report(err, c.problem)
}

// problem notes something that is wrong.
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

// tables verifies the checksum of every block of every table, also of blocks that
// no read would touch.
func (c *checker) tables(s *Store, o Options) error {
	files, err := tableFiles(s.db)
	if err != nil {
		return err
	}
	c.report.Tables = len(files)
	for _, f := range files {
		c.report.TableBytes += f.bytes
	}
	reader := tableOptions(o)
	for _, f := range files {
		if err := c.step(); err != nil {
			return err
		}
		path := o.FS.PathJoin(s.path, f.name)
		err := verifyTable(c.ctx, s.files.fs, path, reader, nil)
		if isFault(err) {
			return err
		}
		if err != nil {
			c.problem(fmt.Errorf("file %s: %s", path, firstLine(err)))
		}
		c.verified += f.bytes
	}
	return c.step()
}

// content verifies all keys and values, and each device's record against all of
// its readings.
func (c *checker) content(db *pebble.DB) error {
	readings, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{readingsStart}})
	if err != nil {
		return fmt.Errorf("read: %w", corrupt(err))
	}
	others, err := db.NewIter(&pebble.IterOptions{UpperBound: []byte{readingsStart}})
	if err != nil {
		return joinClose(fmt.Errorf("read: %w", corrupt(err)), readings)
	}
	before, more := len(c.report.Problems), c.report.More
	m := &recordMatcher{c: c, it: others}
	m.next(others.First())
	err = c.readings(readings, m)
	if err == nil {
		m.finish()
	}
	for _, it := range []*pebble.Iterator{readings, others} {
		if itErr := it.Error(); isFault(itErr) {
			// What seemed to be wrong may have been this.
			c.report.Problems, c.report.More = c.report.Problems[:before], more
			err = errors.Join(err, itErr)
		} else if itErr != nil {
			c.problem(corrupt(itErr))
		}
		_ = it.Close() // returns the same error
	}
	return err
}

// readings goes through all readings, and gives each device's to m.
func (c *checker) readings(it *pebble.Iterator, m *recordMatcher) error {
	var (
		current vitals.Name
		a       account
	)
	for ok := it.First(); ok; ok = it.Next() {
		if c.report.Readings%ctxEvery == 0 {
			if err := c.step(); err != nil {
				return err
			}
		}
		name, ms, err := decodeReadingKey(it.Key())
		if err != nil {
			c.problem(fmt.Errorf("key of %d bytes: %w", len(it.Key()), err))
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			c.problem(corrupt(err))
			return nil
		}
		var r reading
		if err := decodeReading(value, &r); err != nil {
			c.problem(readingError(&name, ms, err))
			continue
		}
		if name != current {
			if !current.IsZero() {
				m.match(&current, &a)
			}
			current, a = name, account{}
			m.begin(&name, &a)
		}
		a.add(ms, &r.values)
		c.count(ms, &r.values)
	}
	if !current.IsZero() {
		m.match(&current, &a)
	}
	return c.step()
}

func (c *checker) count(ms int64, values *vitals.Values) {
	if c.report.Readings == 0 {
		c.report.OldestUnixMs = ms
	}
	c.report.Readings++
	c.report.OldestUnixMs = min(c.report.OldestUnixMs, ms)
	c.report.NewestUnixMs = max(c.report.NewestUnixMs, ms)
	for s := range vitals.Sign(vitals.NumSigns) {
		if values.Has(s) {
			c.report.Values[s]++
		}
	}
}

// An account adds up one device: what all its readings say, and what its record and
// its tail say.
type account struct {
	all      device
	recorded device
	found    bool // there is a record
	anchored bool // there is a reading at the record's newest time
}

func (a *account) add(ms int64, values *vitals.Values) {
	a.all.note(ms, values)
	if ms > a.recorded.recordedUnixMs {
		a.recorded.note(ms, values)
		a.recorded.tail++
	}
	a.anchored = a.anchored || ms == a.recorded.recordedUnixMs
}

// A recordMatcher goes through the device records beside the readings.
type recordMatcher struct {
	c      *checker
	it     *pebble.Iterator // over all keys that are not readings
	valid  bool
	closed bool        // the closed key is there; it comes before all records
	name   vitals.Name // of the record that it stands at
}

// next goes on to the next record, past keys that should not be there.
func (m *recordMatcher) next(ok bool) {
	for ; ok; ok = m.it.Next() {
		if string(m.it.Key()) == closedKey {
			m.closed = true
			continue
		}
		var err error
		if m.name, err = decodeRecordKey(m.it.Key()); err == nil {
			m.valid = true
			m.c.report.Devices++
			return
		}
		m.c.problem(fmt.Errorf("key of %d bytes is neither a reading's nor a record's", len(m.it.Key())))
	}
	m.valid = false
}

// begin puts the record of a device, which has readings, into a.
func (m *recordMatcher) begin(name *vitals.Name, a *account) {
	for m.valid && m.name.Compare(name) < 0 {
		m.orphan()
	}
	if !m.valid || m.name != *name {
		return
	}
	value, err := m.it.ValueAndErr()
	if err != nil {
		m.c.problem(corrupt(err))
		m.valid = false
		return
	}
	a.found = true
	if err := decodeRecord(value, &a.recorded); err != nil {
		m.c.problem(recordError(name, err))
	}
	m.next(m.it.Next())
}

// match compares a device's record with its readings.
func (m *recordMatcher) match(name *vitals.Name, a *account) {
	if !a.found {
		m.c.problem(fmt.Errorf("device %s has readings and no record", name))
		return
	}
	if a.recorded.known == 0 {
		return // reported when it was decoded
	}
	if !a.anchored {
		m.c.problem(recordError(name, errors.New("no reading has its newest time")))
	}
	if m.closed && a.recorded.tail > 0 {
		m.c.problem(recordError(name, errors.New("the store was closed, and readings are newer")))
	}
	if a.recorded.tail >= maxTail {
		m.c.problem(recordError(name, fmt.Errorf("%d readings are newer, want fewer than %d", a.recorded.tail, maxTail)))
	}
	got, want := a.recorded.public(*name), a.all.public(*name)
	if got.NewestUnixMs != want.NewestUnixMs {
		m.c.problem(recordError(name, errors.New("the newest reading is another")))
	}
	for s := range got.Latest {
		if got.Latest[s] != want.Latest[s] {
			m.c.problem(recordError(name, fmt.Errorf("the latest %s is another", vitals.Sign(s))))
		}
	}
}

// orphan reports the record that m stands at, which has no reading.
func (m *recordMatcher) orphan() {
	m.c.problem(recordError(&m.name, errors.New("the device has no reading")))
	m.next(m.it.Next())
}

// finish reports the records behind the last reading's device.
func (m *recordMatcher) finish() {
	for m.valid {
		m.orphan()
	}
}
