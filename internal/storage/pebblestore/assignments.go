package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How assignments are stored
//
// Each assignment has one key with its device, whose value has the rest, and one key in the index
// of subjects. A batch writes both, with Store.mu held from the look-up of the device's other
// assignments until the sync: so no two overlap. There is nothing about them in memory.

var _ storage.Subjects = (*Store)(nil)

// Errors of the decoders.
var (
	errAssignment   = errors.New("an assignment is not encoded as it would be")
	errSubjectIndex = errors.New("the index of subjects does not agree with the assignments")
	errOverlap      = errors.New("assignments overlap")
)

// assignKey returns the key of an assignment.
func assignKey(k storage.AssignmentKey) []byte {
	return layout.AppendAssignKey(nil, &k.Device, k.FromUnixMs)
}

// subjectKey returns the key of an assignment in the index.
func subjectKey(a *storage.Assignment) []byte {
	return layout.AppendSubjectKey(nil, string(a.Subject), &a.Device, a.FromUnixMs)
}

// decodeAssignment decodes the key and the value of an assignment.
func decodeAssignment(key, value []byte) (a storage.Assignment, err error) {
	if a.Device, a.FromUnixMs, err = layout.DecodeAssignKey(key); err != nil {
		return a, err
	}
	var subject string
	if a.ToUnixMs, subject, err = layout.DecodeAssignment(value); err != nil {
		return a, err
	}
	if a.Subject = storage.Subject(subject); a.Validate() != nil {
		return a, errAssignment
	}
	return a, nil
}

// assignmentError returns the error of a damaged assignment.
func assignmentError(device *vitals.Name, err error) error {
	return fmt.Errorf("%w: assignment of device %s: %w", storage.ErrCorrupt, device, err)
}

// Assign implements [storage.Subjects].
func (s *Store) Assign(ctx context.Context, a storage.Assignment) error {
	err := a.Validate()
	if err == nil {
		err = s.changeAssignments(ctx, &a.Device, func(all []storage.Assignment, b *pebble.Batch) error {
			if exists, err := a.Admit(all); exists || err != nil {
				return err
			}
			return setAssignment(b, &a)
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
		return setAssignment(b, &a)
	})
	if err != nil {
		return fmt.Errorf("end assignment of device %s: %w", a.Device, err)
	}
	return nil
}

// setAssignment adds an assignment to a batch.
func setAssignment(b *pebble.Batch, a *storage.Assignment) error {
	if err := b.Set(assignKey(a.Key()), layout.AppendAssignment(nil, a.ToUnixMs, string(a.Subject)), nil); err != nil {
		return err
	}
	return b.Set(subjectKey(a), nil, nil)
}

// changeAssignments calls change with the assignments of a device, and commits what it adds to
// the batch.
func (s *Store) changeAssignments(ctx context.Context, device *vitals.Name, change func([]storage.Assignment, *pebble.Batch) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return err
	}
	all, err := assignmentsOf(s.db, device)
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

// assignmentsOf returns the assignments of a device.
func assignmentsOf(r pebble.Reader, device *vitals.Name) ([]storage.Assignment, error) {
	in := purge.AssignRange(device)
	return scanAssignments(r, in.Start, in.End, storage.MaxAssignments+1)
}

// removeAssignments adds the removal of all assignments of a device to a batch. s.mu must be held.
func (s *Store) removeAssignments(b *pebble.Batch, device *vitals.Name) error {
	all, err := assignmentsOf(s.db, device)
	if err != nil {
		return err
	}
	for i := range all {
		if err := removeAssignment(b, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeAssignment adds the removal of an assignment to a batch. Range deletions show when their
// bytes are gone: see purge.Range.
func removeAssignment(b *pebble.Batch, a *storage.Assignment) error {
	for _, key := range [][]byte{assignKey(a.Key()), subjectKey(a)} {
		if err := b.DeleteRange(key, append(bytes.Clone(key), 0), nil); err != nil {
			return err
		}
	}
	return nil
}

// scanAssignments returns the first assignments with keys from start to before end, at most most
// of them.
func scanAssignments(r pebble.Reader, start, end []byte, most int) (all []storage.Assignment, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: end})
	if err != nil {
		return nil, corrupt(err)
	}
	for ok := it.First(); ok && len(all) < most; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		a, err := decodeAssignment(it.Key(), value)
		if err != nil {
			return nil, joinClose(assignmentError(&a.Device, err), it)
		}
		all = append(all, a)
	}
	return all, corrupt(it.Close())
}

// DeviceAssignments implements [storage.Subjects].
func (s *Store) DeviceAssignments(ctx context.Context, device vitals.Name) (all []storage.Assignment, err error) {
	err = s.readAssignments(ctx, func(v *view) error {
		all, err = assignmentsOf(v, &device)
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
		prefix := layout.AppendSubjectPrefix(nil, string(subject))
		it, err := v.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: append(bytes.Clone(prefix[:len(prefix)-1]), 1)})
		if err != nil {
			return corrupt(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			a, err := v.indexed(it.Key())
			if err == nil && len(all)%ctxEvery == ctxEvery-1 {
				err = ctx.Err()
			}
			if err != nil {
				return joinClose(err, it)
			}
			all = append(all, a)
		}
		return corrupt(it.Close())
	})
	return all, err
}

// indexed returns the assignment of a key of the index.
func (v *view) indexed(key []byte) (a storage.Assignment, err error) {
	var k storage.AssignmentKey
	text, device, fromUnixMs, err := layout.DecodeSubjectKey(key)
	k.Device, k.FromUnixMs = device, fromUnixMs
	subject, parseErr := storage.ParseSubject(text)
	if err == nil && parseErr != nil {
		err = errSubjectIndex
	}
	if err != nil {
		return a, assignmentError(&k.Device, err)
	}
	at := assignKey(k)
	value, closer, err := v.Get(at)
	if errors.Is(err, pebble.ErrNotFound) {
		return a, assignmentError(&k.Device, errSubjectIndex)
	}
	if err != nil {
		return a, corrupt(err)
	}
	a, err = decodeAssignment(at, value)
	if err == nil && a.Subject != subject {
		err = errSubjectIndex
	}
	if err != nil {
		return a, joinClose(assignmentError(&k.Device, err), closer)
	}
	return a, corrupt(closer.Close())
}

// Assignments implements [storage.Subjects].
func (s *Store) Assignments(ctx context.Context, after storage.AssignmentKey, dst []storage.Assignment) (n int, err error) {
	err = s.readAssignments(ctx, func(v *view) error {
		start := []byte{layout.AssignPrefix}
		if !after.Device.IsZero() {
			start = layout.AppendAssignPrefix(nil, &after.Device)
			if after.FromUnixMs >= 0 {
				start = append(assignKey(after), 0)
			}
		}
		all, err := scanAssignments(v, start, []byte{layout.AssignPrefix + 1}, len(dst))
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

// assignments verifies all assignments and the index of subjects.
func (k *contentChecker) assignments() error {
	it, err := k.v.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.AssignPrefix}, UpperBound: []byte{layout.SubjectPrefix + 1}})
	if err != nil {
		return corrupt(err)
	}
	assigned, indexed := int64(0), int64(0)
	var last storage.Assignment
	ofDevice := 0
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			break
		}
		if it.Key()[0] == layout.SubjectPrefix {
			indexed++
			_, err := k.v.indexed(it.Key())
			if err == nil && len(value) > 0 {
				err = errSubjectIndex
			}
			if err != nil {
				if err := k.problemOrFault(corrupt(err)); err != nil {
					return joinClose(err, it)
				}
			}
			continue
		}
		assigned++
		a, err := decodeAssignment(it.Key(), value)
		switch {
		case err != nil:
			k.problem(assignmentError(&a.Device, err))
			continue
		case a.Device != last.Device:
			ofDevice = 0
		case a.FromUnixMs < last.ToUnixMs:
			k.problem(assignmentError(&a.Device, errOverlap))
		}
		if ofDevice++; ofDevice == storage.MaxAssignments+1 {
			k.problem(assignmentError(&a.Device, storage.ErrTooManyAssignments))
		}
		last = a
	}
	k.report.Assignments = assigned
	// Each key of the index has its assignment, so if there are as many, each assignment has
	// its key.
	if assigned != indexed {
		k.problem(errSubjectIndex)
	}
	if assigned > 0 && k.s.files.Format() < datadir.AssignedFormat {
		k.problem(fmt.Errorf("there are assignments, but file %s has format %d", datadir.FormatFile, k.s.files.Format()))
	}
	if err := corrupt(it.Close()); err != nil {
		return k.problemOrFault(err)
	}
	return nil
}
