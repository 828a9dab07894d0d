package storetest

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// memoryChanges are the changes of a store: all of its events, and for each record the number of its last change.
type memoryChanges struct {
	mark    uint64
	key     []byte // of cursors
	events  []storage.Change
	before  []uint64 // for each event, the number of changed readings before it
	number  uint64   // of the last changed reading
	changed map[vitals.Name]map[int64]uint64
	expired []storage.Horizon

	latestUnixMs int64         // the latest time of arrival
	later        chan struct{} // closed at the next change
}

func newMemoryChanges() *memoryChanges {
	key := binary.BigEndian.AppendUint64(make([]byte, storage.CursorKeyBytes-8), rand.Uint64())
	return &memoryChanges{mark: rand.Uint64(), key: key, changed: map[vitals.Name]map[int64]uint64{},
		later: make(chan struct{})}
}

// reading notes that a reading was stored or completed.
func (c *memoryChanges) reading(device vitals.Name, unixMs int64) {
	if c.changed[device] == nil {
		c.changed[device] = map[int64]uint64{}
	}
	c.number++
	c.changed[device][unixMs] = c.number
}

// event notes an event.
func (c *memoryChanges) event(e storage.Change) {
	e.Number = uint64(len(c.events)) + 1
	c.events, c.before = append(c.events, e), append(c.before, c.number)
	c.wake()
}

// wake wakes all who wait.
func (c *memoryChanges) wake() {
	close(c.later)
	c.later = make(chan struct{})
}

// erased notes an erasure. all are the assignments of the device before it.
func (c *memoryChanges) erased(e *storage.Erasure, all []storage.Assignment) {
	c.event(storage.ErasedEvent(e, all))
}

// A memoryLog has the changes of a Memory. It implements [storage.Changes] together with the rest of it.
type memoryLog struct{ m *Memory }

// Position implements [storage.Changes].
func (l memoryLog) Position(ctx context.Context) (storage.Position, <-chan struct{}, error) {
	m := l.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := m.changes
	if err := m.readable(ctx); err != nil {
		return storage.Position{}, c.later, fmt.Errorf("read position: %w", err)
	}
	return storage.Position{Event: uint64(len(c.events)), Mark: c.mark, Group: c.number + 1}, c.later, nil
}

// PositionAt implements [storage.Changes].
func (l memoryLog) PositionAt(ctx context.Context, unixMs int64) (storage.Position, error) {
	m := l.m
	p, _, err := m.Position(ctx)
	m.mu.RLock()
	defer m.mu.RUnlock()
	for device, byTime := range m.records {
		for t, r := range byTime {
			if max(r.ReceivedUnixMs, r.ChangedUnixMs) >= unixMs {
				p.Group = min(p.Group, m.changes.changed[device][t])
			}
		}
	}
	for p.Event > 0 && m.changes.before[p.Event-1] >= p.Group {
		p.Event--
	}
	return p, err
}

// KeptSince implements [storage.Changes].
func (l memoryLog) KeptSince(ctx context.Context) (int64, error) {
	l.m.mu.RLock()
	defer l.m.mu.RUnlock()
	return 0, l.m.readable(ctx)
}

// CheckPosition implements [storage.Changes].
func (l memoryLog) CheckPosition(ctx context.Context, p storage.Position) error {
	m := l.m
	now, _, err := m.Position(ctx)
	if err == nil && (p.Mark != now.Mark || p.Event > now.Event || p.Group > now.Group) {
		err = storage.ErrUnknownPosition
	}
	return err
}

// CursorKey implements [storage.Changes].
func (l memoryLog) CursorKey(ctx context.Context) ([]byte, error) {
	l.m.mu.RLock()
	defer l.m.mu.RUnlock()
	return l.m.changes.key, l.m.readable(ctx)
}

// Horizons implements [storage.Changes].
func (l memoryLog) Horizons() []storage.Horizon {
	m := l.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changes.expired
}

// ReadChanges implements [storage.Changes].
func (l memoryLog) ReadChanges(ctx context.Context, from, to *storage.Position,
	do func(storage.ChangeReader) error) error {
	return storage.ReadKnown(ctx, l.m, from, to, do)
}

// VisitEvents implements [storage.Changes].
func (l memoryLog) VisitEvents(ctx context.Context, after, last uint64, visit func(*storage.Change) bool) error {
	m := l.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	for i := after; i < last; i++ {
		if e := m.changes.events[i]; !visit(&e) {
			break
		}
	}
	return m.readable(ctx)
}

// VisitChanged implements [storage.Changes].
func (l memoryLog) VisitChanged(ctx context.Context, from, _ storage.Position, after storage.ChangedKey,
	prefix vitals.Name,
	visit func(part uint64, device *vitals.Name, records []storage.Record) bool) error {
	m := l.m
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.readable(ctx); err != nil {
		return fmt.Errorf("read changes: %w", err)
	}
	devices := slices.SortedFunc(maps.Keys(m.records), func(a, b vitals.Name) int { return a.Compare(&b) })
	for _, device := range devices {
		order := device.Compare(&after.Device)
		if order < 0 || !device.HasPrefix(&prefix) {
			continue
		}
		var found []storage.Record
		for t, r := range m.records[device] {
			if m.changes.changed[device][t] >= from.Group && (order > 0 || t > after.TimeUnixMs) {
				found = append(found, r)
			}
		}
		slices.SortFunc(found, func(a, b storage.Record) int { return cmp.Compare(a.TimeUnixMs, b.TimeUnixMs) })
		if len(found) > 0 && !visit(0, &device, found) {
			break
		}
	}
	return nil
}
