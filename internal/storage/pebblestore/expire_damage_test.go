package pebblestore_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

const (
	damagedEach = 3000                    // readings of a device, 1,000 ms apart
	damagedHalf = 1000 * damagedEach / 2  // a time in the middle of a segment
	damagedEnd  = 1000*damagedEach + 1000 // a time after all of them
)

// damagedDevices are the devices of oneTable.
var damagedDevices = []string{"dev-aaaa", "dev-bbbb", "dev-cccc"}

// oneTable returns a closed store with all readings in one table, and its path. Blocks have
// several segments each, so that a damaged one may have segments of two devices.
func oneTable(t *testing.T) (disk *vfs.MemFS, table string) {
	t.Helper()
	disk = vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(6, 6))
	s := mustOpen(t, segmented(disk))
	var group []*storage.Entry
	for i := range int64(damagedEach) {
		for _, device := range damagedDevices {
			e := entry(device, 1000*i, vitals.Value(2000+rng.IntN(20_000)))
			e.ReceivedUnixMs = 1 + rng.Int64N(1_000_000)
			e.Reading.Gateway = mustName("of-" + device)
			group = append(group, e)
		}
	}
	mustAppend(t, s, group...)
	try(t, pebblestore.Seal(s))
	pebblestore.CompactAll(s)
	mustClose(t, s)
	tables := namesWith(t, disk, ".sst")
	if len(tables) != 1 {
		t.Fatalf("there are tables %v, want one", tables)
	}
	return disk, tables[0]
}

func segmented(fs vfs.FS) pebblestore.Options {
	return pebblestore.WithSegmentRows(pebblestore.Options{FS: fs}, 64)
}

// scan returns the number of a device's readings from fromMs to before toMs.
func scan(s storage.Store, device string, fromMs, toMs int64) (int, error) {
	return s.Scan(context.Background(), storage.Range{Device: mustName(device), FromUnixMs: fromMs, ToUnixMs: toMs},
		make([]storage.Record, 2*damagedEach))
}

// eachDamage calls test with copies of a store that are damaged at many offsets of the table, and
// can be opened. damaged reports whether readings of a device cannot be read.
func eachDamage(t *testing.T, disk *vfs.MemFS, table string, step int,
	test func(t *testing.T, at int, fs *vfs.MemFS, s *pebblestore.Store, damaged map[string]bool)) {
	several := 0
	for at := 20; at < size(t, disk, table); at += step {
		fs := copyFS(t, disk)
		flip(t, fs, table, at)
		s, err := pebblestore.Open(dataDir, segmented(fs))
		if err != nil {
			wantDamage(t, "Open", table, err)
			continue
		}
		damaged := map[string]bool{}
		for _, device := range damagedDevices {
			if _, err := scan(s, device, 0, math.MaxInt64); err != nil {
				damaged[device] = true
			}
		}
		mustClose(t, s)
		if len(damaged) > 1 {
			several++
		}
		s = mustOpen(t, segmented(fs))
		test(t, at, fs, s, damaged)
	}
	if several == 0 {
		t.Error("no damaged block had segments of two devices")
	}
}

// TestExpireDamaged removes old readings from a store with a damaged block. The damage must not keep those of other
// devices, nor those of its own device in segments that have only old ones.
//
// Seen to fail when damage ended the pass.
func TestExpireDamaged(t *testing.T) {
	long(t)
	t.Parallel()
	disk, table := oneTable(t)
	const step = 2999
	found := 0
	eachDamage(t, disk, table, step, func(t *testing.T, at int, fs *vfs.MemFS, s *pebblestore.Store,
		damaged map[string]bool) {
		kept := map[string]error{}
		for _, device := range damagedDevices {
			_, kept[device] = scan(s, device, damagedHalf, math.MaxInt64)
		}
		x, err := s.Expire(context.Background(), damagedHalf, math.MaxInt64)
		if least := int64(len(damagedDevices)-len(damaged)) * damagedEach / 2; err != nil || x.Readings < least ||
			x.Devices != 0 || x.More {
			t.Errorf("byte %d: Expire returns %+v, %v, want at least %d readings", at, x, err, least)
		}
		for _, device := range damagedDevices {
			n, err := scan(s, device, 0, damagedHalf)
			if n >= 64 || !damaged[device] && (n != 0 || err != nil) { // a segment across the end may stay
				t.Errorf("byte %d: device %s has %d old readings, %v", at, device, n, err)
			}
			if n, err = scan(s, device, damagedHalf, math.MaxInt64); kept[device] == nil && (n != damagedEach/2 || err != nil) {
				t.Errorf("byte %d: device %s has %d newer readings, %v, want %d", at, device, n, err, damagedEach/2)
			}
			if err != nil && kept[device] == nil {
				t.Errorf("byte %d: device %s could be read before: %v", at, device, err)
			}
		}
		if err := s.Degraded(); len(damaged) > 0 &&
			(!errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), path.Base(table))) {
			t.Errorf("byte %d: Degraded returns %v, want ErrCorrupt with the table", at, err)
		}
		if len(damaged) > 0 {
			found++
		}
		mustAppend(t, s, entry("dev-aaaa", damagedEnd, 1), entry("dev-bbbb", damagedEnd+1, 1))
		if x, err := s.Expire(context.Background(), damagedEnd, math.MaxInt64); err != nil || x.Devices != 1 {
			t.Errorf("byte %d: the second Expire returns %+v, %v, want one device", at, x, err)
		}
		_ = s.Close()
		s = mustOpen(t, segmented(fs))
		defer mustClose(t, s)
		for device, want := range map[string]int{"dev-aaaa": 1, "dev-bbbb": 1, "dev-cccc": 0} {
			if n, err := scan(s, device, 0, math.MaxInt64); n != want || err != nil {
				t.Errorf("byte %d: in the end device %s has %d readings, %v, want %d", at, device, n, err, want)
			}
		}
	})
	if found == 0 {
		t.Error("no damage was met")
	}
}
