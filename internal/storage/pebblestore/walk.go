package pebblestore

import (
	"context"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
)

// WalkDevices calls visit with the summaries of all devices, some at a time, in no
// particular order. visit must not retain the slice. A device that is added or removed
// during the call may be missing; no other is, and none comes twice.
func (rd *reader) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	if rd.options.ReadOnly {
		return fmt.Errorf("visit devices: %w", ErrReadOnly)
	}
	devices := make([]storage.Device, 0, memory.ChunkDevices)
	for i, more := uint32(0), true; more; i++ {
		devices = devices[:0]
		var err error
		more, err = rd.visitChunk(ctx, i, func(t *memory.Table, n uint32) {
			d := t.Record(n)
			devices = append(devices, seal.Summary(t.Name(n), &d))
		})
		if err != nil {
			return fmt.Errorf("visit devices: %w", err)
		}
		visit(devices)
	}
	return nil
}

// visitChunk calls visit with the numbers of the devices in chunk i of the table, and reports whether there
// are further chunks. Append waits until it returns; between two Appends, the table has durable data
// only.
func (rd *reader) visitChunk(ctx context.Context, i uint32, visit func(t *memory.Table, n uint32)) (more bool,
	err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if rd.closed.Load() {
		return false, storage.ErrClosed
	}
	if err := rd.alarm.reportedErr(); err != nil {
		return false, err
	}
	t := rd.settler.table
	end := min((i+1)*memory.ChunkDevices, t.Assigned())
	for n := i * memory.ChunkDevices; n < end; n++ {
		if t.At(n).NewestUnixMs >= 0 {
			visit(t, n)
		}
	}
	return end < t.Assigned(), nil
}

// NewestUnixMs returns the newest times of all devices, in no particular order.
func (rd *reader) NewestUnixMs(ctx context.Context) ([]int64, error) {
	if rd.options.ReadOnly {
		return nil, ErrReadOnly
	}
	all := make([]int64, 0, rd.deviceCount.Load())
	for i, more := uint32(0), true; more; i++ {
		var err error
		more, err = rd.visitChunk(ctx, i, func(t *memory.Table, n uint32) { all = append(all, t.At(n).NewestUnixMs) })
		if err != nil {
			return nil, fmt.Errorf("read newest times: %w", err)
		}
	}
	return all, nil
}

// EstimateReadings returns the approximate number of readings: readings that complete others
// in memory are counted twice until they are sealed.
func (rd *reader) EstimateReadings(ctx context.Context) (int64, error) {
	v, err := rd.enter(ctx)
	if err != nil {
		return 0, fmt.Errorf("count readings: %w", err)
	}
	defer rd.views.release(v)
	n := rd.readings.Load()
	for _, w := range v.windows {
		n += int64(w.Rows())
	}
	return n, nil
}
