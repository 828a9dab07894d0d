package pebblestore

import (
	"context"
	"fmt"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// WalkDevices calls visit with the summaries of all devices, some at a time, in no
// particular order. visit must not retain the slice. A device that is added or removed
// meanwhile may be missing; no other is, and none comes twice.
func (s *Store) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	if s.readOnly {
		return fmt.Errorf("visit devices: %w", ErrReadOnly)
	}
	devices := make([]storage.Device, 0, chunkDevices)
	for i, more := 0, true; more; i++ {
		err := ctx.Err()
		if err == nil {
			devices, more, err = s.devicesOfChunk(devices[:0], i)
		}
		if err != nil {
			return fmt.Errorf("visit devices: %w", err)
		}
		visit(devices)
	}
	return nil
}

// devicesOfChunk appends the devices in chunk i of the table, and reports whether there are
// further chunks. Append waits meanwhile; between two Appends, the table has durable data
// only.
func (s *Store) devicesOfChunk(dst []storage.Device, i int) (_ []storage.Device, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return dst, false, storage.ErrClosed
	}
	if err := s.alarm.reportedErr(); err != nil {
		return dst, false, err
	}
	t := s.settler.table
	if i >= len(t.chunks) {
		return dst, false, nil
	}
	used := t.len() + len(t.free) // numbers assigned so far
	for j := range t.chunks[i][:min(chunkDevices, used-i*chunkDevices)] {
		if d := &t.chunks[i][j]; d.NewestUnixMs >= 0 {
			dst = append(dst, public(t.names.at(uint32(i*chunkDevices+j)), &d.Record))
		}
	}
	return dst, i+1 < len(t.chunks), nil
}
