package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/vitals"
)

var _ storage.Subjects = (*Store)(nil)

// A subjects has the assignments of devices to subjects.
type subjects struct{ *engine }

// Assign implements [storage.Subjects].
func (j *subjects) Assign(ctx context.Context, a storage.Assignment) error {
	err := a.Validate()
	if err == nil {
		err = j.changeAssignment(ctx, &a, func(all []storage.Assignment) (exists bool, err error) { return a.Admit(all) })
	}
	if err != nil {
		return fmt.Errorf("assign device %s: %w", a.Device, err)
	}
	return nil
}

// EndAssignment implements [storage.Subjects].
func (j *subjects) EndAssignment(ctx context.Context, a storage.Assignment) error {
	err := j.changeAssignment(ctx, &a, func(all []storage.Assignment) (exists bool, err error) {
		return slices.ContainsFunc(all, a.Same), a.AdmitEnd(all)
	})
	if err != nil {
		return fmt.Errorf("end assignment of device %s: %w", a.Device, err)
	}
	return nil
}

// changeAssignment stores an assignment, if admit, which it calls with the assignments of the device, returns nil, and
// that it does not exist. j.mu is held until the sync, so that no two assignments overlap.
func (j *subjects) changeAssignment(ctx context.Context, a *storage.Assignment,
	admit func([]storage.Assignment) (exists bool, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.ready(); err != nil {
		return err
	}
	all, err := assign.Of(j.db, &a.Device)
	if err != nil {
		return err
	}
	if exists, err := admit(all); exists || err != nil {
		return err
	}
	before := storage.Assignment{}
	if i := slices.IndexFunc(all, func(b storage.Assignment) bool { return b.FromUnixMs == a.FromUnixMs }); i >= 0 {
		before = all[i]
	}
	a.ChangedUnixMs = j.settler.now(a.ChangedUnixMs)
	w := storage.NewWearers(all)
	w.Put(*a)
	b := j.db.NewBatch()
	if err := errors.Join(assign.Write(b, w), j.settler.changes(b, j.nextGroup, assignmentEvent(a, &before))); err != nil {
		return errors.Join(err, b.Close())
	}
	j.assigned.Store(true)
	return j.commitAndPublish(b)
}

// DeviceAssignments implements [storage.Subjects].
func (j *subjects) DeviceAssignments(ctx context.Context, device vitals.Name) (all []storage.Assignment, err error) {
	err = j.readAssignments(ctx, func(v *view) error {
		all, err = assign.Of(v, &device)
		return err
	})
	return storage.Worn(all), err
}

// VisitAssignments implements [storage.Subjects].
func (j *subjects) VisitAssignments(ctx context.Context, devices []vitals.Name, visit func(*storage.Assignment)) error {
	return j.readAssignments(ctx, func(v *view) error {
		for i := range devices {
			all, err := assign.Of(v, &devices[i])
			if err != nil {
				return err
			}
			all = storage.Worn(all)
			for i := range all {
				visit(&all[i])
			}
		}
		return nil
	})
}

// SubjectAssignments implements [storage.Subjects].
func (j *subjects) SubjectAssignments(ctx context.Context, subject storage.Subject) (all []storage.Assignment,
	err error) {
	if _, err := storage.ParseSubject(string(subject)); err != nil {
		return nil, fmt.Errorf("read assignments: %w", err)
	}
	err = j.readAssignments(ctx, func(v *view) error {
		all, err = assign.OfSubject(ctx, v, subject)
		return err
	})
	return all, err
}

// Assignments implements [storage.Subjects].
func (j *subjects) Assignments(ctx context.Context, after storage.AssignmentKey, dst []storage.Assignment) (n int,
	err error) {
	err = j.readAssignments(ctx, func(v *view) error {
		all, err := assign.After(v, after, len(dst))
		n = copy(dst, all)
		return err
	})
	return n, err
}

// readAssignments calls read with the current view. It does not if the store has had no assignment
// since it was opened: every request for a device's latest values asks for them.
func (j *subjects) readAssignments(ctx context.Context, read func(*view) error) error {
	v, err := j.enter(ctx)
	if err == nil {
		if j.assigned.Load() {
			err = read(v)
		}
		j.views.release(v)
	}
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	return nil
}
