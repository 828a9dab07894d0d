package fhir

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"slices"

	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// sees reports whether the export has what a subject wore.
func (e *export) sees(a *storage.Assignment) bool {
	return a.Subject != "" && a.Device.HasPrefix(&e.group) &&
		!hides(e.may, &a.Device) && e.may.CoversSubject(string(a.Subject))
}

// before returns the name that sorts right before those of the devices that may be in the export.
func (e *export) before() vitals.Name {
	before, own := token.Before(e.group), e.may.Before()
	if before.Compare(&own) < 0 {
		return own
	}
	return before
}

// assignments calls visit with the assignments that the export has, by device and beginning.
func (e *export) assignments(ctx context.Context, visit func(*storage.Assignment) error) error {
	after, page := storage.AssignmentKey{Device: e.before()}, make([]storage.Assignment, 64)
	for n := len(page); n == len(page); {
		err := e.renew(ctx)
		if err == nil {
			n, err = e.Assignments(ctx, after, page)
		}
		for i := 0; i < n && err == nil; i++ {
			a := &page[i]
			after = a.Key()
			if in := a.Device.HasPrefix(&e.group); !in && a.Device.Compare(&e.group) > 0 {
				return nil
			} else if in && e.sees(a) { // without in, it may be the device right before
				err = visit(a)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxKnown is the number of patients that patients remembers.
const maxKnown = 1 << 14

// patients emits each Patient at the first of the assignments that the export has of him. When it no longer remembers
// him, that is the first one that has not changed since the export was started. So none is missing if an assignment is
// made or changed meanwhile, though there may be one twice.
func (e *export) patients(ctx context.Context) error {
	if !slices.Contains(e.types, "Patient") {
		return nil
	}
	known := map[storage.Subject]bool{}
	return e.assignments(ctx, func(a *storage.Assignment) error {
		if known[a.Subject] {
			return nil
		}
		all, err := e.ofPatients(ctx, []storage.Subject{a.Subject})
		if err != nil && !errors.Is(err, errForbidden) {
			return err
		}
		if len(known) == maxKnown {
			clear(known)
		}
		known[a.Subject] = true
		key, here := a.Key(), false
		before := func(b storage.Assignment) bool {
			at, sees := b.Key(), e.sees(&b)
			here = here || sees
			return sees && b.ChangedUnixMs <= e.UnixMs && at.Compare(&key) < 0
		}
		if err != nil || slices.ContainsFunc(all, before) || !here {
			return nil
		}
		return e.emit(patientResource(a.Subject))
	})
}

// devices emits the Devices that have readings: of the system, all that the client may see, and otherwise those that
// were assigned.
func (e *export) devices(ctx context.Context) error {
	if !slices.Contains(e.types, "Device") {
		return nil
	}
	if e.Scope == ofSystem && !e.may.BoundToSubjects() {
		return e.allDevices(ctx)
	}
	var last vitals.Name
	return e.assignments(ctx, func(a *storage.Assignment) error {
		if a.Device == last {
			return nil
		}
		last = a.Device
		gone, err := e.gone(ctx, &a.Device)
		if gone || err != nil {
			return err
		}
		return e.emit(deviceResource(&a.Device))
	})
}

func (e *export) allDevices(ctx context.Context) error {
	after, page := e.before(), make([]storage.Device, 256)
	for n := len(page); n == len(page); {
		err := e.renew(ctx)
		if err == nil {
			n, err = e.Devices(ctx, after, page)
		}
		for i := 0; i < n && err == nil; i++ {
			if after = page[i].Name; hides(e.may, &after) {
				return nil
			}
			err = e.emit(deviceResource(&after))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gone reports whether a device has no readings.
func (e *export) gone(ctx context.Context, device *vitals.Name) (bool, error) {
	_, err := e.Latest(ctx, *device)
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// observations emits the Observations of assignments that were changed since, then those of readings that were, and
// then what erasures of a gateway's values have left. Without _since these are all assignments.
func (e *export) observations(ctx context.Context) error {
	if !slices.Contains(e.types, "Observation") {
		return nil
	}
	if e.incremental() {
		var err error
		if e.begun, _, err = e.changes.Position(ctx); err != nil {
			return err
		}
	}
	page := make([]storage.Record, chunkRecords)
	span := func(of storage.Range, byAssignment bool) (err error) {
		for n := len(page); n == len(page); of.FromUnixMs = page[n-1].TimeUnixMs + 1 {
			if n, err = e.Scan(ctx, of, page); n == 0 || err != nil {
				return err
			}
			if err := e.records(ctx, of.Device, page[:n], byAssignment); err != nil {
				return err
			}
		}
		return nil
	}
	err := e.assignments(ctx, func(a *storage.Assignment) error {
		if a.ChangedUnixMs <= e.sinceUnixMs {
			return nil
		}
		return span(storage.Range{Device: a.Device, FromUnixMs: a.FromUnixMs, ToUnixMs: a.ToUnixMs}, true)
	})
	if err == nil && e.incremental() {
		err = e.changed(ctx)
	}
	if err != nil {
		return err
	}
	return e.events(ctx, func(c *storage.Change) error {
		if !c.Left {
			return nil
		}
		// The client does not know the gateways, and removes all Observations of the time.
		return span(storage.Range{Device: c.Device, FromUnixMs: c.FromUnixMs, ToUnixMs: c.ToUnixMs}, false)
	})
}

// maxExamined is the number of changed readings after which changed looks again at what the client may see.
const maxExamined = 1 << 16

// A changedReading is the place of a reading.
type changedReading struct {
	device vitals.Name
	unixMs int64
}

// changed emits the Observations of readings that were changed since, and whose assignment was not when the file was
// begun.
func (e *export) changed(ctx context.Context) error {
	from, err := e.changes.PositionAt(ctx, e.sinceUnixMs+1)
	if err != nil {
		return err
	}
	to, _, err := e.changes.Position(ctx)
	if err != nil {
		return err
	}
	var found []changedReading
	key := storage.ChangedKey{}
	for more := true; more && err == nil; {
		if err = e.renew(ctx); err != nil {
			break
		}
		found, more = found[:0], false
		examined := 0
		visit := func(part uint64, device *vitals.Name, records []storage.Record) bool {
			n := min(len(records), chunkRecords-len(found))
			for i := range records[:n] {
				expired := records[i].Values.IsZero()
				if !expired && lastUpdated(&records[i], 0) > e.sinceUnixMs && !hides(e.may, device) {
					found = append(found, changedReading{*device, records[i].TimeUnixMs})
				}
			}
			key = storage.ChangedKey{Part: part, Device: *device, TimeUnixMs: records[n-1].TimeUnixMs}
			examined += n
			more = n < len(records) || len(found) == chunkRecords || examined >= maxExamined
			return !more
		}
		if err = e.changes.VisitChanged(ctx, from, to, key, e.group, visit); err == nil {
			err = e.found(ctx, found)
		}
	}
	return err
}

// found emits the Observations of readings as they are now: where they were found, they may be without the signs that
// have completed them.
func (e *export) found(ctx context.Context, all []changedReading) error {
	slices.SortFunc(all, func(a, b changedReading) int {
		return cmp.Or(a.device.Compare(&b.device), cmp.Compare(a.unixMs, b.unixMs))
	})
	all = slices.Compact(all)
	page := make([]storage.Record, 64) // few, because others may be between
	for len(all) > 0 {
		end := 1
		for end < len(all) && all[end].device == all[0].device {
			end++
		}
		of, device := all[:end], all[0].device
		within := storage.Range{Device: device, FromUnixMs: of[0].unixMs, ToUnixMs: of[end-1].unixMs + 1}
		n, err := e.Scan(ctx, within, page)
		if err != nil {
			return err
		}
		place := func(unixMs int64) (int, bool) {
			return slices.BinarySearchFunc(of, unixMs, func(c changedReading, unixMs int64) int {
				return cmp.Compare(c.unixMs, unixMs)
			})
		}
		if n == len(page) {
			end, _ = place(page[n-1].TimeUnixMs + 1)
		}
		kept := slices.DeleteFunc(page[:n], func(r storage.Record) bool {
			_, ok := place(r.TimeUnixMs)
			return !ok
		})
		if err := e.records(ctx, device, kept, false); err != nil {
			return err
		}
		all = all[end:]
	}
	return nil
}

// emitted reports whether the walk along assignments has found that one was changed since: it has no change from after
// the file was begun, behind the place that the walk had reached.
func (e *export) emitted(ctx context.Context, a *storage.Assignment) (bool, error) {
	if a.ChangedUnixMs <= e.sinceUnixMs || a.ChangedUnixMs != e.begun.ChangedUnixMs {
		return a.ChangedUnixMs > e.sinceUnixMs && a.ChangedUnixMs < e.begun.ChangedUnixMs, nil
	}
	now, _, err := e.changes.Position(ctx)
	emitted := true
	if err == nil {
		err = e.changes.VisitEvents(ctx, e.begun.Event, now.Event, func(c *storage.Change) bool {
			emitted = c.Device != a.Device
			return emitted
		})
	}
	return emitted, err
}

// records emits the Observations of records of a device that have just been read: those whose assignment was changed
// since, or those of which only the reading was. It looks at the assignments after the records were read, for the
// reason that [query.Merge] has.
func (e *export) records(ctx context.Context, device vitals.Name, records []storage.Record, byAssignment bool) error {
	if err := e.renew(ctx); err != nil || len(records) == 0 {
		return err
	}
	all, err := e.DeviceAssignments(ctx, device)
	if err != nil {
		return err
	}
	var worn storage.Assignment
	skips := false
	var forms [numGroups]*form
	signs := e.Signs()
	for i := range records {
		r := &records[i]
		if !worn.Covers(r.TimeUnixMs) {
			if worn = storage.SpanAt(all, r.TimeUnixMs); worn.Device == device {
				clear(forms[:])
			}
			if skips = worn.ChangedUnixMs <= e.sinceUnixMs; !byAssignment {
				if skips, err = e.emitted(ctx, &worn); err != nil {
					return err
				}
			}
		}
		updated := lastUpdated(r, worn.ChangedUnixMs)
		if worn.Device != device || !e.sees(&worn) || skips {
			continue
		}
		for left := groupsOf(&r.Values); left != 0; left &= left - 1 {
			g := group(bits.TrailingZeros32(uint32(left)))
			if !e.selects(r.TimeUnixMs, updated, g) {
				continue
			}
			if forms[g] == nil {
				forms[g] = newForm("", signs, &device, worn.Subject, g)
			}
			e.line = forms[g].appendResource(e.line[:0], r, worn.ChangedUnixMs)
			if err := e.emit(e.line); err != nil {
				return err
			}
		}
	}
	return nil
}

// selects reports whether a filter selects an Observation, or there is none.
func (e *export) selects(unixMs, updatedUnixMs int64, g group) bool {
	return e.filters == nil || slices.ContainsFunc(e.filters, func(s *search) bool {
		return s.groups&(1<<g) != 0 && s.measured.has(unixMs) && s.updated.has(updatedUnixMs)
	})
}
