package pebblestore

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/vitals"
)

var _ storage.Subjects = (*Store)(nil)

// Assign implements [storage.Subjects].
func (s *Store) Assign(ctx context.Context, a storage.Assignment) error {
	err := a.Validate()
	if err == nil {
		err = s.changeAssignments(ctx, &a.Device, func(all []storage.Assignment, b *pebble.Batch) error {
			if exists, err := a.Admit(all); exists || err != nil {
				return err
			}
			return assign.Set(b, &a)
		})
	}
	if err != nil {
		return fmt.Errorf("assign device %s: %w", a.Device, err)
	}
	return nil
}

// EndAssignment implements [storage.Subjects].
func (s *Store) EndAssignment(ctx context.Context, a storage.Assignment) error {
	err := s.changeAssignments(ctx, &a.Device, func(all []storage.Assignment, b *pebble.Batch) error {
		if err := a.AdmitEnd(all); err != nil {
			return err
		}
		return assign.Set(b, &a)
	})
	if err != nil {
		return fmt.Errorf("end assignment of device %s: %w", a.Device, err)
	}
	return nil
}

// changeAssignments calls change with the assignments of a device, and commits what it adds to
// the batch. s.mu is held until the sync, so that no two assignments overlap.
func (s *Store) changeAssignments(ctx context.Context, device *vitals.Name, change func([]storage.Assignment, *pebble.Batch) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return err
	}
	all, err := assign.Of(s.db, device)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	if err := change(all, b); err != nil || b.Empty() {
		return joinClose(err, b)
	}
	if s.files.Format() < datadir.AssignedFormat {
		if err := s.files.Upgrade(datadir.AssignedFormat); err != nil {
			return joinClose(err, b)
		}
	}
	return s.commitAndPublish(b)
}

// DeviceAssignments implements [storage.Subjects].
func (s *Store) DeviceAssignments(ctx context.Context, device vitals.Name) (all []storage.Assignment, err error) {
	err = s.readAssignments(ctx, func(v *view) error {
		all, err = assign.Of(v, &device)
		return err
	})
	return all, err
}

// SubjectAssignments implements [storage.Subjects].
func (s *Store) SubjectAssignments(ctx context.Context, subject storage.Subject) (all []storage.Assignment, err error) {
	if _, err := storage.ParseSubject(string(subject)); err != nil {
		return nil, fmt.Errorf("read assignments: %w", err)
	}
	err = s.readAssignments(ctx, func(v *view) error {
		all, err = assign.OfSubject(ctx, v, subject)
		return err
	})
	return all, err
}

// Assignments implements [storage.Subjects].
func (s *Store) Assignments(ctx context.Context, after storage.AssignmentKey, dst []storage.Assignment) (n int, err error) {
	err = s.readAssignments(ctx, func(v *view) error {
		all, err := assign.After(v, after, len(dst))
		n = copy(dst, all)
		return err
	})
	return n, err
}

// readAssignments calls read with the current view. It does not if the store has never had
// assignments: every request for a device's latest values asks for them.
func (s *Store) readAssignments(ctx context.Context, read func(*view) error) error {
	v, err := s.enter(ctx)
	if err == nil {
		if s.files.Format() >= datadir.AssignedFormat {
			err = read(v)
		}
		s.views.release(v)
	}
	if err != nil {
		return fmt.Errorf("read assignments: %w", err)
	}
	return nil
}
