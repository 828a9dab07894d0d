package query

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// MaxWorn is the maximum number of devices that are assigned to a subject at one time, for a request for its readings:
// the records of so many are in memory.
const MaxWorn = 1024

// A SubjectAssigner returns assignments. storage.Subjects documents its contract.
type SubjectAssigner interface {
	DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error)
	SubjectAssignments(ctx context.Context, subject storage.Subject) ([]storage.Assignment, error)
}

// AssignmentsOf returns the assignments of a subject, and whether a request may read what was measured during them: see
// [gate.Access.MayReadSubject].
func AssignmentsOf(
	ctx context.Context, store SubjectAssigner, access *gate.Access, subject storage.Subject,
) (all []storage.Assignment, may bool, err error) {
	if !access.CoversSubject(string(subject)) {
		return nil, false, nil
	}
	if all, err = store.SubjectAssignments(ctx, subject); err != nil {
		return nil, false, fmt.Errorf("read assignments: %w", err)
	}
	return all, access.MayReadSubject(string(subject), devicesOf(all)), nil
}

// devicesOf returns the devices of assignments, which are in their order, each once.
func devicesOf(all []storage.Assignment) (devices []vitals.Name) {
	for i := range all {
		if i == 0 || all[i].Device != all[i-1].Device {
			devices = append(devices, all[i].Device)
		}
	}
	return devices
}

// A worn is what a subject has worn.
type worn struct {
	subject storage.Subject
	all     []storage.Assignment // of the subject, by device
	store   SubjectAssigner
	cursor  *string    // in the request; nil means none
	after   *deviceKey // only readings after this one; nil means all

	returned map[*storage.Assignment]period // of the readings that were returned, by part of an assignment
	verified time.Time                      // when verify was called last
}

// A period has the times of the first and the last of some readings.
type period struct{ firstUnixMs, lastUnixMs int64 }

// note notes that readings of a part of an assignment are returned.
func (w *worn) note(part *storage.Assignment, records []storage.Record) {
	a, b := records[0].TimeUnixMs, records[len(records)-1].TimeUnixMs
	now := period{min(a, b), max(a, b)}
	if before, ok := w.returned[part]; ok {
		now = period{min(now.firstUnixMs, before.firstUnixMs), max(now.lastUnixMs, before.lastUnixMs)}
	}
	w.returned[part] = now
}

// verify returns ErrReassigned unless the readings that were returned still lie in assignments of the subject. They are
// held in memory for as long as the client takes to read those of other devices, and assignments may change.
func (w *worn) verify(ctx context.Context) error {
	w.verified = time.Now()
	all, err := w.store.SubjectAssignments(ctx, w.subject)
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	for part, p := range w.returned {
		if !slices.ContainsFunc(all, func(a storage.Assignment) bool {
			return a.Device == part.Device && a.Covers(p.firstUnixMs) && a.Covers(p.lastUnixMs)
		}) {
			return ErrReassigned
		}
	}
	return nil
}

// of makes q select what was measured of a subject.
func (q *Selection) of(w *worn) {
	q.worn = w
	q.Assigned = []storage.Assignment{{Subject: w.subject, FromUnixMs: math.MinInt64, ToUnixMs: storage.OpenEnd}}
}

// parts returns the parts of the assignments of a subject that lie in q.Range.
func (q *Selection) parts() (parts []storage.Assignment) {
	for _, a := range q.worn.all {
		a.FromUnixMs, a.ToUnixMs = max(a.FromUnixMs, q.Range.FromUnixMs), min(a.ToUnixMs, q.Range.ToUnixMs)
		if a.FromUnixMs < a.ToUnixMs {
			parts = append(parts, a)
		}
	}
	return parts
}

// checkWorn returns an error if more than MaxWorn devices are assigned to a subject at one time of q.Range.
func (q *Selection) checkWorn() error {
	var begins, ends []int64
	for _, p := range q.parts() {
		begins, ends = append(begins, p.FromUnixMs), append(ends, p.ToUnixMs)
	}
	slices.Sort(begins)
	slices.Sort(ends)
	for i := MaxWorn; i < len(begins); i++ {
		if begins[i] < ends[i-MaxWorn] { // at begins[i], i+1 have begun, and at most i-MaxWorn have ended
			reason := fmt.Sprintf("more than %d devices are assigned to the subject at one time of the range", MaxWorn)
			return &ParamError{"", reason}
		}
	}
	return nil
}

// ofSubject returns a function that returns the records of q.Range during the assignments of a subject.
func (q *Selection) ofSubject(reader Reader, chunk int) nextFunc {
	parts := q.parts()
	merge := NewMerge(reader.Scan, q.worn.store.DeviceAssignments, parts, q.Range.Descending, chunk)
	w, after := q.worn, q.worn.after
	w.returned, w.verified = map[*storage.Assignment]period{}, time.Now()
	return func(ctx context.Context) (device vitals.Name, records []storage.Record, more bool, err error) {
		part, records, err := merge.Next(ctx)
		if err != nil || len(records) == 0 {
			return device, nil, false, err
		}
		device = part.Device
		if after != nil && records[0].TimeUnixMs == after.rank && device.Compare(&after.name) <= 0 {
			records = records[1:] // shown before
		}
		if len(records) > 0 {
			w.note(part, records)
		}
		if time.Since(w.verified) > allowedEvery {
			err = w.verify(ctx)
		}
		return device, records, true, err
	}
}

// params reads the parameters of a request for a page, and the cursor. That of a subject is in the body: it belongs to
// the subject, of which an address must not tell.
func (q *Selection) params(raw string, known ...string) *Params {
	if q.worn == nil {
		return ReadParams(raw, nil, append(known, "cursor")...)
	}
	p := ReadParams(raw, nil, known...)
	if q.worn.cursor != nil && p.Err == nil {
		if p.values == nil {
			p.values = map[string][]string{}
		}
		p.values.Set("cursor", *q.worn.cursor)
	}
	return p
}

// formats returns the number of formats of readings.
func (q *Selection) formats() Format {
	if q.worn != nil {
		return SubjectFormats
	}
	return Format(len(formatNames))
}

// owner returns the device or the subject.
func (q *Selection) owner() string {
	if q.worn != nil {
		return string(q.worn.subject)
	}
	return q.Range.Device.String()
}

// timeCursor returns the kind of the cursors of readings.
func (q *Selection) timeCursor() byte {
	switch {
	case q.worn != nil && q.Range.Descending:
		return cursorWornDescending
	case q.worn != nil:
		return cursorWornAscending
	case q.Range.Descending:
		return cursorDescending
	}
	return cursorAscending
}

// cursorAfter returns the cursor that continues after a reading.
func (q *Selection) cursorAfter(last *deviceKey) string {
	if q.worn != nil {
		return q.list.deviceCursor(last)
	}
	return q.list.msCursor(last.rank)
}

// continueAfter makes q begin after the reading of a cursor.
func (q *Selection) continueAfter(cursor string) (err error) {
	last, shared := deviceKey{}, int64(0) // time that further readings may share
	if q.worn != nil {
		last, err = q.list.parseDevice(cursor)
		q.worn.after, shared = &last, 1
	} else {
		last.rank, err = q.list.parseMs(cursor)
	}
	if err != nil {
		return err
	}
	if q.Range.Descending {
		q.Range.ToUnixMs = min(q.Range.ToUnixMs, last.rank+shared)
	} else {
		q.Range.FromUnixMs = max(q.Range.FromUnixMs, last.rank+1-shared)
	}
	return nil
}
