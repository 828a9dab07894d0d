package fhir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Reader reads the records of a device. Package storage documents its contract.
type Reader interface {
	Signs() *vitals.Signs
	Latest(ctx context.Context, device vitals.Name) (storage.Device, error)
	Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)
	Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error)
}

// Subjects reads assignments of devices to subjects. storage.Subjects documents its contract.
type Subjects interface {
	DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error)
	SubjectAssignments(ctx context.Context, subject storage.Subject) ([]storage.Assignment, error)
}

// A source is the part of an assignment that a search covers.
type source struct {
	device  vitals.Name
	subject storage.Subject
	span
}

// Records that a merger reads at once, of all its devices together and of one.
const (
	mergeRecords = 4096
	chunkRecords = 2048
	leastRecords = 16
)

// A merger yields the records of several sources in order: by time, then by device. The
// sources of one device must not overlap.
//
// It keeps records in memory only of sources that have begun: as many devices as one patient
// wears at a time.
//
// Assignments may change while it reads, also those of the past. Invariant: when a record was
// read, its device was assigned to the subject of its source at the record's time;
// TestReassignedMeanwhile checks it. So a merger looks at the assignments after each read.
type merger struct {
	reader   Reader
	subjects Subjects
	sources  []source // that have not begun, in the order of their beginnings
	newest   bool     // newest first
	atMost   int      // records per read

	running []*run
	current *run               // whose record was yielded last; nil means none
	spare   [][]storage.Record // buffers of runs that have ended
}

// A run is a source that has begun.
type run struct {
	*source
	rng     storage.Range
	records []storage.Record // read, and not yet passed
	buffer  []storage.Record
	more    bool             // there may be records after these
	forms   [numGroups]*form // nil means not used yet
}

// newMerger returns a merger of sources, which it sorts. wanted is about how many records will
// be needed.
func newMerger(reader Reader, subjects Subjects, sources []source, newest bool, wanted int) *merger {
	slices.SortFunc(sources, func(a, b source) int {
		if newest {
			return cmp.Or(cmp.Compare(b.toUnixMs, a.toUnixMs), a.device.Compare(&b.device))
		}
		return cmp.Or(cmp.Compare(a.fromUnixMs, b.fromUnixMs), a.device.Compare(&b.device))
	})
	return &merger{reader: reader, subjects: subjects, sources: sources, newest: newest, atMost: min(max(wanted, leastRecords), chunkRecords)}
}

// next returns the next record with its run, or nil at the end. Both are valid until the next
// call.
func (m *merger) next(ctx context.Context) (*run, *storage.Record, error) {
	if r := m.current; r != nil {
		m.current = nil
		r.records = r.records[1:]
		if err := m.fill(ctx, r); err != nil {
			return nil, nil, err
		}
	}
	first := m.first()
	for len(m.sources) > 0 && (first == nil || !m.beginsAfter(&m.sources[0], first.records[0].TimeUnixMs)) {
		if err := m.begin(ctx); err != nil {
			return nil, nil, err
		}
		first = m.first()
	}
	if first == nil {
		return nil, nil, nil
	}
	m.current = first
	return first, &first.records[0], nil
}

// first returns the run with the first record, or nil.
func (m *merger) first() *run {
	var first *run
	for _, r := range m.running {
		if first == nil {
			first = r
			continue
		}
		order := cmp.Compare(r.records[0].TimeUnixMs, first.records[0].TimeUnixMs)
		if m.newest {
			order = -order
		}
		if cmp.Or(order, r.device.Compare(&first.device)) < 0 {
			first = r
		}
	}
	return first
}

// beginsAfter reports whether all records of a source come after a time.
func (m *merger) beginsAfter(s *source, unixMs int64) bool {
	if m.newest {
		return s.toUnixMs <= unixMs
	}
	return s.fromUnixMs > unixMs
}

// begin begins the first of the sources.
func (m *merger) begin(ctx context.Context) error {
	s := &m.sources[0]
	m.sources = m.sources[1:]
	r := &run{source: s, more: true, rng: storage.Range{Device: s.device, FromUnixMs: s.fromUnixMs, ToUnixMs: s.toUnixMs, Descending: m.newest}}
	size := min(m.atMost, max(mergeRecords/(len(m.running)+1), leastRecords))
	if n := len(m.spare); n > 0 && len(m.spare[n-1]) >= size {
		r.buffer, m.spare = m.spare[n-1][:size], m.spare[:n-1]
	} else {
		r.buffer = make([]storage.Record, size)
	}
	m.running = append(m.running, r)
	return m.fill(ctx, r)
}

// fill reads further records of a run that has none left, or ends it if there are none.
func (m *merger) fill(ctx context.Context, r *run) error {
	if len(r.records) > 0 {
		return nil
	}
	if r.more {
		n, err := m.reader.Scan(ctx, r.rng, r.buffer)
		if err != nil {
			return fmt.Errorf("scan readings: %w", err)
		}
		r.records, r.more = r.buffer[:n], n == len(r.buffer)
		if err := m.verify(ctx, r); err != nil {
			return err
		}
	}
	if len(r.records) == 0 {
		m.running = slices.DeleteFunc(m.running, func(other *run) bool { return other == r })
		m.spare = append(m.spare, r.buffer[:cap(r.buffer)])
		return nil
	}
	last := r.records[len(r.records)-1].TimeUnixMs
	if m.newest {
		r.rng.ToUnixMs = last
	} else {
		r.rng.FromUnixMs = last + 1
	}
	return nil
}

// errReassigned means that assignments that a search reads were changed while it ran.
var errReassigned = errors.New("fhir: a device was reassigned during the search")

// verify returns errReassigned unless the device of a run is assigned to the run's subject at the
// times of the records just read.
func (m *merger) verify(ctx context.Context, r *run) error {
	if len(r.records) == 0 {
		return nil
	}
	all, err := m.subjects.DeviceAssignments(ctx, r.device)
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	// A source is a part of one assignment, so all the records belong to one.
	first, last := r.records[0].TimeUnixMs, r.records[len(r.records)-1].TimeUnixMs
	if !slices.ContainsFunc(all, func(a storage.Assignment) bool { return a.Subject == r.subject && a.Covers(first) && a.Covers(last) }) {
		return errReassigned
	}
	return nil
}

// An observations yields the Observations of a search, in order: by time, then by device, then
// by sign group.
type observations struct {
	merged   *merger
	groups   groups
	received span
	after    *position // only those after it; nil means all

	run     *run
	record  *storage.Record
	pending groups // of record, not yet yielded
}

// newObservations returns the Observations of sources that s selects and that come after a
// position; nil means all.
func newObservations(reader Reader, subjects Subjects, s *search, sources []source, after *position) *observations {
	if after != nil {
		rest := span{after.unixMs, always.toUnixMs}
		if s.newest {
			rest = span{0, after.unixMs + 1}
		}
		for i := range sources {
			sources[i].span = sources[i].and(rest)
		}
	}
	sources = slices.DeleteFunc(sources, func(src source) bool { return src.empty() || s.groups == 0 || s.received.empty() })
	wanted := chunkRecords
	if s.groups == allGroups && s.received == always && !s.countOnly {
		wanted = s.count + 2 // one that was shown already, and one of the next page
	}
	return &observations{merged: newMerger(reader, subjects, sources, s.newest, wanted), groups: s.groups, received: s.received, after: after}
}

// next advances to the next Observation: that of record, of the sign group that it returns.
func (o *observations) next(ctx context.Context) (g group, ok bool, err error) {
	for o.pending == 0 {
		if o.run, o.record, err = o.merged.next(ctx); err != nil || o.run == nil {
			return 0, false, err
		}
		if !o.received.has(o.record.ReceivedUnixMs) {
			continue
		}
		o.pending = groupsOf(&o.record.Values) & o.groups
		if after := o.after; after != nil && o.record.TimeUnixMs == after.unixMs {
			switch order := o.run.device.Compare(&after.device); {
			case order < 0:
				o.pending = 0
			case order == 0:
				o.pending &^= 1<<(after.group+1) - 1
			}
		}
	}
	g = group(bits.TrailingZeros32(uint32(o.pending)))
	o.pending &^= 1 << g
	return g, true, nil
}

// position returns the place of the Observation of the current record and a group.
func (o *observations) position(g group) position {
	return position{o.record.TimeUnixMs, o.run.device, g}
}
