package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// assignments are all assignments of a store, in any order. It is a pointer, because what
// [Memory.Reopen] returns shares them.
type assignments struct {
	all     []storage.Assignment
	changes *memoryChanges // of the store; nil means that nobody is told of changes
}

// changed notes the event of a changed assignment.
func (as *assignments) changed(now, before storage.Assignment) {
	if e, ok := storage.AssignmentEvent(&now, &before); ok && as.changes != nil {
		as.changes.event(e)
	}
}

// of returns those assignments for which keep is true, by device and beginning.
func (as *assignments) of(keep func(*storage.Assignment) bool) []storage.Assignment {
	var found []storage.Assignment
	for i := range as.all {
		if keep(&as.all[i]) {
			found = append(found, as.all[i])
		}
	}
	slices.SortFunc(found, func(a, b storage.Assignment) int { ka, kb := a.Key(), b.Key(); return ka.Compare(&kb) })
	return found
}

// remove removes those assignments for which gone is true, and returns their number.
func (as *assignments) remove(gone func(*storage.Assignment) bool) int {
	before := len(as.all)
	as.all = slices.DeleteFunc(as.all, func(a storage.Assignment) bool { return gone(&a) })
	return before - len(as.all)
}

// taken reports whether an assignment of the device to a subject, other than but, includes a time of a.
func (as *assignments) taken(a storage.Assignment, but int) bool {
	for i, b := range as.all {
		overlap := b.Device == a.Device && a.FromUnixMs < b.ToUnixMs && b.FromUnixMs < a.ToUnixMs
		if overlap && i != but && b.Subject != "" {
			return true
		}
	}
	return false
}

// claim settles the claim of an entry, given the assignments of the devices of its group. It stores what has changed.
func (as *assignments) claim(wearers map[vitals.Name]*storage.Wearers, e *storage.Entry, change bool) storage.Outcome {
	if e.Claim == nil {
		return 0
	}
	device := e.Reading.Device
	if wearers[device] == nil {
		wearers[device] = as.wearers(device)
	}
	outcome := wearers[device].Settle(e, change)
	if change {
		as.write(device, wearers[device])
	}
	return outcome
}

func (as *assignments) wearers(device vitals.Name) *storage.Wearers {
	return storage.NewWearers(as.ofDevice(device))
}

func (as *assignments) ofDevice(device vitals.Name) []storage.Assignment {
	return as.of(func(a *storage.Assignment) bool { return a.Device == device })
}

// write makes the assignments of a device what w has, which may have been written before.
func (as *assignments) write(device vitals.Name, w *storage.Wearers) {
	all := Changed(w)
	type worn struct {
		subject    storage.Subject
		fromUnixMs int64
	}
	before := map[worn]storage.Assignment{}
	as.remove(func(a *storage.Assignment) bool {
		if a.Device == device {
			before[worn{a.Subject, a.FromUnixMs}] = *a
		}
		return a.Device == device
	})
	for _, now := range all {
		as.changed(now, before[worn{now.Subject, now.FromUnixMs}])
	}
	as.all = append(as.all, all...)
}

// Changed returns the assignments of which w was made, with its changes, by beginning.
func Changed(w *storage.Wearers) []storage.Assignment {
	all := map[int64]storage.Assignment{}
	for _, a := range w.Read() {
		all[a.FromUnixMs] = a
	}
	for now, before := range w.Changes() {
		if now.Device.IsZero() {
			delete(all, before.FromUnixMs)
		} else {
			all[now.FromUnixMs] = now
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b storage.Assignment) int {
		return cmp.Compare(a.FromUnixMs, b.FromUnixMs)
	})
}

// put adds an admitted assignment.
func (as *assignments) put(a storage.Assignment) {
	w := as.wearers(a.Device)
	w.Put(a)
	as.write(a.Device, w)
}

func (as *assignments) assign(a storage.Assignment) error {
	err := a.Validate()
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(as.all, a.Same):
		return nil
	case as.index(a) >= 0 && as.all[as.index(a)].ToUnixMs == a.ToUnixMs: // of another maker
		as.all[as.index(a)] = a
		return nil
	case as.taken(a, -1):
		return storage.ErrAssigned
	case !a.HasRoom(as.ofDevice(a.Device)):
		return storage.ErrTooManyAssignments
	}
	as.put(a)
	return nil
}

// index returns the position of the assignment with the device, subject and beginning of a, or -1.
func (as *assignments) index(a storage.Assignment) int {
	return slices.IndexFunc(as.all, func(b storage.Assignment) bool {
		return b.Key() == a.Key() &&
			b.Subject == a.Subject
	})
}

func (as *assignments) end(a storage.Assignment) error {
	switch i := as.index(a); {
	case i < 0:
		return storage.ErrNotAssigned
	case a.FromUnixMs >= a.ToUnixMs:
		return storage.ErrPeriod
	case as.taken(a, i):
		return storage.ErrAssigned
	case !a.HasRoom(as.ofDevice(a.Device)):
		return storage.ErrTooManyAssignments
	case as.all[i].Same(a):
		return nil
	default:
		as.put(a)
		return nil
	}
}

// erase removes an assignment and the readings that it covers.
func (as *assignments) erase(rs records, a storage.Assignment) (storage.Erasure, error) {
	i := as.index(a)
	if i < 0 {
		return storage.Erasure{}, storage.ErrNotAssigned
	}
	a = as.all[i]
	as.all = slices.Delete(as.all, i, i+1)
	e := storage.Erasure{Device: a.Device, Subject: a.Subject, FromUnixMs: a.FromUnixMs, ToUnixMs: a.ToUnixMs}
	before := len(rs[a.Device])
	maps.DeleteFunc(rs[a.Device], func(ms int64, _ storage.Record) bool { return a.FromUnixMs <= ms && ms < a.ToUnixMs })
	if e.Readings = int64(before - len(rs[a.Device])); len(rs[a.Device]) == 0 {
		delete(rs, a.Device)
	}
	return e, nil
}

// Assign implements [storage.Subjects].
func (m *Memory) Assign(ctx context.Context, a storage.Assignment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readable(ctx); err != nil {
		return fmt.Errorf("assign device: %w", err)
	}
	return m.assigned.assign(a)
}

// EndAssignment implements [storage.Subjects].
func (m *Memory) EndAssignment(ctx context.Context, a storage.Assignment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readable(ctx); err != nil {
		return fmt.Errorf("end assignment: %w", err)
	}
	return m.assigned.end(a)
}

// DeviceAssignments implements [storage.Subjects].
func (m *Memory) DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error) {
	return readAssignments(ctx, m, func(a *storage.Assignment) bool { return a.Device == device && a.Subject != "" })
}

// VisitAssignments implements [storage.Subjects].
func (m *Memory) VisitAssignments(ctx context.Context, devices []vitals.Name, visit func(*storage.Assignment)) error {
	all, err := readAssignments(ctx, m, func(a *storage.Assignment) bool {
		return slices.Contains(devices, a.Device) && a.Subject != ""
	})
	for i := range all {
		visit(&all[i])
	}
	return err
}

// SubjectAssignments implements [storage.Subjects].
func (m *Memory) SubjectAssignments(ctx context.Context, subject storage.Subject) ([]storage.Assignment, error) {
	return readAssignments(ctx, m, func(a *storage.Assignment) bool { return a.Subject == subject })
}

// Assignments implements [storage.Subjects].
func (m *Memory) Assignments(ctx context.Context, after storage.AssignmentKey, dst []storage.Assignment) (int, error) {
	found, err := readAssignments(ctx, m, func(a *storage.Assignment) bool { k := a.Key(); return k.Compare(&after) > 0 })
	return copy(dst, found), err
}

func readAssignments(ctx context.Context, m *Memory, keep func(*storage.Assignment) bool) ([]storage.Assignment,
	error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.readable(ctx); err != nil {
		return nil, fmt.Errorf("read assignments: %w", err)
	}
	return m.assigned.of(keep), nil
}

// EraseAssignment implements [storage.Remover].
func (m *Memory) EraseAssignment(e storage.Assignment) (storage.Erasure, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return storage.Erasure{}, fmt.Errorf("erase assignment: %w", storage.ErrClosed)
	}
	x, err := m.assigned.erase(m.records, e)
	if err == nil {
		m.changes.erased(&x, nil)
	}
	return x, err
}
