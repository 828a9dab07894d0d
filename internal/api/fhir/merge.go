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
	Assignments(ctx context.Context, after storage.AssignmentKey, dst []storage.Assignment) (int, error)
}

// A source is the part of an assignment that a search covers.
type source struct {
	device  vitals.Name
	subject storage.Subject
	span
	assignedUnixMs int64 // when the assignment was last changed
}

// Records that are read at once, of all its devices together and of one.
const (
	mergeRecords = 4096
	chunkRecords = 2048
	leastRecords = 16
)

// An observations yields the Observations of a search, in order: by time, then by device, then by sign group. The sources of one
// device must not overlap.
//
// It keeps records in memory only of sources that have begun: as many devices as one patient
// wears at a time.
//
// Assignments may change while it reads, also those of the past. Invariant: when a record was
// read, its device was assigned to the subject of its source at the record's time;
// TestReassignedMeanwhile checks it. So it looks at the assignments after each read.
type observations struct {
	reader   Reader
	subjects Subjects
	*search
	sources []source  // that have not begun, in the order of their beginnings
	after   *position // only Observations after it; nil means all
	atMost  int       // records per read

	running []*run
	run     *run            // of record, which it has first; nil before the first record
	record  *storage.Record // valid until the next call of next
	pending groups          // of record, not yet yielded
}

// A run is a source that has begun.
type run struct {
	*source
	scanner storage.Scanner
	records []storage.Record // read, and not yet passed
	buffer  []storage.Record
	more    bool             // there may be records after these
	forms   [numGroups]*form // nil means not used yet
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
	sources = slices.DeleteFunc(sources, func(src source) bool { return src.empty() || s.groups == 0 || s.updated.empty() })
	slices.SortFunc(sources, func(a, b source) int {
		if s.newest {
			return cmp.Or(cmp.Compare(b.toUnixMs, a.toUnixMs), a.device.Compare(&b.device))
		}
		return cmp.Or(cmp.Compare(a.fromUnixMs, b.fromUnixMs), a.device.Compare(&b.device))
	})
	o := &observations{reader: reader, subjects: subjects, search: s, sources: sources, after: after, atMost: chunkRecords}
	if s.groups == allGroups && s.updated == always && !s.countOnly {
		o.atMost = min(max(s.count+2, leastRecords), chunkRecords) // one that was shown already, and one of the next page
	}
	return o
}

// advance makes the next record the current one. It returns false at the end.
func (o *observations) advance(ctx context.Context) (bool, error) {
	if r := o.run; r != nil {
		r.records = r.records[1:]
		if err := o.fill(ctx, r); err != nil {
			return false, err
		}
	}
	for len(o.sources) > 0 && (len(o.running) == 0 || !o.beginsAfter(&o.sources[0], o.first().records[0].TimeUnixMs)) {
		if err := o.begin(ctx); err != nil {
			return false, err
		}
	}
	if len(o.running) == 0 {
		return false, nil
	}
	o.run = o.first()
	o.record = &o.run.records[0]
	return true, nil
}

// first returns the run with the first record. There must be one.
func (o *observations) first() *run {
	return slices.MinFunc(o.running, func(a, b *run) int {
		order := cmp.Compare(a.records[0].TimeUnixMs, b.records[0].TimeUnixMs)
		if o.newest {
			order = -order
		}
		return cmp.Or(order, a.device.Compare(&b.device))
	})
}

// beginsAfter reports whether all records of a source come after a time.
func (o *observations) beginsAfter(s *source, unixMs int64) bool {
	if o.newest {
		return s.toUnixMs <= unixMs
	}
	return s.fromUnixMs > unixMs
}

// begin begins the first of the sources.
func (o *observations) begin(ctx context.Context) error {
	s := &o.sources[0]
	o.sources = o.sources[1:]
	size := min(o.atMost, max(mergeRecords/(len(o.running)+1), leastRecords))
	r := &run{
		source: s, more: true, buffer: make([]storage.Record, size),
		scanner: storage.Scanner{Range: storage.Range{Device: s.device, FromUnixMs: s.fromUnixMs, ToUnixMs: s.toUnixMs, Descending: o.newest}},
	}
	o.running = append(o.running, r)
	return o.fill(ctx, r)
}

// fill reads further records of a run that has none left, or ends it if there are none.
func (o *observations) fill(ctx context.Context, r *run) error {
	if len(r.records) > 0 {
		return nil
	}
	if r.more {
		var err error
		if r.records, r.more, err = r.scanner.Next(ctx, o.reader.Scan, r.buffer); err != nil {
			return err
		}
		if err := o.verify(ctx, r); err != nil {
			return err
		}
	}
	if len(r.records) == 0 {
		o.running = slices.DeleteFunc(o.running, func(other *run) bool { return other == r })
	}
	return nil
}

// errReassigned means that assignments that a search reads were changed while it ran.
var errReassigned = errors.New("fhir: a device was reassigned during the search")

// verify returns errReassigned unless the device of a run is assigned to the run's subject at the
// times of the records just read.
func (o *observations) verify(ctx context.Context, r *run) error {
	if len(r.records) == 0 {
		return nil
	}
	all, err := o.subjects.DeviceAssignments(ctx, r.device)
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

// next advances to the next Observation: that of record, of the sign group that it returns.
func (o *observations) next(ctx context.Context) (g group, ok bool, err error) {
	for o.pending == 0 {
		if ok, err = o.advance(ctx); err != nil || !ok {
			return 0, false, err
		}
		if !o.updated.has(lastUpdated(o.record, o.run.assignedUnixMs)) {
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
