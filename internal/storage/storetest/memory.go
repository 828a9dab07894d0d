package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Memory is a store in memory: the model with which the suite compares other stores,
// and a store for the tests of other packages. It uses brute force, so that its code
// can be checked against the contract. It is not meant for large amounts of readings.
//
// Its records and assignments outlive Close: see Reopen.
type Memory struct {
	mu       sync.RWMutex
	records  records        // guarded by mu
	assigned *assignments   // guarded by mu
	changes  *memoryChanges // guarded by mu
	memoryLog
	closed     bool // guarded by mu
	maxDevices int  // 0 means no limit
	signs      *vitals.Signs
}

// records holds the stored records by device and time.
type records map[vitals.Name]map[int64]storage.Record

// NewMemory returns an empty store without a limit on devices.
func NewMemory() *Memory {
	changes := newMemoryChanges()
	return withLog(&Memory{records: records{}, assigned: &assignments{changes: changes}, changes: changes,
		signs: vitals.NewSigns()})
}

// withLog returns m with its log.
func withLog(m *Memory) *Memory {
	m.memoryLog.m = m
	return m
}

// Reopen closes m if it is open, and returns a store with its records. A maxDevices
// of 0 means no limit.
func (m *Memory) Reopen(maxDevices int) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.changes.wake()
	}
	return withLog(&Memory{records: m.records, assigned: m.assigned, changes: m.changes, signs: m.signs,
		maxDevices: maxDevices})
}

// Clone returns an open store with a copy of the records of m. A maxDevices of 0 means
// no limit.
func (m *Memory) Clone(maxDevices int) *Memory {
	m.mu.RLock()
	defer m.mu.RUnlock()
	changes := newMemoryChanges()
	assigned := &assignments{slices.Clone(m.assigned.all), changes}
	c := &Memory{records: make(records, len(m.records)), assigned: assigned, changes: changes, signs: m.signs,
		maxDevices: maxDevices}
	for device, byTime := range m.records {
		c.records[device] = maps.Clone(byTime)
		for t := range byTime {
			changes.reading(device, t)
		}
	}
	return withLog(c)
}

// Signs implements [storage.Store].
func (m *Memory) Signs() *vitals.Signs { return m.signs }

// Append implements [storage.Store]. Readings are durable when it returns.
func (m *Memory) Append(group []*storage.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, storage.ErrClosed)
	}
	if err := storage.CheckGroup(group, m.signs); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	wearers := map[vitals.Name]*storage.Wearers{}
	for i, got := range m.records.settleGroup(group, m.maxDevices, func(e *storage.Entry, change bool) storage.Outcome {
		return m.assigned.claim(wearers, e, change)
	}) {
		group[i].Outcome, group[i].Sign = got.outcome, got.sign
		if got.outcome == storage.Stored || got.outcome == storage.Completed {
			m.changes.reading(group[i].Reading.Device, group[i].Reading.TimeUnixMs)
			m.changes.latestUnixMs = max(m.changes.latestUnixMs, group[i].ReceivedUnixMs)
		}
	}
	m.changes.wake()
	return nil
}

// A claimer settles the claim of an entry, which need not have one, like [storage.Wearers.Settle].
type claimer func(e *storage.Entry, change bool) storage.Outcome

func noClaims(*storage.Entry, bool) storage.Outcome { return 0 }

// A settled is the result of settling a reading.
type settled struct {
	outcome storage.Outcome
	sign    vitals.Sign
}

// settleGroup settles the readings of a group, and returns the result of each.
func (rs records) settleGroup(group []*storage.Entry, maxDevices int, claim claimer) []settled {
	all := make([]settled, len(group))
	for i := 0; i < len(group); {
		n := storage.UnitLen(group[i:])
		if n == 1 {
			all[i].outcome, all[i].sign = rs.settle(group[i], maxDevices, claim)
			if all[i].outcome <= storage.Duplicate {
				claim(group[i], true)
			}
		} else {
			rs.settleUnit(group[i:i+n], all[i:i+n], maxDevices)
		}
		i += n
	}
	return all
}

// settleUnit settles the readings of a unit one after the other, and undoes all of it if one is rejected.
func (rs records) settleUnit(unit []*storage.Entry, all []settled, maxDevices int) {
	before := records{}
	for _, e := range unit {
		before[e.Reading.Device] = maps.Clone(rs[e.Reading.Device])
	}
	for i, e := range unit {
		all[i].outcome, all[i].sign = rs.settle(e, maxDevices, noClaims)
		if all[i].outcome <= storage.Duplicate {
			continue
		}
		clear(all[:i])
		for device, byTime := range before {
			if rs[device] = byTime; byTime == nil {
				delete(rs, device)
			}
		}
		return
	}
}

// settle settles one reading and returns its outcome, with Conflict the first sign
// that contradicts.
func (rs records) settle(e *storage.Entry, maxDevices int, claim claimer) (storage.Outcome, vitals.Sign) {
	r := e.Reading
	switch {
	case r.Values.IsZero():
		return cmp.Or(claim(e, false), storage.Duplicate), 0
	case rs[r.Device] != nil:
	case r.Device.IsAwkward():
		return storage.AwkwardName, 0
	case maxDevices > 0 && len(rs) >= maxDevices:
		return storage.TooManyDevices, 0
	}
	if rejected := claim(e, false); rejected != 0 {
		return rejected, 0
	}
	if rs[r.Device] == nil {
		rs[r.Device] = map[int64]storage.Record{}
	}
	have, ok := rs[r.Device][r.TimeUnixMs]
	if !ok {
		rs[r.Device][r.TimeUnixMs] = recordOf(e)
		return storage.Stored, 0
	}
	named := recordOf(e).Gateway
	others := have.Shared || (have.Gateway == nil) != (named == nil) || named != nil && *have.Gateway != *named
	guarded := e.Guard != nil && (others || e.Relayed) && have.Values.Present()&r.Values.Present() != 0
	if guarded && !e.Guard.Take() {
		return storage.Withheld, 0
	}
	if s, ok := firstConflict(have.Values, r.Values); ok {
		return storage.Conflict, s
	}
	if guarded {
		e.Guard.Return()
	}
	merged := union(have.Values, r.Values)
	learns := e.Relayed && (have.Gateway == nil && named != nil || have.UTCOffset == 0 && r.UTCOffset != 0)
	if merged == have.Values && !learns {
		return storage.Duplicate, 0
	}
	have.Values, have.Shared = merged, others
	if e.ReceivedUnixMs > have.ReceivedUnixMs {
		have.ChangedUnixMs = e.ReceivedUnixMs
	}
	if have.Gateway == nil {
		have.Gateway = named
	}
	if have.UTCOffset == 0 {
		have.UTCOffset = r.UTCOffset
	}
	rs[r.Device][r.TimeUnixMs] = have
	return storage.Completed, 0
}

// firstConflict returns the first sign of which a and b hold different values.
func firstConflict(a, b vitals.Values) (vitals.Sign, bool) {
	for s := range vitals.InOrder(a.Present() & b.Present()) {
		va, _ := a.Get(s)
		vb, _ := b.Get(s)
		if va != vb {
			return s, true
		}
	}
	return 0, false
}

// union returns a with the signs of b that a lacks.
func union(a, b vitals.Values) vitals.Values {
	for s := range vitals.Sign(vitals.MaxSigns) {
		if v, ok := b.Get(s); ok && !a.Has(s) {
			a.Set(s, v)
		}
	}
	return a
}

// Latest implements [storage.Store].
func (m *Memory) Latest(ctx context.Context, device vitals.Name) (storage.Device, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.readable(ctx); err != nil {
		return storage.Device{}, fmt.Errorf("read latest of %s: %w", device, err)
	}
	if m.records[device] == nil {
		return storage.Device{}, fmt.Errorf("read latest of %s: %w", device, storage.ErrNotFound)
	}
	return m.records.latest(device), nil
}

// latest computes the summary of a device from all its records.
func (rs records) latest(device vitals.Name) storage.Device {
	d := storage.Device{Name: device, NewestUnixMs: -1}
	for t, rec := range rs[device] {
		d.NewestUnixMs = max(d.NewestUnixMs, t)
		for s := range vitals.Sign(vitals.MaxSigns) {
			l := &d.Latest[s]
			if v, ok := rec.Values.Get(s); ok && (!l.Known || t > l.TimeUnixMs) {
				*l = storage.Latest{TimeUnixMs: t, UTCOffset: rec.UTCOffset, Value: v, Known: true}
			}
		}
	}
	return d
}

// Scan implements [storage.Store].
func (m *Memory) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.readable(ctx); err != nil {
		return 0, fmt.Errorf("scan %s: %w", r.Device, err)
	}
	return copy(dst, m.records.scan(r)), nil
}

// scan returns all records of r, in r's order.
func (rs records) scan(r storage.Range) []storage.Record {
	var found []storage.Record
	for t, rec := range rs[r.Device] {
		if r.FromUnixMs <= t && t < r.ToUnixMs {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b storage.Record) int { return cmp.Compare(a.TimeUnixMs, b.TimeUnixMs) })
	if r.Descending {
		slices.Reverse(found)
	}
	return found
}

// Devices implements [storage.Store].
func (m *Memory) Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.readable(ctx); err != nil {
		return 0, fmt.Errorf("list devices: %w", err)
	}
	return copy(dst, m.records.devices(after)), nil
}

// devices returns all devices whose names sort after the name after.
func (rs records) devices(after vitals.Name) []storage.Device {
	var found []storage.Device
	for name := range rs {
		if name.Compare(&after) > 0 {
			found = append(found, rs.latest(name))
		}
	}
	slices.SortFunc(found, func(a, b storage.Device) int { return a.Name.Compare(&b.Name) })
	return found
}

// WalkDevices calls visit with all devices, one at a time, in no particular order.
func (m *Memory) WalkDevices(ctx context.Context, visit func([]storage.Device)) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.readable(ctx); err != nil {
		return fmt.Errorf("visit devices: %w", err)
	}
	for name := range m.records {
		visit([]storage.Device{m.records.latest(name)})
	}
	return nil
}

func (m *Memory) readable(ctx context.Context) error {
	if m.closed {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// Erase implements [storage.Remover].
func (m *Memory) Erase(device vitals.Name) (storage.Erasure, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return storage.Erasure{}, fmt.Errorf("erase device %s: %w", device, storage.ErrClosed)
	}
	n, all := len(m.records[device]), m.assigned.of(func(a *storage.Assignment) bool { return a.Device == device })
	if assigned := m.assigned.remove(func(a *storage.Assignment) bool { return a.Device == device }); n+assigned == 0 {
		return storage.Erasure{}, fmt.Errorf("erase device %s: %w", device, storage.ErrNotFound)
	}
	delete(m.records, device)
	e := storage.Erasure{Device: device, Readings: int64(n)}
	m.changes.erased(&e, all)
	return e, nil
}

// EraseValues implements [storage.Remover].
func (m *Memory) EraseValues(e storage.Erasure) (storage.Erasure, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return storage.Erasure{}, fmt.Errorf("erase values: %w", storage.ErrClosed)
	}
	e, err := m.records.eraseValues(e)
	if err == nil && e.Readings > 0 {
		m.changes.erased(&e, m.assigned.of(func(a *storage.Assignment) bool { return a.Device == e.Device }))
	}
	return e, err
}

func (rs records) eraseValues(e storage.Erasure) (storage.Erasure, error) {
	if err := e.Validate(); err != nil {
		return storage.Erasure{}, fmt.Errorf("erase values: %w", err)
	}
	byTime := rs[e.Device]
	if byTime == nil {
		return storage.Erasure{}, fmt.Errorf("erase values: %w", storage.ErrNotFound)
	}
	e.Readings = 0
	for t, r := range byTime {
		if selected, _ := e.Selects(&r); !selected {
			continue
		}
		e.Readings++
		if r.Values = e.Left(&r.Values); r.Values.IsZero() {
			delete(byTime, t)
		} else {
			byTime[t] = r
		}
	}
	if len(byTime) == 0 {
		delete(rs, e.Device)
	}
	return e, nil
}

// Expire implements [storage.Remover].
func (m *Memory) Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readable(ctx); err != nil {
		return storage.Expiry{}, fmt.Errorf("remove readings before %d: %w", beforeUnixMs, err)
	}
	x := m.records.expire(beforeUnixMs, atMost)
	if x.Readings > 0 {
		m.changes.expired = storage.AddHorizon(m.changes.expired,
			storage.Horizon{BeforeUnixMs: beforeUnixMs, AtUnixMs: m.changes.latestUnixMs})
		m.changes.event(storage.Change{Kind: storage.ChangeExpired, ToUnixMs: beforeUnixMs})
	}
	return x, nil
}

func (rs records) expire(beforeUnixMs, atMost int64) (x storage.Expiry) {
	for _, d := range rs.devices(vitals.Name{}) {
		byTime := rs[d.Name]
		for _, t := range slices.Sorted(maps.Keys(byTime)) {
			if t >= beforeUnixMs {
				break
			}
			if x.Readings == atMost {
				x.More = true
				return x
			}
			delete(byTime, t)
			x.Readings++
		}
		if len(byTime) == 0 {
			delete(rs, d.Name)
			x.Devices++
		}
	}
	return x
}

// Close implements [storage.Store].
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return storage.ErrClosed
	}
	m.closed = true
	m.changes.wake()
	return nil
}
