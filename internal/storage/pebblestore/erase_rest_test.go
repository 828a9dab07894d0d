package pebblestore_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestEraseEmptied erases a device whose readings have all expired: the store no longer
// knows it, but its bytes are still in files.
//
// Seen to fail with the mutant skip-empty-devices.
func TestEraseEmptied(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first func(s *pebblestore.Store) *pebblestore.Store
	}{
		{"immediately", func(s *pebblestore.Store) *pebblestore.Store { return s }},
		{"tables compacted", func(s *pebblestore.Store) *pebblestore.Store { pebblestore.CompactAll(s); return s }},
		{"after a start", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 64 << 10})
			fill(t, s, 0, 50)
			mustAppend(t, s, entry("later", 1_900_000_000_000, 1))
			if x, err := s.Expire(context.Background(), 1_800_000_000_000, math.MaxInt64); err != nil || x.Devices != 51 {
				t.Fatalf("Expire returns %+v, %v", x, err)
			}
			if tt.first == nil {
				mustClose(t, s)
				s = mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 64 << 10})
			} else {
				s = tt.first(s)
			}
			if len(traces(t, fs, dataDir)) == 0 {
				t.Fatal("no file holds traces of the device before the erasure")
			}
			e, err := s.Erase(mustName(erasedDevice))
			if want := (storage.Erasure{Device: mustName(erasedDevice)}); err != nil || e != want {
				t.Errorf("Erase returns %+v, %v, want %+v", e, err, want)
			}
			if found := traces(t, fs, dataDir); len(found) > 0 {
				t.Errorf("after it, %v hold traces", found)
			}
			for _, unknown := range []string{erasedDevice, "never-seen", "late", "later-1"} {
				if _, err := s.Erase(mustName(unknown)); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Erase(%s) of an unknown device returns %v, want ErrNotFound", unknown, err)
				}
			}
			mustAppend(t, s, entry("later", 1_900_000_000_001, 1), entry(erasedDevice, 1, 1))
			mustClose(t, s)
			if report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil || report.Readings != 3 {
				t.Errorf("Check returns %+v, %v", report, err)
			}
		})
	}
}

// TestEraseInJournals checks that the name of a device is found in a log and in a manifest,
// also if a block of 32 KiB ends anywhere in the name.
func TestEraseInJournals(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	defer mustClose(t, s)
	name := "Xq7Zr1Wk9Vb3Jd5Tf8Yh"
	for _, file := range []string{"000000.log", "MANIFEST-000000"} {
		for _, header := range []int{7, 11, 19} {
			for in := range len(name) + 1 {
				block := strings.Repeat("x", 32<<10-in) + name[:in]
				writeFile(t, fs, dataDir+"/"+file, block+block+strings.Repeat("\x01", header)+name[in:]+"\x00")
				if held, err := pebblestore.MayHold(s, mustName(name)); err != nil || !held {
					t.Errorf("%s, header of %d bytes, after %d bytes of the name: %t, %v, want true", file, header, in, held, err)
				}
			}
		}
		writeFile(t, fs, dataDir+"/"+file, "\x15\x01"+name+"2")
		if held, err := pebblestore.MayHold(s, mustName(name)); err != nil || !held {
			t.Errorf("%s with the key of a record: %t, %v, want true", file, held, err)
		}
		writeFile(t, fs, dataDir+"/"+file, strings.Repeat(name+"0 ", 32<<10)+"x")
		if held, err := pebblestore.MayHold(s, mustName(name)); err != nil || held {
			t.Errorf("%s with longer names: %t, %v, want false", file, held, err)
		}
		if err := fs.Remove(dataDir + "/" + file); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEraseInGroups checks that the name of a device is found in the groups of a log, where it
// is not in full, also if the beginning of the log was overwritten.
func TestEraseInGroups(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: disk})
	mustAppend(t, s, manyEntries(100)...)
	mustClose(t, s)
	s = mustOpen(t, pebblestore.Options{FS: disk}) // begins a log without records
	for k := range int64(20) {
		mustAppend(t, s, noisy(rand.New(rand.NewPCG(1, 1)), shifted(manyEntries(300), 1000*(k+1)))...)
	}
	log, err := readFile(disk, slices.MaxFunc(namesWith(t, disk, ".log"), strings.Compare))
	mustClose(t, s)
	if err != nil || strings.Contains(log, "dev-17") || len(log) < 64<<10 {
		t.Fatalf("the log has %d bytes, %v, and the name of the device in full: %t", len(log), err, strings.Contains(log, "dev-17"))
	}

	fs := vfs.NewMem()
	s = mustOpen(t, pebblestore.Options{FS: fs})
	defer mustClose(t, s)
	for _, overwritten := range []int{0, 1, 500, 40_000} {
		writeFile(t, fs, dataDir+"/000000.log", strings.Repeat("\x07", overwritten)+log[overwritten:])
		for name, want := range map[string]bool{"dev-17": true, "dev-": false, "dev-170": false} {
			if held, err := pebblestore.MayHold(s, mustName(name)); err != nil || held != want {
				t.Errorf("%d bytes overwritten: MayHold(%s) returns %t, %v, want %t", overwritten, name, held, err, want)
			}
		}
	}
}

// TestResumeRemoved finishes an erasure after a crash between the removal of the readings
// and the update of the intent. The device is not known then; others must not be affected.
func TestResumeRemoved(t *testing.T) {
	for _, others := range []int{0, 1} {
		fs := vfs.NewMem()
		s := mustOpen(t, pebblestore.Options{FS: fs})
		for range others {
			mustAppend(t, s, entry("other", 10, 1))
		}
		mustClose(t, s)
		unlist(t, fs)
		writeFile(t, fs, dataDir+"/ERASING", pebblestore.WithSum("pulsegate erasure 1 remove\ndevice gone\nreadings 0\n"))
		s = mustOpen(t, pebblestore.Options{FS: fs})
		mustAppend(t, s, entry("new", 20, 2))
		late, further := entry("other", 5, 3), entry("other", 6, 4)
		mustAppend(t, s, late, further)
		wantOutcome(t, late, storage.Stored)
		if got := count(t, s, "other"); got != others+2 {
			t.Errorf("another device has %d records, want %d", got, others+2)
		}
		if d, err := s.Latest(context.Background(), mustName("new")); err != nil || d.NewestUnixMs != 20 {
			t.Errorf("Latest of the new device returns %+v, %v", d, err)
		}
		mustClose(t, s)
		if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil {
			t.Error(err)
		}
	}
}
