package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
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

// appendAssignPrefix appends what the keys of a device's assignments begin with.
func appendAssignPrefix(dst []byte, device *vitals.Name) []byte {
	return append(device.AppendTo(append(dst, assignPrefix)), 0)
}

// appendAssignKey appends the key of an assignment.
func appendAssignKey(dst []byte, k storage.AssignmentKey) []byte {
	return binary.BigEndian.AppendUint64(appendAssignPrefix(dst, &k.Device), uint64(k.FromUnixMs))
}

// decodeAssignKey returns the device and the beginning in the rest of a key after its prefix.
func decodeAssignKey(key []byte) (k storage.AssignmentKey, err error) {
	end := len(key) - 9
	if end < 1 || key[end] != 0 {
		return k, errLength
	}
	if k.Device, err = vitals.ParseName(key[:end]); err != nil {
		return k, errDevice
	}
	if k.FromUnixMs = int64(binary.BigEndian.Uint64(key[end+1:])); k.FromUnixMs < 0 {
		return k, errTime
	}
	return k, nil
}

// appendAssignment appends the value of an assignment.
func appendAssignment(dst []byte, a *storage.Assignment) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, assignVersion), uint64(a.ToUnixMs))
	return append(dst, a.Subject...)
}

// decodeAssignment decodes the key and the value of an assignment.
func decodeAssignment(key, value []byte) (a storage.Assignment, err error) {
	k, err := decodeAssignKey(key[1:])
	if err != nil {
		return a, err
	}
	a.Device, a.FromUnixMs = k.Device, k.FromUnixMs
	if len(value) < 9 {
		return a, errLength
	}
	if value[0] != assignVersion {
		return a, errVersion
	}
	a.ToUnixMs, a.Subject = int64(binary.BigEndian.Uint64(value[1:])), storage.Subject(value[9:])
	if a.Validate() != nil {
		return a, errAssignment
	}
	return a, nil
}

// appendSubjectPrefix appends what the keys of a subject in the index begin with.
func appendSubjectPrefix(dst []byte, subject storage.Subject) []byte {
	return append(append(append(dst, subjectPrefix), subject...), 0)
}

// appendSubjectKey appends the key of an assignment in the index. Its value is empty.
func appendSubjectKey(dst []byte, a *storage.Assignment) []byte {
	dst = append(a.Device.AppendTo(appendSubjectPrefix(dst, a.Subject)), 0)
	return binary.BigEndian.AppendUint64(dst, uint64(a.FromUnixMs))
}

// decodeSubjectKey returns the subject and the key of the assignment in a key of the index.
func decodeSubjectKey(key []byte) (subject storage.Subject, k storage.AssignmentKey, err error) {
	text, rest, ok := bytes.Cut(key[1:], []byte{0})
	if !ok {
		return "", k, errLength
	}
	if subject, err = storage.ParseSubject(string(text)); err != nil {
		return "", k, errSubjectIndex
	}
	k, err = decodeAssignKey(rest)
	return subject, k, err
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
	if err := b.Set(appendAssignKey(nil, a.Key()), appendAssignment(nil, a), nil); err != nil {
		return err
	}
	return b.Set(appendSubjectKey(nil, a), nil, nil)
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
	if s.files.format() < assignedFormat {
		if err := s.files.upgrade(assignedFormat); err != nil {
			return joinClose(err, b)
		}
	}
	return s.commitAndPublish(b)
}

// assignmentsOf returns the assignments of a device.
func assignmentsOf(r pebble.Reader, device *vitals.Name) ([]storage.Assignment, error) {
	in := assignRange(device)
	return scanAssignments(r, in.start, in.end, storage.MaxAssignments+1)
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
// bytes are gone: see keyRange.
func removeAssignment(b *pebble.Batch, a *storage.Assignment) error {
	for _, key := range [][]byte{appendAssignKey(nil, a.Key()), appendSubjectKey(nil, a)} {
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
		prefix := appendSubjectPrefix(nil, subject)
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
	subject, k, err := decodeSubjectKey(key)
	if err != nil {
		return a, assignmentError(&k.Device, err)
	}
	at := appendAssignKey(nil, k)
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
		start := []byte{assignPrefix}
		if !after.Device.IsZero() {
			start = appendAssignPrefix(nil, &after.Device)
			if after.FromUnixMs >= 0 {
				start = append(appendAssignKey(nil, after), 0)
			}
		}
		all, err := scanAssignments(v, start, []byte{assignPrefix + 1}, len(dst))
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
		if s.files.format() >= assignedFormat {
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
	it, err := k.v.NewIter(&pebble.IterOptions{LowerBound: []byte{assignPrefix}, UpperBound: []byte{subjectPrefix + 1}})
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
		if it.Key()[0] == subjectPrefix {
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
	if assigned > 0 && k.s.files.format() < assignedFormat {
		k.problem(fmt.Errorf("there are assignments, but file %s has format %d", formatFile, k.s.files.format()))
	}
	if err := corrupt(it.Close()); err != nil {
		return k.problemOrFault(err)
	}
	return nil
}
