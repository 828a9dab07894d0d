package pebblestore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestLookups checks that only late readings are looked up in the tree, and each record
// only once per group.
func TestLookups(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	lookups := 0.0
	settle := func(name string, want float64, group ...*storage.Entry) {
		t.Helper()
		mustAppend(t, s, group...)
		got := shown(t, s, "store_lookups_total") - lookups
		lookups += got
		if got != want {
			t.Errorf("%s: %v look-ups, want %v", name, got, want)
		}
	}
	settle("new devices", 0, entry("a", 10, 1), entry("b", 20, 1))
	settle("newer readings", 0, entry("a", 11, 1), entry("a", 12, 1), entry("b", 21, 1), entry("a", 20, 1))
	settle("completed in its group", 0, entry("a", 30, 1), with(entry("a", 30, 1), vitals.SpO2, 2), entry("a", 30, 9))
	settle("late, new", 1, entry("a", 5, 1))
	settle("late, stored", 1, entry("a", 5, 1))
	settle("the newest again", 1, entry("a", 30, 1))
	settle("late, twice in a group", 1, entry("a", 6, 1), entry("a", 6, 1))
	settle("late, stored, three times in a group", 1, entry("a", 6, 1), with(entry("a", 6, 1), vitals.SpO2, 2),
		entry("a", 6, 9))
	settle("late within its group", 1, entry("c", 9, 1), entry("c", 8, 1), entry("c", 8, 1))
	settle("first newer, then late", 2, entry("b", 40, 1), entry("b", 39, 1), entry("b", 38, 1), entry("b", 41, 1))

	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: fs})
	defer mustClose(t, s)
	lookups = 0
	settle("newer after a reopen", 0, entry("a", 31, 1), entry("b", 42, 1), entry("c", 10, 1), entry("d", 1, 1))
	settle("late after a reopen", 2, entry("a", 30, 1), entry("c", 7, 1))
}

// TestOneSyncPerGroup counts the syncs of the log.
func TestOneSyncPerGroup(t *testing.T) {
	var syncs atomic.Int64
	fs := inject(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if isLog(op.Path) {
				syncs.Add(1)
			}
		}
		return nil
	}))
	s := mustOpen(t, pebblestore.Options{FS: fs})
	defer mustClose(t, s)
	for _, tt := range []struct {
		name  string
		group []*storage.Entry
		want  int64
	}{
		{"one reading", []*storage.Entry{entry("a", 1, 1)}, 1},
		{"a thousand readings", manyEntries(1000), 1},
		{"late, completing and new ones", []*storage.Entry{entry("dev-1", 0, 1), with(entry("a", 1, 1), vitals.SpO2, 1),
			entry("z", 1, 1)}, 1},
		{"duplicates and conflicts only", []*storage.Entry{entry("a", 1, 1), entry("a", 1, 2)}, 0},
		{"nothing", nil, 0},
	} {
		before := syncs.Load()
		mustAppend(t, s, tt.group...)
		if got := syncs.Load() - before; got != tt.want {
			t.Errorf("%s: %d syncs, want %d", tt.name, got, tt.want)
		}
	}
	if got := shown(t, s, "store_syncs_total"); got != 3 {
		t.Errorf("%v syncs are shown, want 3", got)
	}
}

func manyEntries(n int) []*storage.Entry {
	var group []*storage.Entry
	for i := range n {
		group = append(group, entry(fmt.Sprintf("dev-%d", i%50), int64(1+i), vitals.Value(i)))
	}
	return group
}

// TestAppendAllocations checks that the number of allocations of Append does not depend
// on the number of readings in the group.
func TestAppendAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector, sync.Pool drops items at random, also in Pebble")
	}
	for _, tt := range []struct {
		name string
		step int64 // between one group's times and the next one's
	}{
		{"newer", 1},
		{"duplicate", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			allocs := func(size int) float64 {
				s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem()})
				defer mustClose(t, s)
				group := manyEntries(size)
				grow := func() {
					for _, e := range group {
						e.Reading.TimeUnixMs += tt.step * int64(size)
					}
					try(t, s.Append(group))
				}
				for range 30 {
					grow()
				}
				return testing.AllocsPerRun(50, grow)
			}
			// An occasional flush costs a few hundred in the background, and the
			// in-memory file system grows its files.
			few, many := allocs(16), allocs(1024)
			t.Logf("groups of 16: %.1f allocations, of 1024: %.1f", few, many)
			if perReading := (many - few) / (1024 - 16); perReading > 0.02 {
				t.Errorf("%.3f allocations per reading, want none", perReading)
			}
		})
	}
}
