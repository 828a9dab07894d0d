package pebblestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestActiveDevices compares the count with one of all devices, while devices send
// readings in any order, and after restarts.
//
// Seen to fail when a device was not removed from the minute of its previous reading,
// when late readings counted, and when the counts were lost in a restart.
func TestActiveDevices(t *testing.T) {
	const minute = int64(time.Minute / time.Millisecond)
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMilli()
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewMem()
		s := mustOpen(t, pebblestore.Options{FS: fs})
		newest := map[string]int64{}
		now := start
		for step := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			device := fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "device"))
			// Up to three days late, or a little in the future.
			at := now - rapid.Int64Range(-4*minute, 3*24*60*minute).Draw(rt, "late")
			mustAppend(t, s, entry(device, at, 7000))
			if old, ok := newest[device]; !ok || at > old {
				newest[device] = at
			}
			now += rapid.Int64Range(0, 90*minute).Draw(rt, "pause")
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				mustClose(t, s)
				s = mustOpen(t, pebblestore.Options{FS: fs})
			}
			for _, within := range []time.Duration{time.Minute, 15 * time.Minute, time.Hour, 24 * time.Hour} {
				var want int64
				for _, at := range newest {
					if at/minute >= (now-within.Milliseconds())/minute {
						want++
					}
				}
				if got := s.ActiveDevices(time.UnixMilli(now), within); got != want {
					rt.Fatalf("step %d: %d devices are active within %v, want %d", step, got, within, want)
				}
			}
		}
		mustClose(t, s)
	})
}

// TestRecovered checks that a store knows whether it was closed cleanly.
func TestRecovered(t *testing.T) {
	disk := vfs.NewCrashableMem()
	open := func(fs vfs.FS, want bool, what string) *pebblestore.Store {
		t.Helper()
		s := mustOpen(t, pebblestore.Options{FS: fs})
		if got := shown(t, s, "store_recovered") == 1; got != want {
			t.Errorf("%s: recovered is %v, want %v", what, got, want)
		}
		return s
	}
	s := open(disk, false, "a new store")
	mustAppend(t, s, entry("d", 1, 1))
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)
	mustClose(t, open(disk, false, "a store that was closed"))
	mustClose(t, open(crashed, true, "a store that crashed"))
	mustClose(t, open(crashed, false, "a store that had crashed and was closed"))
}

// TestTroubles counts errors after which the store continues.
func TestTroubles(t *testing.T) {
	// One failure only: commits wait for flushes.
	flush := &fault{failing: errDisk}
	flush.match = func(op errorfs.Op) bool {
		return flush.failed.Load() == 0 && operation(".sst", errorfs.OpCreate)(op)
	}
	s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), flush), MemTableBytes: 64 << 10})
	defer mustClose(t, s)
	flush.on.Store(true)
	for k := int64(0); shown(t, s, "store_background_errors_total") == 0; k++ {
		group := make([]*storage.Entry, 500)
		for i := range group {
			group[i] = entry(fmt.Sprintf("a-device-with-a-name-%d", i), k, 7000)
		}
		mustAppend(t, s, group...)
	}
	if shown(t, s, "store_failed") != 0 {
		t.Error("the store has failed after a failed flush")
	}
}
