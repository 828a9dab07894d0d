package storetest

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

func (b *broken) Erase(device vitals.Name) (storage.Erasure, error) {
	b.beforeRemoval()
	before := slices.Clone(b.assigned.all)
	e, err := b.Memory.Erase(device)
	if err != nil {
		return e, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.fault {
	case "erase removes similar names":
		for name := range b.records {
			if strings.HasPrefix(name.String(), device.String()) {
				delete(b.records, name)
			}
		}
	case "erase leaves assignments":
		b.assigned.all = before
	case "erase counts devices":
		e.Readings = 1
	case "erased device counts towards the limit":
		b.maxDevices--
	}
	return e, nil
}

func (b *broken) Assign(ctx context.Context, a storage.Assignment) error {
	switch b.fault {
	case "assignments may overlap by a millisecond":
		if a.Validate() == nil && a.ToUnixMs-a.FromUnixMs > 1 && a.ToUnixMs != storage.OpenEnd {
			shorter := a
			shorter.FromUnixMs++
			if b.Memory.Clone(0).Assign(ctx, a) != nil && b.Memory.Clone(0).Assign(ctx, shorter) == nil {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.assigned.all = append(b.assigned.all, a)
				return nil
			}
		}
	case "assignments may not touch":
		longer := a
		longer.FromUnixMs = max(longer.FromUnixMs-1, 0)
		if err := b.Memory.Clone(0).Assign(ctx, a); err == nil {
			if err := b.Memory.Clone(0).Assign(ctx, longer); err != nil {
				return err
			}
		}
	case "assignments of several devices exclude each other":
		b.mu.RLock()
		for _, other := range b.assigned.all {
			if other.Covers(a.FromUnixMs) && other.Device != a.Device {
				b.mu.RUnlock()
				return storage.ErrAssigned
			}
		}
		b.mu.RUnlock()
	case "concurrent assignments do not see each other":
		stale := b.Memory.Clone(0)
		runtime.Gosched()
		if err := stale.Assign(ctx, a); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.assigned.all = append(b.assigned.all, a)
		return nil
	}
	return b.Memory.Assign(ctx, a)
}

func (b *broken) EraseAssignment(a storage.Assignment) (storage.Erasure, error) {
	device, fromUnixMs := a.Device, a.FromUnixMs
	as, _ := b.Memory.DeviceAssignments(context.Background(), device)
	e, err := b.Memory.EraseAssignment(a)
	if err != nil {
		return e, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.fault {
	case "an erased assignment includes its end":
		delete(b.records[device], e.ToUnixMs)
	case "an erased assignment stays":
		b.assigned.all = append(b.assigned.all, as[slices.IndexFunc(as, func(a storage.Assignment) bool { return a.FromUnixMs == fromUnixMs })])
	case "all assignments of a device are erased":
		b.assigned.remove(func(a *storage.Assignment) bool { return a.Device == device })
	}
	return e, nil
}

func (b *broken) Expire(ctx context.Context, beforeUnixMs, atMost int64) (storage.Expiry, error) {
	b.beforeRemoval()
	if b.fault == "expire is inclusive" {
		beforeUnixMs++
	}
	x, err := b.Memory.Expire(ctx, beforeUnixMs, atMost)
	if b.fault == "expired device counts towards the limit" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.maxDevices -= int(x.Devices)
	}
	return x, err
}

// beforeRemoval saves the records that some faults need.
func (b *broken) beforeRemoval() {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.fault {
	case "expired signs stay":
		b.expired = clone(b.records)
	case "crash restores removed readings":
		b.before = clone(b.records)
	}
}

// expiredSigns restores the latest values that Expire has removed.
func (b *broken) expiredSigns(d *storage.Device) {
	for s, l := range b.expired.latest(d.Name).Latest {
		if !d.Latest[s].Known {
			d.Latest[s] = l
		}
	}
}
