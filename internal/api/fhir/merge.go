package fhir

import (
	"context"
	"math/bits"

	"github.com/pulsegate/pulsegate/internal/api/query"
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

// chunkRecords is the number of records that are read at once.
const chunkRecords = 2048

// An observations yields the Observations of a search, in order: by time, then by device, then by sign group. The
// sources of one device must not overlap.
type observations struct {
	*search
	merge *query.Merge
	after *position // only Observations after it; nil means all

	source  *storage.Assignment // of record: the part of an assignment that the search covers
	record  *storage.Record     // valid until the next call of next
	records []storage.Record    // of source, from record on
	pending groups              // of record, not yet yielded
}

// newObservations returns the Observations of sources that s selects and that come after a
// position; nil means all.
func newObservations(
	reader Reader, subjects Subjects, s *search, sources []storage.Assignment, after *position,
) *observations {
	if after != nil {
		rest := span{after.unixMs, always.toUnixMs}
		if s.newest {
			rest = span{0, after.unixMs + 1}
		}
		for i := range sources {
			sources[i] = within(&sources[i], rest)
		}
	}
	if s.groups == 0 || s.updated.empty() {
		sources = nil
	}
	atMost := chunkRecords
	if s.groups == allGroups && s.updated == always && !s.countOnly {
		atMost = min(s.count+2, chunkRecords) // one that was shown already, and one of the next page
	}
	return &observations{
		search: s, after: after,
		merge: query.NewMerge(reader.Scan, subjects.DeviceAssignments, sources, s.newest, atMost),
	}
}

// within returns the part of an assignment that lies in a span. It may be empty.
func within(a *storage.Assignment, s span) storage.Assignment {
	part := *a
	s = span{a.FromUnixMs, a.ToUnixMs}.and(s)
	part.FromUnixMs, part.ToUnixMs = s.fromUnixMs, s.toUnixMs
	return part
}

// advance makes the next record the current one. It returns false at the end.
func (o *observations) advance(ctx context.Context) (ok bool, err error) {
	if len(o.records) > 0 {
		o.records = o.records[1:]
	}
	if len(o.records) == 0 {
		if o.source, o.records, err = o.merge.Next(ctx); err != nil || len(o.records) == 0 {
			return false, err
		}
	}
	o.record = &o.records[0]
	return true, nil
}

// next advances to the next Observation: that of record, of the sign group that it returns.
func (o *observations) next(ctx context.Context) (g group, ok bool, err error) {
	for o.pending == 0 {
		if ok, err = o.advance(ctx); err != nil || !ok {
			return 0, false, err
		}
		if !o.updated.has(lastUpdated(o.record, o.source.ChangedUnixMs)) {
			continue
		}
		o.pending = groupsOf(&o.record.Values) & o.groups
		if after := o.after; after != nil && o.record.TimeUnixMs == after.unixMs {
			switch order := o.source.Device.Compare(&after.device); {
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
