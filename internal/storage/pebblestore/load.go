package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A loaded store is what Open reads: everything that the store has in memory.
type loaded struct {
	table       *memory.Table // nil if the store is opened for reading
	gateways    *dictionary
	window      *memory.Window
	nextGroup   uint64
	clockUnixMs int64 // the latest time at which something was changed
	journal     journal
	readings    int64 // in segments
	sweepDue    bool  // layout.SweepKey is stored
	verify      bool  // verify the encoding of groups
}

// load reads the records, the dictionary and all groups, sequentially. It reads no segments.
// The number of readings in groups is bounded: those of at most two windows.
//
// It calls problem for each damaged value, and goes on unless that returns an error. If problem
// is not nil, it also verifies that groups are encoded as they would be.
func load(db *pebble.DB, readOnly bool, problem func(error) error) (_ *loaded, err error) {
	l := &loaded{verify: problem != nil}
	if problem == nil {
		problem = func(err error) error { return err }
	}
	if !readOnly {
		if l.table, err = loadTable(db); err != nil {
			return nil, fmt.Errorf("read devices: %w", err)
		}
	}
	if l.gateways, err = loadDictionary(db, problem); err != nil {
		return nil, fmt.Errorf("read gateways: %w", err)
	}
	if l.journal, err = loadJournal(db, problem); err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	if err := l.loadClock(db, problem); err != nil {
		return nil, err
	}
	if err := l.loadGroups(db, problem); err != nil {
		return nil, fmt.Errorf("read groups: %w", err)
	}
	readings, err := readState(db, layout.ReadingsKey, 8, problem)
	if err != nil {
		return nil, err
	}
	l.readings = int64(readings)
	sweep, err := state(db, layout.SweepKey)
	if err != nil {
		return nil, err
	}
	l.sweepDue = sweep != nil
	if l.table != nil {
		for i := range uint32(l.table.Len()) {
			l.table.Active.Moved(-1, l.table.At(i).NewestUnixMs)
		}
	}
	return l, nil
}

// loadTable reads the records of all devices.
func loadTable(db *pebble.DB) (*memory.Table, error) {
	t := memory.NewTable()
	for d, err := range seal.Records(db, []byte{layout.RecordPrefix}) {
		if err != nil {
			return nil, err
		}
		t.Add(&d.Name, &d.Record)
	}
	return t, nil
}

// loadClock reads the latest time of a change. Groups may have later ones.
func (l *loaded) loadClock(db *pebble.DB, problem func(error) error) error {
	l.clockUnixMs = math.MinInt64
	value, err := state(db, layout.ClockKey)
	if err != nil || value == nil {
		return err
	}
	ms, err := readState(db, layout.ClockKey, 8, problem)
	l.clockUnixMs = int64(ms)
	return err
}

// loadGroups reads all groups into a window, and updates the devices in the table.
func (l *loaded) loadGroups(db *pebble.DB, problem func(error) error) error {
	next, err := readState(db, layout.GroupsKey, 8, problem)
	if err != nil {
		return err
	}
	l.nextGroup = max(next, 1)
	l.window = memory.NewWindow(1, l.nextGroup)
	var g layout.Group
	return eachValue(db, layout.GroupPrefix, problem, func(key, value []byte) error { return l.loadGroup(key, value, &g) })
}

func (l *loaded) loadGroup(key, value []byte, g *layout.Group) error {
	number, err := layout.DecodeGroupKey(key)
	if err != nil {
		return fmt.Errorf("%w: key of a group: %w", storage.ErrCorrupt, err)
	}
	l.window.FirstGroup = min(l.window.FirstGroup, number)
	l.nextGroup = max(l.nextGroup, number+1)
	l.window.GroupBytes += int64(len(value))
	err = g.Decode(value)
	if err == nil && l.verify && !bytes.Equal(g.Encode(), value) {
		err = errEncoding
	}
	rows := g.Rows
	for i := 0; err == nil && i < len(g.Runs); i++ {
		n := g.Runs[i].Rows
		err = l.add(&g.Runs[i].Device, rows[:n])
		rows = rows[n:]
	}
	if err != nil {
		return fmt.Errorf("%w: group %d: %w", storage.ErrCorrupt, number, err)
	}
	return nil
}

var (
	errNoRecord = errors.New("a device has no record")
	errEncoding = errors.New("it is not encoded as it would be")
)

// add adds the rows of a device in a group.
func (l *loaded) add(name *vitals.Name, rows []columns.Row) error {
	number, d := uint32(0), (*memory.Device)(nil)
	if l.table != nil {
		var ok bool
		if number, ok = l.table.Find(name); !ok {
			return errNoRecord
		}
		d = l.table.At(number)
	}
	for i := range rows {
		l.clockUnixMs = max(l.clockUnixMs, rows[i].ChangedUnixMs())
		if d != nil {
			l.table.Update(number, rows[i].TimeUnixMs, rows[i].ChangedUnixMs(), &rows[i].Values, rows[i].UTCOffset)
		}
		l.window.Add(d, number, name, &rows[i])
	}
	return nil
}
