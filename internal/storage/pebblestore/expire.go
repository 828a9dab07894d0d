package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # The cost of expiring readings
//
// Expire visits all devices in the order of their names, a few per batch, and finds the
// oldest reading of each with one seek. If that has expired, it counts the device's
// expired readings and deletes them with one range deletion. It works for a tenth of the
// time and pauses for the rest. Append waits for one sync per batch.
//
// Range deletions stay in the memtable until it is full, and every reader has to sort
// them; so the memtable is flushed after every maxDeletions deletions. Later compactions
// free the space.
const (
	expireShare    = 10     // works for one tenth of the time
	expireDevices  = 64     // devices per batch
	expireReadings = 20_000 // readings per batch
	maxDeletions   = 1000
)

// Expire implements [storage.Remover]. It is slow on purpose: see above. It also works
// below the low-water mark, because it frees space.
func (s *Store) Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error) {
	e := &expirer{s: s, beforeUnixMs: beforeUnixMs, atMost: atMost}
	err := e.run(ctx)
	if err != nil {
		err = fmt.Errorf("remove readings before %d: %w", beforeUnixMs, err)
	}
	return e.done, err
}

type expirer struct {
	s            *Store
	beforeUnixMs int64
	atMost       int64
	done         storage.Expiry
	deletions    int // since the last flush
}

// An expiredDevice is a device with expired readings.
type expiredDevice struct {
	name     vitals.Name
	upToMs   int64 // readings before this time are deleted
	readings int64 // their number
}

func (e *expirer) run(ctx context.Context) error {
	if e.s.readOnly {
		return ErrReadOnly
	}
	var after []byte // the key from which to continue
	for more := true; more; {
		begun := time.Now()
		var found []expiredDevice
		var err error
		if found, after, more, err = e.find(ctx, after); err != nil {
			return err
		}
		if err := e.remove(found); err != nil {
			return err
		}
		e.done.More = more && e.done.Readings >= e.atMost
		more = more && !e.done.More
		if e.deletions >= maxDeletions || !more && e.deletions > 0 {
			e.deletions = 0
			if err := e.s.flush(ctx); err != nil {
				return err
			}
		}
		if err := e.pause(ctx, (expireShare-1)*time.Since(begun)); err != nil && more {
			return err
		}
	}
	return nil
}

// pause waits for d, or until ctx ends or the store is closed.
func (e *expirer) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.s.maintenance.ctx.Done():
		return storage.ErrClosed
	}
}

// find visits the next devices, starting with the record key from. It returns those with
// expired readings, and the key from which to continue.
func (e *expirer) find(ctx context.Context, from []byte) (found []expiredDevice, next []byte, more bool, err error) {
	v, err := e.s.enter(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	defer e.s.views.release(v)
	sc, err := newDeviceScanner(v, false)
	if err != nil {
		return nil, nil, false, corrupt(err)
	}
	it, err := v.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{readingsStart}})
	if err != nil {
		return nil, nil, false, errors.Join(corrupt(err), sc.close())
	}
	devices, readings := 0, int64(0)
	most := min(expireReadings, e.atMost-e.done.Readings)
	for more = sc.first(from); more; more = sc.next() {
		if devices == expireDevices || readings >= most {
			// The last device may have more readings than were counted.
			next = appendRecordKey(nil, &sc.name)
			break
		}
		devices++
		x := expiredDevice{name: sc.name}
		if err = e.count(it, &x, most-readings); err != nil {
			break
		}
		if readings += x.readings; x.readings == 0 {
			continue
		}
		found = append(found, x)
		if x.upToMs < e.beforeUnixMs {
			next = appendRecordKey(nil, &sc.name) // the same device again
			break
		}
	}
	if closeErr := it.Close(); err == nil {
		err = corrupt(closeErr)
	}
	return found, next, more, errors.Join(err, sc.close())
}

// count counts the expired readings of x, up to most.
func (e *expirer) count(it *pebble.Iterator, x *expiredDevice, most int64) error {
	key := appendReadingKey(nil, &x.name, 0)
	prefix := key[:len(key)-8]
	x.upToMs = e.beforeUnixMs
	for ok := it.SeekGE(key); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		_, ms, err := decodeReadingKey(it.Key())
		if err != nil {
			return fmt.Errorf("%w: key of a reading of device %s: %w", storage.ErrCorrupt, x.name, err)
		}
		if ms >= e.beforeUnixMs {
			break
		}
		if x.readings == most {
			x.upToMs = ms
			break
		}
		x.readings++
	}
	return corrupt(it.Error())
}

// remove deletes the readings of the devices found, in one batch.
func (e *expirer) remove(found []expiredDevice) error {
	if len(found) == 0 {
		return nil
	}
	s := e.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	var gone []*vitals.Name
	readings := int64(0)
	for i := range found {
		x := &found[i]
		number, ok := s.settler.table.byName[x.name]
		if !ok {
			continue // erased meanwhile
		}
		d := s.settler.table.at(number)
		if d.newestUnixMs < x.upToMs {
			gone = append(gone, &x.name)
		}
		if err := expireDevice(b, d, x); err != nil {
			return joinClose(err, b)
		}
		readings += x.readings
		e.deletions++
	}
	if err := s.commitLocked(b); err != nil {
		return err
	}
	for _, name := range gone {
		s.settler.table.remove(name)
	}
	s.publishDeviceCount()
	e.done.Readings += readings
	e.done.Devices += int64(len(gone))
	s.counters.expiredReadings.Add(readings)
	s.counters.expiredDevices.Add(int64(len(gone)))
	return nil
}

// expireDevice adds the deletion of a device's expired readings to b, and updates d and
// its record. After an error, d is invalid.
func expireDevice(b *pebble.Batch, d *device, x *expiredDevice) error {
	if d.newestUnixMs < x.upToMs {
		for _, r := range deviceRanges(&x.name) {
			if err := b.DeleteRange(r.start, r.end, nil); err != nil {
				return err
			}
		}
		return nil
	}
	start, end := appendReadingKey(nil, &x.name, 0), appendReadingKey(nil, &x.name, uint64(x.upToMs))
	if err := b.DeleteRange(start, end, nil); err != nil {
		return err
	}
	changed := d.recordedUnixMs < x.upToMs // the reading at the record's newest time is deleted
	for s := range vitals.NumSigns {
		if d.known&(1<<s) != 0 && d.latestUnixMs[s] < x.upToMs {
			d.known &^= 1 << s
			d.latest[s], d.latestUnixMs[s] = 0, 0
			changed = true
		}
	}
	if !changed {
		return nil
	}
	d.recordedUnixMs, d.tail = d.newestUnixMs, 0
	return b.Set(appendRecordKey(nil, &x.name), appendRecord(nil, d), nil)
}

// NewestUnixMs returns the newest times of all devices, in no particular order.
func (s *Store) NewestUnixMs(ctx context.Context) ([]int64, error) {
	if s.readOnly {
		return nil, ErrReadOnly
	}
	all := make([]int64, 0, s.deviceCount.Load())
	for i, more := 0, true; more; i++ {
		err := ctx.Err()
		if err == nil {
			all, more, err = s.newestOfChunk(all, i)
		}
		if err != nil {
			return nil, fmt.Errorf("read newest times: %w", err)
		}
	}
	return all, nil
}

// newestOfChunk appends the newest times of the devices in chunk i of the table. Append
// waits meanwhile.
func (s *Store) newestOfChunk(all []int64, i int) (_ []int64, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, false, storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return nil, false, err
	}
	all, more = s.settler.table.appendNewest(all, i)
	return all, more, nil
}

// EstimateReadings returns the approximate number of readings in tables. It does not
// count the memtable, and it counts removed readings until they are compacted.
func (s *Store) EstimateReadings(ctx context.Context) (int64, error) {
	v, err := s.enter(ctx)
	if err != nil {
		return 0, fmt.Errorf("count readings: %w", err)
	}
	defer s.views.release(v)
	levels, err := s.db.SSTables(pebble.WithProperties())
	if err != nil {
		return 0, fmt.Errorf("count readings: %w", corrupt(err))
	}
	n := uint64(0)
	for _, level := range levels {
		for i := range level {
			if p := level[i].Properties; p.NumEntries > p.NumDeletions {
				n += p.NumEntries - p.NumDeletions
			}
		}
	}
	return int64(n), nil
}
