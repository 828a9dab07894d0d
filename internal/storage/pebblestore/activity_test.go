package pebblestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

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
