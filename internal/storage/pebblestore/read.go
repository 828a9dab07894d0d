package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// ctxEvery is the number of records after which a read checks its context.
const ctxEvery = 1024

// A reader reads a store. Its methods may be called concurrently with all others.
type reader struct {
	*segments
	buffers sync.Pool // of *rowBuffers
}

// Latest implements [storage.Store]. It reads the device's record and its rows in
// the windows.
func (rd *reader) Latest(ctx context.Context, name vitals.Name) (storage.Device, error) {
	d, err := rd.latest(ctx, &name)
	if err != nil {
		return storage.Device{}, fmt.Errorf("read latest of %s: %w", name, err)
	}
	return seal.Summary(name, &d), nil
}

func (rd *reader) latest(ctx context.Context, name *vitals.Name) (d layout.Record, err error) {
	v, err := rd.enter(ctx)
	if err != nil {
		return d, err
	}
	defer rd.views.release(v)

	key := layout.AppendRecordKey(make([]byte, 0, 1+vitals.MaxNameBytes), name)
	value, closer, err := v.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return d, storage.ErrNotFound
	}
	if err != nil {
		return d, damage.Wrap(err)
	}
	err = layout.DecodeRecord(value, &d)
	if closeErr := closer.Close(); err == nil && closeErr != nil {
		return d, damage.Wrap(closeErr)
	}
	if err != nil {
		return d, seal.RecordError(name, err)
	}
	v.update(name, &d)
	return d, nil
}

// update updates a device as its record has it with the rows of the windows.
func (v *view) update(name *vitals.Name, d *layout.Record) {
	for _, w := range v.windows {
		w.Update(name, d)
	}
}

// Scan implements [storage.Store].
func (rd *reader) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	n, err := rd.scan(ctx, &r, dst)
	if err != nil {
		return 0, fmt.Errorf("scan %s: %w", r.Device, err)
	}
	return n, nil
}

func (rd *reader) scan(ctx context.Context, r *storage.Range, dst []storage.Record) (n int, err error) {
	v, err := rd.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer rd.views.release(v)

	from, to := max(r.FromUnixMs, 0), r.ToUnixMs
	if from >= to || len(dst) == 0 || r.Device.IsZero() {
		return 0, nil
	}
	sc := rd.newRowScanner(ctx, v, &r.Device, from, to, r.Descending, len(dst))
	defer func() {
		if closeErr := sc.close(); err == nil {
			err = closeErr
		}
	}()
	names, known := rd.gateways.names(), rd.signs.Known()
	for n < len(dst) {
		rows, err := sc.next(len(dst) - n)
		if err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			if err := names.record(&rows[i], known, &dst[n]); err != nil {
				return 0, seal.Error(&r.Device, rows[i].TimeUnixMs, err)
			}
			n++
		}
	}
	return n, nil
}

// record returns a row, of which all signs must be known, as a storage.Record.
func (g gatewayNames) record(r *columns.Row, known uint32, dst *storage.Record) error {
	if r.Values.Present()&^known != 0 {
		return seal.ErrUnknownSign
	}
	*dst = storage.Record{TimeUnixMs: r.TimeUnixMs, ReceivedUnixMs: r.ReceivedUnixMs, Values: r.Values,
		UTCOffset: r.UTCOffset, Shared: r.Shared}
	if r.CompletedMs != 0 {
		dst.ChangedUnixMs = r.ChangedUnixMs()
	}
	if r.Gateway == 0 {
		return nil
	}
	if dst.Gateway = g.at(r.Gateway); dst.Gateway == nil {
		return seal.ErrUnknownGateway
	}
	return nil
}

// Devices implements [storage.Store].
func (rd *reader) Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error) {
	n, err := rd.devices(ctx, &after, dst)
	if err != nil {
		return 0, fmt.Errorf("list devices: %w", err)
	}
	return n, nil
}

func (rd *reader) devices(ctx context.Context, after *vitals.Name, dst []storage.Device) (n int, err error) {
	v, err := rd.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer rd.views.release(v)

	if len(dst) == 0 {
		return 0, nil
	}
	// A name followed by a NUL sorts after the name and before every other name after it.
	from := append(layout.AppendRecordKey(nil, after), 0)
	for d, err := range seal.Records(v, from) {
		if err == nil && n%ctxEvery == ctxEvery-1 {
			err = ctx.Err()
		}
		if err != nil {
			return n, err
		}
		v.update(&d.Name, &d.Record)
		dst[n] = seal.Summary(d.Name, &d.Record)
		if n++; n == len(dst) {
			break
		}
	}
	return n, nil
}
