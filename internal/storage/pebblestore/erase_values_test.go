package pebblestore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestEraseValuesDamaged erases the values of a time that begins with 1970 beside damage at many places of a table. What is
// erased is gone, or the erasure says that nothing was removed.
//
// Seen to fail when such an erasure removed segments that it could not read, as that of a device does.
func TestEraseValuesDamaged(t *testing.T) {
	t.Parallel()
	disk, table := oneTable(t)
	refused := 0
	eachDamage(t, disk, table, 9973, func(t *testing.T, at int, _ *vfs.MemFS, s *pebblestore.Store, damaged map[string]bool) {
		defer func() { _ = s.Close() }()
		for d := range damaged {
			_, err := s.EraseValues(storage.Erasure{Device: mustName(d), ToUnixMs: damagedHalf})
			if err != nil && !errors.Is(err, storage.ErrUnfinished) {
				refused++
			}
			if n, scanErr := scan(s, d, 0, damagedHalf); err == nil && (n > 0 || scanErr != nil) {
				t.Errorf("byte %d: the values of %s are erased, and %d readings are left, %v", at, d, n, scanErr)
			}
		}
	})
	if refused == 0 {
		t.Error("no erasure met the damage")
	}
}

// TestEraseValuesAgain repeats an erasure of values that could not be finished: it is finished, with the number of readings
// of the first call, and recorded as the caller's. Another one of the device is made.
//
// Seen to fail when the first one was given up for the second, which then had nothing to record.
func TestEraseValuesAgain(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewCrashableMem(), OnErased: func(storage.Erasure) error {
		return errors.New("it is not finished by another one")
	}})
	defer mustClose(t, s)
	mustAppend(t, s, entry("d", 1000, 1), entry("d", 1001, 1), entry("d", 2000, 1))
	e := storage.Erasure{Device: mustName("d"), FromUnixMs: 1000, ToUnixMs: 1500}
	_, err := s.EraseValuesRecorded(e, func(storage.Erasure) error { return errors.New("full") })
	if !errors.Is(err, storage.ErrUnfinished) {
		t.Fatalf("an erasure that is not recorded returns %v", err)
	}
	for _, want := range []int64{2, 0} {
		recorded := int64(-1)
		_, err = s.EraseValuesRecorded(e, func(e storage.Erasure) error { recorded = e.Readings; return nil })
		if err != nil || recorded != want {
			t.Errorf("the repeated erasure returns %v, and records %d readings, want %d", err, recorded, want)
		}
	}
}

// TestEraseValuesAgainDamaged repeats an erasure of values whose bytes stay in a damaged table: it is not given up.
func TestEraseValuesAgainDamaged(t *testing.T) {
	t.Parallel()
	disk, table := oneTable(t)
	unfinished := 0
	eachDamage(t, disk, table, 9973, func(t *testing.T, at int, fs *vfs.MemFS, s *pebblestore.Store, damaged map[string]bool) {
		defer func() { _ = s.Close() }()
		for _, d := range damagedDevices {
			if damaged[d] {
				continue
			}
			e := storage.Erasure{Device: mustName(d), FromUnixMs: 1000, ToUnixMs: 101_000}
			first, err := s.EraseValues(e)
			if err == nil {
				continue
			}
			unfinished++
			intent, _ := readFile(fs, dataDir+"/ERASING")
			second, err := s.EraseValues(e)
			again, _ := readFile(fs, dataDir+"/ERASING")
			if !errors.Is(err, storage.ErrUnfinished) || second != first || intent != again {
				t.Errorf("byte %d: the second erasure of %s returns %+v, %v, want %+v; it makes %q %q", at, d, second, err, first, intent, again)
			}
		}
	})
	if unfinished == 0 {
		t.Error("no erasure met the damage")
	}
}

// An error names the device, also if nothing was removed.
func TestEraseValuesUnknown(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewCrashableMem()})
	defer mustClose(t, s)
	_, err := s.EraseValues(storage.Erasure{Device: mustName("unknown-1"), ToUnixMs: 9})
	if !errors.Is(err, storage.ErrNotFound) || !strings.Contains(err.Error(), "unknown-1") {
		t.Errorf("EraseValues of an unknown device returns %v", err)
	}
}
