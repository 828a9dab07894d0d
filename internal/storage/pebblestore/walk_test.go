package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestWalkDevices compares the devices that WalkDevices visits with those that Devices
// lists, in more than one chunk of the table, after removals and after a start.
func TestWalkDevices(t *testing.T) {
	long(t)
	t.Parallel()
	ctx, fs := context.Background(), vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	check := func(when string, wantDevices int) {
		t.Helper()
		var got []storage.Device
		try(t, s.WalkDevices(ctx, func(some []storage.Device) { got = append(got, some...) }))
		slices.SortFunc(got, func(a, b storage.Device) int { return a.Name.Compare(&b.Name) })
		want := make([]storage.Device, 5000)
		n, err := s.Devices(ctx, vitals.Name{}, want)
		try(t, err)
		if !slices.Equal(got, want[:n]) || n != wantDevices {
			t.Errorf("%s: %d devices are visited, %d listed, want %d, all equal", when, len(got), n, wantDevices)
		}
	}
	check("an empty store", 0)
	var group []*storage.Entry
	for i := range 3000 {
		name := fmt.Sprintf("d-%04d", i*7%3000)
		group = append(group, entry(name, int64(i), 60), with(entry(name, int64(1000+i%2), 61), vitals.SpO2, 97))
	}
	mustAppend(t, s, group...)
	check("after Append", 3000)
	for _, i := range []int{0, 1023, 1024, 2999} {
		_, err := s.Erase(mustName(fmt.Sprintf("d-%04d", i)))
		try(t, err)
	}
	check("after Erase", 2996)
	mustAppend(t, s, entry("new", 5000, 62))
	check("with a number that is used again", 2997)
	_, err := s.Expire(ctx, 1001, math.MaxInt64)
	try(t, err)
	check("after Expire", int(s.DeviceCount()))
	if left := s.DeviceCount(); left == 0 || left == 2997 {
		t.Errorf("%d devices are left", left)
	}
	mustClose(t, s)
	if err := s.WalkDevices(ctx, func([]storage.Device) {}); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
	s = mustOpen(t, pebblestore.Options{FS: fs})
	check("after a start", int(s.DeviceCount()))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.WalkDevices(ended, func([]storage.Device) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	mustClose(t, s)
}
