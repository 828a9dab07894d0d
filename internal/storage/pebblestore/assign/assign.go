// Package assign stores which subject a device is assigned to, and when.
//
// # Promise
//
// Each assignment has one key with its device, whose value has the rest, and, unless it is a span of nobody, one key in
// the index of subjects. Write and Remove add changes of both to one batch. Readers return an error that wraps
// storage.ErrCorrupt if a key or a value is not what was written, or if the two disagree.
//
// # Not here
//
// Whether an assignment may be stored, and locks: package pebblestore. Nothing is kept in memory.
package assign

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

var (
	errEncoding = errors.New("an assignment is not encoded as it would be")
	errIndex    = errors.New("the index of subjects does not agree with the assignments")
	errOverlap  = errors.New("assignments overlap")
)

// Key returns the key of an assignment.
func Key(a *storage.Assignment) []byte { return layout.AppendAssignKey(nil, &a.Device, keyUnixMs(a)) }

// keyUnixMs returns the time in the key of an assignment: its beginning, or the last millisecond of a span of nobody,
// which stays when a message moves the beginning. A key that moved with each message would leave a deletion in its
// place, over which every reader steps.
func keyUnixMs(a *storage.Assignment) int64 {
	if a.Subject == "" {
		return a.ToUnixMs - 1
	}
	return a.FromUnixMs
}

// SubjectKey returns the key of an assignment in the index.
func SubjectKey(a *storage.Assignment) []byte {
	return layout.AppendSubjectKey(nil, string(a.Subject), &a.Device, a.FromUnixMs)
}

// decode decodes the key and the value of an assignment.
func decode(key, value []byte) (a storage.Assignment, err error) {
	if a.Device, a.FromUnixMs, err = layout.DecodeAssignKey(key); err == nil {
		var stored layout.Assignment
		stored, err = layout.DecodeAssignment(value)
		a.ToUnixMs, a.Subject, a.By = stored.OtherUnixMs, storage.Subject(stored.Subject), storage.Maker(stored.By)
		a.NamedUnixMs, a.ChangedUnixMs = stored.NamedUnixMs, stored.ChangedUnixMs
		if a.Subject == "" {
			a.FromUnixMs, a.ToUnixMs = a.ToUnixMs, a.FromUnixMs+1
		}
	}
	if err == nil && a.Validate() != nil {
		err = errEncoding
	}
	return a, corrupt(&a.Device, err)
}

// Any reports whether there may be assignments: they may be damaged.
func Any(r pebble.Reader) (bool, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.AssignPrefix},
		UpperBound: []byte{layout.SubjectPrefix + 1}})
	if err != nil {
		return false, damage.Wrap(err)
	}
	any := it.First() || it.Error() != nil
	_ = it.Close() // its error is that of First
	return any, nil
}

// corrupt returns the error of a damaged assignment, or nil if err is nil.
func corrupt(device *vitals.Name, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: assignment of device %s: %w", storage.ErrCorrupt, device, err)
}

// set adds an assignment to a batch.
func set(b *pebble.Batch, a *storage.Assignment, isNew bool) error {
	stored := layout.Assignment{By: byte(a.By), NamedUnixMs: a.NamedUnixMs, OtherUnixMs: a.ToUnixMs,
		ChangedUnixMs: a.ChangedUnixMs, Subject: string(a.Subject)}
	if a.Subject == "" {
		stored.OtherUnixMs = a.FromUnixMs
	}
	if err := b.Set(Key(a), layout.AppendAssignment(nil, stored), nil); err != nil {
		return err
	}
	if a.Subject == "" || !isNew {
		return nil
	}
	return b.Set(SubjectKey(a), nil, nil)
}

// Write adds the changes of the assignments of a device to a batch.
func Write(b *pebble.Batch, w *storage.Wearers) (err error) {
	for now, before := range w.ChangesBy(keyUnixMs) {
		if now.Device.IsZero() {
			err = Remove(b, &before)
		} else {
			err = set(b, &now, before.Device.IsZero())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove adds the removal of an assignment to a batch. A range deletion stays as long as there is a value
// that it deletes, also one that was stored before its end was set: see purge.Range.
func Remove(b *pebble.Batch, a *storage.Assignment) error {
	keys := [][]byte{Key(a), SubjectKey(a)}
	if a.Subject == "" {
		keys = keys[:1]
	}
	for _, key := range keys {
		if err := b.DeleteRange(key, append(bytes.Clone(key), 0), nil); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAll adds the removal of all assignments of a device to a batch.
func RemoveAll(b *pebble.Batch, r pebble.Reader, device *vitals.Name) error {
	all, err := Of(r, device)
	if err != nil {
		return err
	}
	for i := range all {
		if err := Remove(b, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// Of returns the assignments of a device.
func Of(r pebble.Reader, device *vitals.Name) ([]storage.Assignment, error) {
	start := layout.AppendAssignPrefix(nil, device)
	return scan(r, start, append(bytes.Clone(start[:len(start)-1]), 1), storage.MaxStoredAssignments+1)
}

// After returns assignments after a key, at most most of them.
func After(r pebble.Reader, after storage.AssignmentKey, most int) ([]storage.Assignment, error) {
	start := []byte{layout.AssignPrefix}
	if !after.Device.IsZero() {
		start = layout.AppendAssignPrefix(nil, &after.Device)
		if after.FromUnixMs >= 0 {
			start = append(layout.AppendAssignKey(nil, &after.Device, after.FromUnixMs), 0)
		}
	}
	all, err := scan(r, start, []byte{layout.AssignPrefix + 1}, most+1)
	if len(all) > 0 && all[0].Device == after.Device && all[0].FromUnixMs <= after.FromUnixMs {
		all = all[1:] // a span of nobody around the time of after
	}
	return all[:min(len(all), most)], err
}

func scan(r pebble.Reader, start, end []byte, most int) (all []storage.Assignment, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: end})
	if err != nil {
		return nil, damage.Wrap(err)
	}
	all, err = read(it, most)
	return all, errors.Join(err, damage.Wrap(it.Close()))
}

// read returns the assignments of an iterator, at most most of them. NextPrefix passes over the values that each key
// had before, of which a table in memory has thousands: one for each message that has named the patient.
func read(it *pebble.Iterator, most int) (all []storage.Assignment, err error) {
	for ok := it.First(); ok && len(all) < most; ok = it.NextPrefix() {
		value, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		a, err := decode(it.Key(), value)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// ctxEvery is the number of assignments after which a read checks its context.
const ctxEvery = 1024

// OfSubject returns the assignments of a subject.
func OfSubject(ctx context.Context, r pebble.Reader, subject storage.Subject) (all []storage.Assignment, err error) {
	prefix := layout.AppendSubjectPrefix(nil, string(subject))
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix,
		UpperBound: append(bytes.Clone(prefix[:len(prefix)-1]), 1)})
	if err != nil {
		return nil, damage.Wrap(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		a, err := indexed(r, it.Key())
		if err == nil && len(all)%ctxEvery == ctxEvery-1 {
			err = ctx.Err()
		}
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		all = append(all, a)
	}
	return all, damage.Wrap(it.Close())
}

// indexed returns the assignment of a key of the index.
func indexed(r pebble.Reader, key []byte) (a storage.Assignment, err error) {
	var k storage.AssignmentKey
	text, device, fromUnixMs, err := layout.DecodeSubjectKey(key)
	k.Device, k.FromUnixMs = device, fromUnixMs
	subject, parseErr := storage.ParseSubject(text)
	if err == nil && parseErr != nil {
		err = errIndex
	}
	if err != nil {
		return a, corrupt(&k.Device, err)
	}
	at := layout.AppendAssignKey(nil, &k.Device, k.FromUnixMs)
	value, closer, err := r.Get(at)
	if errors.Is(err, pebble.ErrNotFound) {
		return a, corrupt(&k.Device, errIndex)
	}
	if err != nil {
		return a, damage.Wrap(err)
	}
	a, err = decode(at, value)
	if err == nil && a.Subject != subject {
		err = corrupt(&k.Device, errIndex)
	}
	return a, errors.Join(err, damage.Wrap(closer.Close()))
}

// Verify verifies all assignments and the index of subjects, and returns the number of those of subjects. It
// calls problem for each damaged one, and returns other errors.
func Verify(r pebble.Reader, problem func(error)) (assigned int64, err error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.AssignPrefix},
		UpperBound: []byte{layout.SubjectPrefix + 1}})
	if err != nil {
		return 0, damage.Wrap(err)
	}
	damaged := func(err error) error { // returns err if it is not damage
		if err == nil || !errors.Is(err, storage.ErrCorrupt) {
			return err
		}
		problem(err)
		return nil
	}
	indexKeys := int64(0)
	var last storage.Assignment
	ofDevice := 0
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		if it.Key()[0] == layout.SubjectPrefix {
			indexKeys++
			a, err := indexed(r, it.Key())
			if err == nil && len(value) > 0 {
				err = corrupt(&a.Device, errIndex)
			}
			if err := damaged(err); err != nil {
				return assigned, errors.Join(err, it.Close())
			}
			continue
		}
		a, err := decode(it.Key(), value)
		if err != nil || a.Subject != "" {
			assigned++
		}
		switch {
		case err != nil:
			problem(err)
			continue
		case a.Device != last.Device:
			ofDevice = 0
		case a.FromUnixMs < last.ToUnixMs:
			problem(corrupt(&a.Device, errOverlap))
		}
		if ofDevice++; ofDevice == storage.MaxStoredAssignments+1 {
			problem(corrupt(&a.Device, storage.ErrTooManyAssignments))
		}
		last = a
	}
	// Each key of the index has its assignment, so if there are as many, each assignment has
	// its key.
	if assigned != indexKeys {
		problem(errIndex)
	}
	return assigned, damaged(damage.Wrap(it.Close()))
}
