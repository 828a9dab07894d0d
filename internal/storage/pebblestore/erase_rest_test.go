package pebblestore_test

import (
	"context"
	"errors"
	"math"
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

		onlyJournals bool // hold traces: Erase makes new ones
	}{
		{"immediately", func(s *pebblestore.Store) *pebblestore.Store { return s }, false},
		{"tables compacted", func(s *pebblestore.Store) *pebblestore.Store { pebblestore.CompactAll(s); return s }, true},
		{"only its gateway's name is in tables", func(s *pebblestore.Store) *pebblestore.Store {
			pebblestore.CompactReadings(s)
			return s
		}, false},
		{"after a start", nil, false},
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
			want := storage.Erasure{Device: mustName(erasedDevice)}
			if tt.onlyJournals {
				want = storage.Erasure{}
			}
			if e != want || tt.onlyJournals != errors.Is(err, storage.ErrNotFound) || err != nil && !tt.onlyJournals {
				t.Errorf("Erase returns %+v, %v, want %+v, or ErrNotFound: %t", e, err, want, tt.onlyJournals)
			}
			wantNoTraces(t, fs)
			for _, unknown := range []string{erasedDevice, "never-seen", "late", "later-1"} {
				if _, err := s.Erase(mustName(unknown)); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Erase(%s) of an unknown device returns %v, want ErrNotFound", unknown, err)
				}
			}
			mustAppend(t, s, entry("later", 1_900_000_000_001, 1), entry(erasedDevice, 1, 1))
			mustClose(t, s)
			if report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil ||
				report.Readings != 3 {
				t.Errorf("Check returns %+v, %v", report, err)
			}
		})
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
		_, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
		try(t, err)
	}
}
