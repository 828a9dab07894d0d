package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrReassigned means that assignments were changed while what was measured during them was read. The request may be
// repeated.
var ErrReassigned = errors.New("a device was reassigned while its readings were read")

// Numbers of records that a Merge reads at once: of all devices together, and of one.
const (
	mergeRecords = 4096
	leastRecords = 16
)

// A Merge reads the records of parts of assignments, in order: by time, then by device. The parts of one device must
// not overlap.
//
// It keeps records in memory only of parts that have begun: of as many devices as one patient wears at a time.
//
// Assignments may change while it reads, also those of the past. Invariant: when a record was read, its device was
// assigned to the subject of its part at the record's time; TestReassignedMeanwhile of package fhir checks it. So it
// looks at the assignments after each read.
type Merge struct {
	scan     func(context.Context, storage.Range, []storage.Record) (int, error)
	assigned func(context.Context, vitals.Name) ([]storage.Assignment, error)
	newest   bool                 // first
	atMost   int                  // records per read
	parts    []storage.Assignment // that have not begun, in the order of their beginnings
	running  []*run               // in the order of their first records
	free     [][]storage.Record   // buffers of runs that have ended
	passed   int                  // number of the records of running[0] that Next has returned
}

// A run is a part that has begun.
type run struct {
	part    *storage.Assignment
	scanner storage.Scanner
	records []storage.Record // read, and not yet passed; not empty
	buffer  []storage.Record
	more    bool // there may be records after these
	begun   bool // records were read before
}

// NewMerge returns a Merge of parts, which it may modify. scan and assigned are Scan and DeviceAssignments of a store.
// At most atMost records are read at once.
func NewMerge(
	scan func(context.Context, storage.Range, []storage.Record) (int, error),
	assigned func(context.Context, vitals.Name) ([]storage.Assignment, error),
	parts []storage.Assignment, newest bool, atMost int,
) *Merge {
	parts = slices.DeleteFunc(parts, func(a storage.Assignment) bool { return a.FromUnixMs >= a.ToUnixMs })
	slices.SortFunc(parts, func(a, b storage.Assignment) int {
		if newest {
			return cmp.Or(cmp.Compare(b.ToUnixMs, a.ToUnixMs), a.Device.Compare(&b.Device))
		}
		return cmp.Or(cmp.Compare(a.FromUnixMs, b.FromUnixMs), a.Device.Compare(&b.Device))
	})
	return &Merge{scan: scan, assigned: assigned, newest: newest, atMost: max(atMost, leastRecords), parts: parts}
}

// Next returns the next records, which are of one part, or none at the end. They are valid until the next call.
func (m *Merge) Next(ctx context.Context) (part *storage.Assignment, records []storage.Record, err error) {
	if m.passed > 0 {
		first := m.running[0]
		first.records, m.passed = first.records[m.passed:], 0
		m.running = slices.Delete(m.running, 0, 1)
		if err := m.fill(ctx, first); err != nil {
			return nil, nil, err
		}
	}
	for len(m.parts) > 0 && (len(m.running) == 0 || m.begun(m.running[0].records[0].TimeUnixMs)) {
		if err := m.begin(ctx); err != nil {
			return nil, nil, err
		}
	}
	if len(m.running) == 0 {
		return nil, nil, nil
	}
	first := m.running[0]
	m.passed = 1
	for m.passed < len(first.records) && m.isNext(first, first.records[m.passed].TimeUnixMs) {
		m.passed++
	}
	return first.part, first.records[:m.passed], nil
}

// begun reports whether the first of the parts begins at a time or before it.
func (m *Merge) begun(unixMs int64) bool {
	if m.newest {
		return m.parts[0].ToUnixMs > unixMs
	}
	return m.parts[0].FromUnixMs <= unixMs
}

// isNext reports whether a record of the first run comes before those of all others.
func (m *Merge) isNext(first *run, unixMs int64) bool {
	if len(m.parts) > 0 && m.begun(unixMs) {
		return false
	}
	return len(m.running) == 1 || m.order(unixMs, first, m.running[1].records[0].TimeUnixMs, m.running[1]) < 0
}

// order returns the order of a record of a, and of one of b.
func (m *Merge) order(aUnixMs int64, a *run, bUnixMs int64, b *run) int {
	order := cmp.Compare(aUnixMs, bUnixMs)
	if m.newest {
		order = -order
	}
	return cmp.Or(order, a.part.Device.Compare(&b.part.Device))
}

// begin begins the first of the parts.
func (m *Merge) begin(ctx context.Context) error {
	part := &m.parts[0]
	m.parts = m.parts[1:]
	within := storage.Range{
		Device: part.Device, FromUnixMs: part.FromUnixMs, ToUnixMs: part.ToUnixMs, Descending: m.newest,
	}
	r := &run{part: part, scanner: storage.Scanner{Range: within}, more: true}
	if last := len(m.free) - 1; last >= 0 {
		r.buffer, m.free = m.free[last], m.free[:last]
	} else {
		r.buffer = make([]storage.Record, min(m.atMost, max(mergeRecords/(len(m.running)+1), leastRecords)))
	}
	return m.fill(ctx, r)
}

// fill reads further records of a run that has none left, and puts it in its place among the others, or ends it if
// there are none.
func (m *Merge) fill(ctx context.Context, r *run) (err error) {
	if len(r.records) == 0 && r.more {
		if r.records, r.more, err = r.scanner.Next(ctx, m.scan, r.buffer); err != nil {
			return err
		}
		if err := m.verify(ctx, r); err != nil {
			return err
		}
	}
	if len(r.records) == 0 {
		m.free = append(m.free, r.buffer)
		return nil
	}
	i, _ := slices.BinarySearchFunc(m.running, r, func(a, b *run) int {
		return m.order(a.records[0].TimeUnixMs, a, b.records[0].TimeUnixMs, b)
	})
	m.running = slices.Insert(m.running, i, r)
	return nil
}

// verify drops those of the records just read at whose times the device of a run is not assigned to the run's subject
// any more, as when it passes to the next one at present. It returns ErrReassigned if some before them were.
func (m *Merge) verify(ctx context.Context, r *run) error {
	if len(r.records) == 0 {
		return nil
	}
	all, err := m.assigned(ctx, r.part.Device)
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	oldest := &r.records[0]
	if m.newest {
		oldest = &r.records[len(r.records)-1]
	}
	i := slices.IndexFunc(all, func(a storage.Assignment) bool {
		return a.Subject == r.part.Subject && a.Covers(oldest.TimeUnixMs)
	})
	if i < 0 {
		return ErrReassigned
	}
	ended := func(r storage.Record) bool { return r.TimeUnixMs >= all[i].ToUnixMs }
	kept := slices.DeleteFunc(r.records, ended)
	if dropped := len(kept) < len(r.records); dropped && m.newest && r.begun {
		return ErrReassigned // so were some of those before them
	} else if dropped && !m.newest {
		r.more = false
	}
	r.records, r.begun = kept, true
	return nil
}
