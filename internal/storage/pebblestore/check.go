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
	Values   [vitals.NumSigns]int64 // by sign

	// OldestUnixMs and NewestUnixMs are the times of the oldest and the newest
	// reading; both are 0 if there are no readings.
	OldestUnixMs, NewestUnixMs int64

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
	opts := Options{FS: o.FS, Log: o.Log, ReadOnly: true, MinFreeBytes: -1, inspect: c.files}.withDefaults()
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

// files verifies files that Pebble does not verify, or does not read.
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

// content verifies all keys and values, and compares each device's record with all of
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

// readings verifies all readings, and passes those of each device to m.
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

// An account is the state of one device, computed in two ways that must agree.
type account struct {
	all      device // from all readings
	recorded device // from the record and its tail
	found    bool   // there is a record
	anchored bool   // there is a reading at the record's newest time
}

func (a *account) add(ms int64, values *vitals.Values) {
	a.all.update(ms, values)
	if ms > a.recorded.recordedUnixMs {
		a.recorded.update(ms, values)
		a.recorded.tail++
	}
	a.anchored = a.anchored || ms == a.recorded.recordedUnixMs
}

// A recordMatcher iterates over the device records in step with the readings.
type recordMatcher struct {
	c      *checker
	it     *pebble.Iterator // over all keys that are not readings
	valid  bool
	closed bool        // the closed key was found; it sorts before all records
	name   vitals.Name // device of the current record
}

// next moves to the next record. It reports keys that are not valid.
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

// begin decodes the record of a device with readings into a, and moves on.
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
		m.c.problem(fmt.Errorf("device %s has readings but no record", name))
		return
	}
	if a.recorded.known == 0 {
		return // reported when it was decoded
	}
	if !a.anchored {
		m.c.problem(recordError(name, errors.New("no reading has its newest time")))
	}
	if m.closed && a.recorded.tail > 0 {
		m.c.problem(recordError(name, errors.New("readings are newer, although the store was closed")))
	}
	if a.recorded.tail >= maxTail {
		m.c.problem(recordError(name, fmt.Errorf("%d readings are newer, want fewer than %d", a.recorded.tail, maxTail)))
	}
	got, want := a.recorded.public(*name), a.all.public(*name)
	if got.NewestUnixMs != want.NewestUnixMs {
		m.c.problem(recordError(name, errors.New("wrong newest time")))
	}
	for s := range got.Latest {
		if got.Latest[s] != want.Latest[s] {
			m.c.problem(recordError(name, fmt.Errorf("wrong latest %s", vitals.Sign(s))))
		}
	}
}

// orphan reports the current record, which has no readings, and moves on.
func (m *recordMatcher) orphan() {
	m.c.problem(recordError(&m.name, errors.New("the device has no reading")))
	m.next(m.it.Next())
}

// finish reports the records after that of the last device with readings.
func (m *recordMatcher) finish() {
	for m.valid {
		m.orphan()
	}
}
