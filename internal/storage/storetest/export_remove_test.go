package storetest

import (
	"context"
	"strings"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

func (b *broken) Erase(device vitals.Name) (storage.Erasure, error) {
	b.beforeRemoval()
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
	case "erase counts devices":
		e.Readings = 1
	case "erased device counts towards the limit":
		b.maxDevices--
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
