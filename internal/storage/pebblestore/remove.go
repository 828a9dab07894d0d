package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A removal removes readings from a store, as package purge does.
type removal struct {
	*segments
	remover *purge.Remover // nil if read-only
}

// Erase implements [storage.Remover]. It removes all readings and assignments of a device
// permanently: when it returns nil, none of the store's files contains their bytes. Those
// that arrive after the removal has begun are new, and stay. A device without readings is
// erased if a table may hold bytes of it: Expire leaves bytes in files, and assignments.
//
// After an error that wraps storage.ErrUnfinished the erasure has begun. Erasing the
// device again finishes it; otherwise the next start does. After any other error nothing
// was removed: the error wraps storage.ErrNotFound, storage.ErrBusy, storage.ErrDiskLow,
// storage.ErrFailed, storage.ErrClosed or ErrReadOnly. Erase first finishes an earlier
// unfinished erasure, and passes it to Options.OnErased; it gives that one up if only damage keeps
// it from being finished.
//
// Damaged readings of the device are removed, too, and not counted. If the tables that hold its
// bytes are damaged, the error wraps storage.ErrUnfinished and storage.ErrCorrupt.
func (r *removal) Erase(device vitals.Name) (storage.Erasure, error) {
	return r.EraseRecorded(device, func(storage.Erasure) error { return nil })
}

// EraseRecorded is [Store.Erase] for a caller that keeps a record. It calls record after
// the bytes are removed and before the erasure counts as finished. If record returns an
// error, the erasure is unfinished, and is recorded again when it is finished. Close waits
// for record, which must not call the store.
func (r *removal) EraseRecorded(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
	e, err := r.erase(storage.Erasure{Device: device}, record)
	if err != nil {
		return e, fmt.Errorf("erase device %s: %w", device, err)
	}
	return e, nil
}

// EraseAssignment implements [storage.Remover]. It is permanent as [Store.Erase] is. If a segment that
// cannot be read may have readings of the assignment, nothing is removed: only the whole device can be erased.
func (r *removal) EraseAssignment(a storage.Assignment) (storage.Erasure, error) {
	return r.EraseAssignmentRecorded(a, func(storage.Erasure) error { return nil })
}

// EraseAssignmentRecorded is [Store.EraseAssignment] for a caller that keeps a record, as
// [Store.EraseRecorded] is for one of devices.
func (r *removal) EraseAssignmentRecorded(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure,
	error) {
	e, err := r.erase(storage.Erasure{Device: a.Device, Subject: a.Subject, FromUnixMs: a.FromUnixMs}, record)
	if err != nil {
		return e, fmt.Errorf("erase assignment of device %s: %w", a.Device, err)
	}
	return e, nil
}

// EraseValues implements [storage.Remover]. It is permanent as [Store.Erase] is. If a segment that cannot be read may
// have some of the values, nothing is removed.
func (r *removal) EraseValues(e storage.Erasure) (storage.Erasure, error) {
	return r.EraseValuesRecorded(e, func(storage.Erasure) error { return nil })
}

// EraseValuesRecorded is [Store.EraseValues] for a caller that keeps a record, as [Store.EraseRecorded] is for one of
// devices.
func (r *removal) EraseValuesRecorded(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
	device, err := e.Device, e.Validate()
	if err == nil {
		e, err = r.erase(e, record)
	}
	if err != nil {
		return e, fmt.Errorf("erase values of device %s: %w", device, err)
	}
	return e, nil
}

func (r *removal) erase(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
	if err := r.ready(); err != nil {
		return storage.Erasure{}, err
	}
	done, err := r.maintenance.begin("an erasure")
	if err != nil {
		return storage.Erasure{}, err
	}
	defer done()
	e, err = r.remover.Erase(e, record)
	if errors.Is(err, context.Canceled) && r.maintenance.ctx.Err() != nil { // Pebble returns it, for example
		err = fmt.Errorf("%w: %w", storage.ErrClosed, err)
	}
	return e, err
}

// Expire implements [storage.Remover]. It is slow on purpose: see package purge. It also works
// below the low-water mark, because it frees space.
func (r *removal) Expire(ctx context.Context, beforeUnixMs, atMost int64) (x storage.Expiry, err error) {
	if r.options.ReadOnly {
		return x, ErrReadOnly
	}
	leave, ok := r.maintenance.join() // Close waits
	if !ok {
		return x, fmt.Errorf("remove readings before %d: %w", beforeUnixMs, storage.ErrClosed)
	}
	defer leave()
	notSealed, err := r.sealOlder(beforeUnixMs)
	if err == nil {
		x, err = r.remover.Expire(ctx, beforeUnixMs, atMost)
	}
	if err == nil {
		err = notSealed
	}
	if err == nil {
		err = r.remover.Sweep(ctx)
	}
	if err != nil {
		err = fmt.Errorf("remove readings before %d: %w", beforeUnixMs, err)
	}
	return x, err
}

// ForgetEvents removes events that are older than Options.ChangesKeep permanently, as [Store.Erase] does with readings.
// It returns an error that wraps storage.ErrBusy during a backup or an erasure.
func (r *removal) ForgetEvents() error {
	err := r.ready()
	if err == nil {
		var done func()
		if done, err = r.maintenance.begin("the removal of old events"); err == nil {
			err = r.remover.Forget(time.Now())
			done()
		}
	}
	if err != nil {
		return fmt.Errorf("remove old events: %w", err)
	}
	return nil
}

// sealOlder seals the windows if they have readings before a time. If notSealed is not nil, a fault has left
// some in the active window.
func (r *removal) sealOlder(beforeUnixMs int64) (notSealed, err error) {
	r.sealing.Lock()
	defer r.sealing.Unlock()
	older := false
	err = tree{r.segments}.Lock(func(st *purge.State) error {
		for _, w := range st.Windows {
			older = older || w.OldestUnixMs() < beforeUnixMs
		}
		return nil
	})
	if err != nil || !older {
		return nil, err
	}
	if err := r.sealAll(); err != nil {
		return nil, err
	}
	if damage.IsFault(r.notSealed) {
		return r.notSealed, nil
	}
	return nil, nil
}

// newRemover returns the Remover of the store.
func (r *removal) newRemover() *purge.Remover {
	return &purge.Remover{
		Tree: tree{r.segments}, Dir: r.files, Name: r.dir, Closing: r.maintenance.ctx, Reader: tableOptions(r.options),
		Log:       r.options.Log,
		SmallRows: r.options.segmentRows / 2, EventsKeep: r.options.ChangesKeep, OnErased: r.options.OnErased,
		OnExpired: func(readings, devices int64) {
			r.counters.expiredReadings.Add(readings)
			r.counters.expiredDevices.Add(devices)
		},
	}
}

// A tree is a store as a [purge.Remover] uses it.
type tree struct{ *segments }

// Lock implements [purge.Tree].
func (t tree) Lock(f func(*purge.State) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed.Load() {
		return storage.ErrClosed
	}
	if err := t.alarm.reportedErr(); err != nil {
		return err
	}
	defer t.publishDeviceCount()
	return f(t.state())
}

// state returns what may be used while t.mu is held.
func (t tree) state() *purge.State {
	st := &purge.State{DB: t.db, Table: t.settler.table, Gateways: t.gateways, Readings: &t.readings, Changed: t.changed,
		Pass: t.pass, Commit: t.commitAndPublish}
	if w := t.settler.frozen; w != nil {
		st.Windows = append(st.Windows, w)
	}
	st.Windows = append(st.Windows, t.settler.active)
	return st
}

// LockSegments implements [purge.Tree].
func (t tree) LockSegments(f func(*pebble.DB) error) error {
	t.sealing.Lock()
	defer t.sealing.Unlock()
	var db *pebble.DB
	if err := t.Lock(func(st *purge.State) error { db = st.DB; return nil }); err != nil {
		return err
	}
	return f(db)
}

// SealAll implements [purge.Tree].
func (t tree) SealAll(add func(*purge.State, *pebble.Batch, *seal.Sealer) error, done func() error) error {
	t.sealing.Lock()
	defer t.sealing.Unlock()
	// Seal most readings while Append continues, so that it waits only briefly.
	if err := t.sealAllAndLock(); err != nil {
		return err
	}
	defer t.mu.Unlock()
	if err := t.alarm.reportedErr(); err != nil {
		return err
	}
	t.freeze()
	c := t.newSealer(t.settler.frozen)
	c.locked = true
	c.finish = func(b *pebble.Batch) error {
		st := t.state()
		st.Windows = st.Windows[1:] // all rows of the frozen one are in segments
		return add(st, b, &c.Sealer)
	}
	if err := c.run(); err != nil {
		t.startSealing() // try again
		return err
	}
	defer t.publishDeviceCount()
	return done()
}

// View implements [purge.Tree].
func (t tree) View(ctx context.Context) (pebble.Reader, []memory.View, func(), error) {
	v, err := t.enter(ctx)
	if err != nil {
		if t.maintenance.ctx.Err() != nil { // ctx may be one that ends with it
			err = storage.ErrClosed
		}
		return nil, nil, nil, err
	}
	return v, v.windows, func() { t.views.release(v) }, nil
}

// AwaitReaders implements [purge.Tree]. It publishes a new snapshot and waits for the readers of older ones.
func (t tree) AwaitReaders() error {
	t.mu.Lock()
	if err := t.alarm.reportedErr(); err != nil {
		t.mu.Unlock()
		return err
	}
	older := t.views.turn()
	t.publish()
	t.mu.Unlock()
	older.Wait()
	return nil
}

// Flush implements [purge.Tree].
func (t tree) Flush(ctx context.Context) error { return t.flush(ctx) }

// Ready implements [purge.Tree].
func (t tree) Ready() error { return t.ready() }

// Failed implements [purge.Tree].
func (t tree) Failed() bool { return t.alarm.err() != nil }

// Fail implements [purge.Tree].
func (t tree) Fail(cause string) { t.alarm.raise(cause) }

// FoundDamage implements [purge.Tree].
func (t tree) FoundDamage(what string, err error) { t.foundDamage(what, err) }
