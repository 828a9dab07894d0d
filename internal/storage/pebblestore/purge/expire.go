package purge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// # The cost of expiring readings
//
// Expire visits all devices in the order of their names, a few per batch, and finds the oldest segment of
// each with one seek. If that has expired readings, it counts them from the headers of the segments. One
// batch deletes the segments that have nothing else, with one range deletion for each device, and writes
// those that have other readings, too, without the expired ones. Nothing else writes segments during
// a batch. Expire works for a tenth of the time and pauses for the rest. Append waits for one sync per
// batch.
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

// Expire removes readings from segments as [storage.Remover] describes. Those in windows stay.
func (m *Remover) Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error) {
	x := expiry{m: m, beforeUnixMs: beforeUnixMs, atMost: atMost}
	err := x.run(ctx)
	return x.done, err
}

// An expiry is a call of Expire.
type expiry struct {
	m            *Remover
	beforeUnixMs int64
	atMost       int64
	done         storage.Expiry
	deletions    int // since the last flush
}

func (x *expiry) run(ctx context.Context) error {
	from := []byte{layout.RecordPrefix}
	for more := true; more; {
		begun := time.Now()
		var err error
		if from, more, err = x.batch(ctx, from); err != nil {
			return err
		}
		x.done.More = more && x.done.Readings >= x.atMost
		more = more && !x.done.More
		if x.deletions >= maxDeletions || !more && x.deletions > 0 {
			x.deletions = 0
			if err := x.m.Tree.Flush(ctx); err != nil {
				return err
			}
		}
		if err := pause(x.m.Closing, ctx, (expireShare-1)*time.Since(begun)); err != nil && more {
			return err
		}
	}
	return nil
}

// An expired device is one with expired readings, and its record without them.
type expired struct {
	cut
	name  vitals.Name
	after layout.Record

	number uint32 // of the device in the table
	gone   bool   // it has no readings left
}

// batch removes the expired readings of the next devices, beginning with the record key from. It returns the
// key from which to continue.
func (x *expiry) batch(ctx context.Context, from []byte) (next []byte, more bool, err error) {
	var found []*expired
	err = x.m.Tree.LockSegments(func(db *pebble.DB) error {
		devices := make([]expired, 0, expireDevices)
		for d, err := range seal.Records(db, from) {
			if err != nil {
				return err
			}
			if devices = append(devices, expired{name: d.Name, after: d.Record}); len(devices) == expireDevices {
				break
			}
		}
		it, err := newSegmentIter(ctx, db)
		if err != nil {
			return err
		}
		defer func() {
			_ = it.Close() // its error is that of the last read, which was handled
		}()
		b := db.NewBatch()
		left := min(expireReadings, x.atMost-x.done.Readings)
		gateways := map[uint32]bool{}
		for i := range devices {
			d := &devices[i]
			if left <= 0 {
				next, more = layout.AppendRecordKey(nil, &d.name), true
				break
			}
			d.cut = cut{device: &d.name, toMs: x.beforeUnixMs, most: left, small: x.m.SmallRows, gateways: gateways}
			if err := d.segments(it, b, &d.after); err != nil {
				return errors.Join(err, b.Close())
			}
			if left -= d.readings; d.first != nil {
				found = append(found, d)
			}
			if d.toMs < x.beforeUnixMs {
				next, more = layout.AppendRecordKey(nil, &d.name), true // the same device again
				break
			}
		}
		if n := len(devices); next == nil && n == expireDevices {
			next, more = append(layout.AppendRecordKey(nil, &devices[n-1].name), 0), true
		}
		if b.Empty() {
			return b.Close()
		}
		return x.m.Tree.Lock(func(st *State) error { return x.remove(st, b, it, found, gateways) })
	})
	for _, d := range found {
		if d.unread != nil {
			x.m.Tree.FoundDamage(
				"expired readings of a device are damaged: they are removed without being counted, or stay until those beside "+
					"them have expired", fmt.Errorf("device %s: %w", &d.name, d.unread))
		}
	}
	return next, more, err
}

// remove commits a batch with the removal of segments, together with the records of their devices.
func (x *expiry) remove(st *State, b *pebble.Batch, it *pebble.Iterator, found []*expired,
	gateways map[uint32]bool) error {
	readings, gone, uncounted := int64(0), int64(0), false
	for _, d := range found {
		var known bool
		if d.number, known = st.Table.Find(&d.name); !known {
			return errors.Join(fmt.Errorf("%w: device %s is not known", storage.ErrCorrupt, &d.name), b.Close())
		}
		after := st.Table.Record(d.number)
		after.SealedUnixMs, after.Sizes = d.after.SealedUnixMs, d.after.Sizes
		d.after = after
		var err error
		if d.gone, err = d.record(it, b, &d.after, st.Windows); err != nil {
			return errors.Join(err, b.Close())
		}
		readings += d.readings
		uncounted = uncounted || d.unread != nil
		if d.gone {
			gone++
		}
	}
	err := x.m.account(b, st, readings, uncounted, gateways)
	if err == nil { // each batch: it may remove what arrived since the one before
		err = st.Changed(b, &layout.Event{Kind: layout.EventExpired, ToUnixMs: x.beforeUnixMs})
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	if err := st.Commit(b); err != nil {
		return err
	}
	st.Readings.Add(-readings)
	for _, d := range found {
		st.settle(&d.name, d.number, &d.after, d.gone)
	}
	x.deletions += len(found)
	x.done.Readings += readings
	x.done.Devices += gone
	x.m.OnExpired(readings, gone)
	return nil
}

// newSegmentIter returns an iterator over all segments.
func newSegmentIter(ctx context.Context, r *pebble.DB) (*pebble.Iterator, error) {
	it, err := r.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix},
		UpperBound: []byte{layout.SegmentPrefix + 1}})
	return it, damage.Wrap(err)
}
