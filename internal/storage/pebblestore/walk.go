package pebblestore

import (
	"context"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
)

// WalkDevices calls visit with the summaries of all devices, some at a time, in no
// particular order. visit must not retain the slice. A device that is added or removed
// during the call may be missing; no other is, and none comes twice.
func (rd *reader) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	if rd.options.ReadOnly {
		return fmt.Errorf("visit devices: %w", ErrReadOnly)
	}
	devices := make([]storage.Device, 0, memory.ChunkDevices)
	for i, more := 0, true; more; i++ {
		err := ctx.Err()
		if err == nil {
			devices, more, err = rd.devicesOfChunk(devices[:0], i)
		}
		if err != nil {
			return fmt.Errorf("visit devices: %w", err)
		}
		visit(devices)
	}
	return nil
}

// devicesOfChunk appends the devices in chunk i of the table, and reports whether there are
// further chunks. Append waits until it returns; between two Appends, the table has durable data
// only.
func (rd *reader) devicesOfChunk(dst []storage.Device, i int) (_ []storage.Device, more bool, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.closed.Load() {
		return dst, false, storage.ErrClosed
	}
	if err := rd.alarm.reportedErr(); err != nil {
		return dst, false, err
	}
	t := rd.settler.table
	first, end := chunk(t, i)
	for n := first; n < end; n++ {
		if t.At(n).NewestUnixMs >= 0 {
			d := t.Record(n)
			dst = append(dst, public(t.Name(n), &d))
		}
	}
	return dst, end < t.Assigned(), nil
}

// chunk returns the numbers of the devices in chunk i of a table: from first to before end.
func chunk(t *memory.Table, i int) (first, end uint32) {
	end = min(uint32(i+1)*memory.ChunkDevices, t.Assigned())
	return min(uint32(i)*memory.ChunkDevices, end), end
}

// NewestUnixMs returns the newest times of all devices, in no particular order.
func (rd *reader) NewestUnixMs(ctx context.Context) ([]int64, error) {
	if rd.options.ReadOnly {
		return nil, ErrReadOnly
	}
	all := make([]int64, 0, rd.deviceCount.Load())
	for i, more := 0, true; more; i++ {
		err := ctx.Err()
		if err == nil {
			all, more, err = rd.newestOfChunk(all, i)
		}
		if err != nil {
			return nil, fmt.Errorf("read newest times: %w", err)
		}
	}
	return all, nil
}

// newestOfChunk appends the newest times of the devices in chunk i of the table. Append
// waits until it returns.
func (rd *reader) newestOfChunk(all []int64, i int) (_ []int64, more bool, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.closed.Load() {
		return nil, false, storage.ErrClosed
	}
	if err := rd.alarm.reportedErr(); err != nil {
		return nil, false, err
	}
	t := rd.settler.table
	first, end := chunk(t, i)
	for n := first; n < end; n++ {
		if ms := t.At(n).NewestUnixMs; ms >= 0 {
			all = append(all, ms)
		}
	}
	return all, end < t.Assigned(), nil
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
