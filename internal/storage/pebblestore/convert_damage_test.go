package pebblestore_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestDamagedInConversion damages a segment of a device of which some readings are rows of format 1
// still. Removal must do with both what it does elsewhere.
//
// Seen to fail when damage ended the pass of Expire, and kept the readings of its device.
func TestDamagedInConversion(t *testing.T) {
	long(t)
	t.Parallel()
	disk, rng, model := vfs.NewCrashableMem(), rand.New(rand.NewPCG(7, 7)), storetest.NewMemory()
	for i := range int64(damagedEach) {
		for _, device := range damagedDevices {
			e := entry(device, 1000*i, vitals.Hundredths(2000+rng.IntN(20_000)))
			e.ReceivedUnixMs = 1 + rng.Int64N(1_000_000)
			mustAppend(t, model, e)
		}
	}
	writeFormat1(t, disk, model, rng)
	// Convert the first device, and a part of the second one.
	const converted = damagedEach + 2*damagedEach/3
	steps := make(chan struct{}, converted/500)
	some := func(ctx context.Context) {
		select {
		case steps <- struct{}{}:
		case <-ctx.Done():
		}
	}
	options := func(fs vfs.FS, before func(context.Context)) pebblestore.Options {
		return pebblestore.WithConversion(segmented(fs), 500, before)
	}
	s := mustOpen(t, options(disk, some))
	polltest.Until(t, "some steps", func() bool { return shown(t, s, "store_converted_readings_total") == converted })
	pebblestore.CompactAll(s)
	mustClose(t, s)
	table := namesWith(t, disk, ".sst")
	if len(table) != 1 {
		t.Fatalf("there are tables %v, want one", table)
	}
	beside := 0
	for at := 1000; at < size(t, disk, table[0]); at += 7919 {
		fs := copyFS(t, disk)
		flip(t, fs, table[0], at)
		s, err := pebblestore.Open(dataDir, options(fs, hold))
		if err != nil {
			wantDamage(t, "Open", table[0], err)
			continue
		}
		damaged := map[string]bool{}
		for _, device := range damagedDevices {
			if _, err := scan(s, device, 0, math.MaxInt64); err != nil {
				damaged[device] = true
			}
		}
		if damaged["dev-bbbb"] {
			beside++
		}
		if x, err := s.Expire(context.Background(), damagedHalf, math.MaxInt64); err != nil || x.Readings < int64(3-len(damaged))*damagedEach/2 {
			t.Errorf("byte %d: Expire returns %+v, %v", at, x, err)
		}
		for _, device := range damagedDevices {
			n, err := scan(s, device, 0, math.MaxInt64)
			if !damaged[device] && (n != damagedEach/2 || err != nil) {
				t.Errorf("byte %d: a scan of %s returns %d, %v, want %d", at, device, n, err, damagedEach/2)
			}
		}
		if _, err := s.Erase(mustName("dev-bbbb")); err != nil && !(errors.Is(err, storage.ErrUnfinished) && errors.Is(err, storage.ErrCorrupt)) {
			t.Errorf("byte %d: Erase returns %v", at, err)
		}
		if n, err := scan(s, "dev-bbbb", 0, math.MaxInt64); n != 0 || err != nil {
			t.Errorf("byte %d: after Erase, a scan returns %d, %v", at, n, err)
		}
		_ = s.Close()

		s = mustOpen(t, options(fs, nil))
		left := float64(0)
		if damaged["dev-cccc"] {
			left = 1
		}
		polltest.Until(t, "the end of what can be converted", func() bool { return shown(t, s, "store_conversion_devices_left") <= left })
		for _, device := range []string{"dev-aaaa", "dev-cccc"} {
			n, err := scan(s, device, 0, math.MaxInt64)
			if !damaged[device] && (n != damagedEach/2 || err != nil) {
				t.Errorf("byte %d: after the conversion, a scan of %s returns %d, %v, want %d", at, device, n, err, damagedEach/2)
			}
		}
		if x, err := s.Expire(context.Background(), damagedEnd, math.MaxInt64); err != nil || s.DeviceCount() != 0 {
			t.Errorf("byte %d: the last Expire returns %+v, %v, and %d devices are left", at, x, err, s.DeviceCount())
		}
		_ = s.Close()
	}
	if beside == 0 {
		t.Error("no damage was beside rows of format 1")
	}
}

// TestConvertFault fails all reads of tables while a store is converted. When the disk works again, the
// conversion must end without a restart.
//
// Seen to fail when the conversion left what it could not read to the next start.
func TestConvertFault(t *testing.T) {
	t.Parallel()
	disk, ledger := prepareFormat1()
	var failing, failed atomic.Bool
	fault := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && failing.Load() {
			failed.Store(true)
			return syscall.EIO
		}
		return nil
	})
	o := pebblestore.WithConversion(pebblestore.Options{FS: inject(disk, fault), MinFreeBytes: -1, CacheBytes: 1}, 40, func(context.Context) {
		failing.Store(!failed.Load()) // the first attempt fails
	})
	s := mustOpen(t, o)
	polltest.Until(t, "a read has failed", failed.Load)
	failing.Store(false)
	polltest.Until(t, "the store is converted", func() bool { return !pebblestore.Converting(s) })
	if err := s.Degraded(); err != nil {
		t.Errorf("Degraded returns %v after errors of the disk", err)
	}
	if err := ledger.holds(s); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
}
