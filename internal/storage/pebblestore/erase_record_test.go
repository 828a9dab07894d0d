package pebblestore_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// errRecord is returned by a function that fails to record an erasure.
var errRecord = errors.New("no space for the audit log")

// eraseUnrecorded erases the device of erasedEntry, and fails to record it.
func eraseUnrecorded(t *testing.T, s *pebblestore.Store) {
	t.Helper()
	_, err := s.EraseRecorded(mustName(erasedDevice), func(storage.Erasure) error { return errRecord })
	if !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, errRecord) {
		t.Fatalf("an erasure that cannot be recorded: %v, want ErrUnfinished", err)
	}
}

// TestEraseRecord erases a device whose erasure cannot be recorded at first. It must be
// recorded when it is finished: by another call for the same device, by the next start, or
// by the erasure of another device. If that fails too, it must be recorded later.
//
// Seen to fail with the mutants remove-intent-first and ignore-failed-record.
func TestEraseRecord(t *testing.T) {
	for _, tt := range []struct {
		name   string
		fails  int // number of failures of OnErased
		finish func(t *testing.T, s *pebblestore.Store, open func() *pebblestore.Store) (recorded []storage.Erasure)
	}{
		{"same device", 0,
			func(t *testing.T, s *pebblestore.Store, _ func() *pebblestore.Store) (recorded []storage.Erasure) {
				defer mustClose(t, s)
				e, err := s.EraseRecorded(mustName(erasedDevice), func(e storage.Erasure) error {
					recorded = append(recorded, e)
					return nil
				})
				if err != nil || e.Readings != 60 {
					t.Errorf("the second erasure returns %+v, %v", e, err)
				}
				return recorded
			}},
		{"next start", 0, func(t *testing.T, s *pebblestore.Store, open func() *pebblestore.Store) []storage.Erasure {
			mustClose(t, s)
			mustClose(t, open())
			return nil
		}},
		{"another device", 0, func(t *testing.T, s *pebblestore.Store, _ func() *pebblestore.Store) []storage.Erasure {
			defer mustClose(t, s)
			_, err := s.Erase(mustName("dev-7"))
			try(t, err)
			return nil
		}},
		{"third start", 2, func(t *testing.T, s *pebblestore.Store, open func() *pebblestore.Store) []storage.Erasure {
			mustClose(t, s)
			for range 3 {
				s := open()
				mustAppend(t, s, entry("dev-7", 1_900_000_000_000, 1)) // the store is usable
				mustClose(t, s)
			}
			return nil
		}},
		{"another device, the second time", 1,
			func(t *testing.T, s *pebblestore.Store, _ func() *pebblestore.Store) []storage.Erasure {
				defer mustClose(t, s)
				if _, err := s.Erase(mustName("dev-7")); !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, errRecord) {
					t.Errorf("while the other cannot be recorded: %v, want ErrUnfinished", err)
				}
				_, err := s.Erase(mustName("dev-7"))
				try(t, err)
				return nil
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := vfs.NewMem()
			var recorded []storage.Erasure
			fails := tt.fails
			open := func() *pebblestore.Store {
				return mustOpen(t, pebblestore.Options{FS: fs, OnErased: func(e storage.Erasure) error {
					if _, ok := files(t, fs)["ERASING"]; !ok {
						t.Error("OnErased is called after the intent was removed")
					}
					if fails > 0 {
						fails--
						return errRecord
					}
					recorded = append(recorded, e)
					return nil
				}})
			}
			s := open()
			fill(t, s, 0, 3)
			eraseUnrecorded(t, s)
			if found := traces(t, fs, dataDir); !slices.Equal(found, []string{"ERASING"}) {
				t.Errorf("%v hold traces, want only the intent", found)
			}
			recorded = append(recorded, tt.finish(t, s, open)...)
			want := []storage.Erasure{{Device: mustName(erasedDevice), Readings: 60}}
			if !slices.Equal(recorded, want) {
				t.Errorf("recorded: %+v, want %+v", recorded, want)
			}
			if _, ok := files(t, fs)["ERASING"]; ok {
				t.Error("the intent is still there")
			}
		})
	}
}

// TestEraseUncertainIntent fails the syncs of an intent, so that it may or may not be
// stored. The store must fail: the next start would remove later readings of the device.
func TestEraseUncertainIntent(t *testing.T) {
	disk := vfs.NewCrashableMem()
	f := &fault{failing: errDisk, match: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileSync &&
			op.Path == dataDir
	}}
	s := mustOpen(t, pebblestore.Options{FS: inject(disk, f)})
	mustAppend(t, s, erasedEntry(1))
	f.on.Store(true)
	_, err := s.Erase(mustName(erasedDevice))
	f.on.Store(false)
	if f.failed.Load() < 2 {
		t.Fatalf("%d syncs of the directory failed, want 2 or more", f.failed.Load())
	}
	if !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, storage.ErrFailed) {
		t.Errorf("Erase returns %v, want ErrUnfinished and ErrFailed", err)
	}
	if err := s.Append([]*storage.Entry{erasedEntry(2)}); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("Append returns %v, want ErrFailed", err)
	}
	_ = s.Close()
}
