package pebblestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// ctxEvery is the number of records after which a read checks its context.
const ctxEvery = 1024

// Latest implements [storage.Store]. It reads the device's record and its tail of
// fewer than 64 readings.
func (s *Store) Latest(ctx context.Context, name vitals.Name) (storage.Device, error) {
	d, err := s.latest(ctx, &name)
	if err != nil {
		return storage.Device{}, fmt.Errorf("read latest of %s: %w", name, err)
	}
	return d.public(name), nil
}

func (s *Store) latest(ctx context.Context, name *vitals.Name) (d device, err error) {
	v, err := s.enter(ctx)
	if err != nil {
		return d, err
	}
	defer s.views.release(v)

	key := appendRecordKey(make([]byte, 0, 1+vitals.MaxNameBytes), name)
	value, closer, err := v.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return d, storage.ErrNotFound
	}
	if err != nil {
		return d, corrupt(err)
	}
	err = decodeRecord(value, &d)
	if closeErr := closer.Close(); err == nil && closeErr != nil {
		return d, corrupt(closeErr)
	}
	if err != nil {
		return d, recordError(name, err)
	}
	tail, err := newTailReader(v)
	if err != nil {
		return d, corrupt(err)
	}
	err = tail.read(name, &d)
	if closeErr := tail.it.Close(); err == nil {
		err = closeErr
	}
	return d, corrupt(err)
}

// Scan implements [storage.Store].
func (s *Store) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	n, err := s.scan(ctx, &r, dst)
	if err != nil {
		return 0, fmt.Errorf("scan %s: %w", r.Device, err)
	}
	return n, nil
}

func (s *Store) scan(ctx context.Context, r *storage.Range, dst []storage.Record) (n int, err error) {
	v, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer s.views.release(v)

	from, to := max(r.FromUnixMs, 0), r.ToUnixMs
	if from >= to || len(dst) == 0 || r.Device.IsZero() {
		return 0, nil
	}
	it, err := v.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: appendReadingKey(nil, &r.Device, uint64(from)),
		UpperBound: appendReadingKey(nil, &r.Device, uint64(to)),
	})
	if err != nil {
		return 0, corrupt(err)
	}
	defer func() {
		if closeErr := it.Close(); err == nil {
			err = corrupt(closeErr)
		}
	}()
	start, step := it.First, it.Next
	if r.Descending {
		start, step = it.Last, it.Prev
	}
	for ok := start(); ok; ok = step() {
		if err := take(it, &r.Device, &dst[n]); err != nil {
			return 0, err
		}
		if n++; n == len(dst) {
			break
		}
		if n%ctxEvery == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return n, corrupt(it.Error())
}

// take decodes the reading at the iterator's position.
func take(it *pebble.Iterator, device *vitals.Name, dst *storage.Record) error {
	_, ms, err := decodeReadingKey(it.Key())
	if err != nil {
		return fmt.Errorf("%w: key of a reading: %w", storage.ErrCorrupt, err)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return corrupt(err)
	}
	var r reading
	if err := decodeReading(value, &r); err != nil {
		return readingError(device, ms, err)
	}
	*dst = r.record(ms)
	return nil
}

// Devices implements [storage.Store].
func (s *Store) Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error) {
	n, err := s.devices(ctx, &after, dst)
	if err != nil {
		return 0, fmt.Errorf("list devices: %w", err)
	}
	return n, nil
}

func (s *Store) devices(ctx context.Context, after *vitals.Name, dst []storage.Device) (n int, err error) {
	v, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer s.views.release(v)

	if len(dst) == 0 {
		return 0, nil
	}
	sc, err := newDeviceScanner(v, true)
	if err != nil {
		return 0, corrupt(err)
	}
	// A name followed by a NUL sorts after the name and before every other name after it.
	from := append(appendRecordKey(nil, after), 0)
	for ok := sc.first(from); ok; ok = sc.next() {
		dst[n] = sc.device.public(sc.name)
		if n++; n == len(dst) {
			break
		}
		if n%ctxEvery == 0 && ctx.Err() != nil {
			sc.err = ctx.Err()
			break
		}
	}
	return n, sc.close()
}

// enter begins a read. It returns the current view, which the caller must release.
func (s *Store) enter(ctx context.Context) (*view, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.views.acquire()
}
