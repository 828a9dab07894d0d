package pebblestore_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestEraseValuesDamaged erases the values of a time that begins with 1970 beside damage at many places of a table.
// What is erased is gone, or the erasure says that nothing was removed.
//
// Seen to fail when such an erasure removed segments that it could not read, as that of a device does.
func TestEraseValuesDamaged(t *testing.T) {
	t.Parallel()
	disk, table := oneTable(t)
	refused := 0
	eachDamage(t, disk, table, 9973, func(t *testing.T, at int, _ *vfs.MemFS, s *pebblestore.Store,
		damaged map[string]bool) {
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

// TestEraseValuesAgain repeats an erasure of values that could not be finished: it is finished, and recorded as the
// caller's, with the number of readings of the first call. What a gateway has sent again in between is erased, too.
//
// Seen to fail when the first one was given up for the second, which then had nothing to record, and when the second
// call only finished the first one.
func TestEraseValuesAgain(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewCrashableMem(), OnErased: func(storage.Erasure) error {
		return errors.New("it is not finished by another one")
	}})
	defer mustClose(t, s)
	mustAppend(t, s, entry("d", 1000, 1), entry("d", 1001, 1), entry("d", 2000, 1))
	e := storage.Erasure{Device: mustName("d"), FromUnixMs: 1000, ToUnixMs: 1500}
	for _, tt := range []struct {
		again []*storage.Entry // that are sent after the first call
		want  string           // the numbers of readings that are recorded
	}{
		{nil, " 2"},
		{[]*storage.Entry{entry("d", 1000, 1)}, " 1 1"},
		{[]*storage.Entry{entry("d", 2000, 1)}, " 1"},
	} {
		_, err := s.EraseValuesRecorded(e, func(storage.Erasure) error { return errors.New("full") })
		if !errors.Is(err, storage.ErrUnfinished) {
			t.Fatalf("an erasure that is not recorded returns %v", err)
		}
		try(t, s.Append(tt.again))
		recorded, sum := "", int64(0)
		got, err := s.EraseValuesRecorded(e, func(e storage.Erasure) error {
			recorded += fmt.Sprintf(" %d", e.Readings)
			sum += e.Readings
			return nil
		})
		if err != nil || recorded != tt.want || got.Readings != sum {
			t.Errorf("the repeated erasure returns %d, %v, and records%s readings, want%s", got.Readings, err, recorded, tt.want)
		}
		if n, err := scan(s, "d", 1000, 1500); n != 0 {
			t.Errorf("%d readings are left, %v", n, err)
		}
		mustAppend(t, s, entry("d", 1000, 1))
	}
}

// TestEraseValuesAgainDamaged repeats an erasure of values whose bytes stay in a damaged table: it is not given up.
func TestEraseValuesAgainDamaged(t *testing.T) {
	t.Parallel()
	disk, table := oneTable(t)
	unfinished := 0
	eachDamage(t, disk, table, 9973, func(t *testing.T, at int, fs *vfs.MemFS, s *pebblestore.Store,
		damaged map[string]bool) {
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
				t.Errorf("byte %d: the second erasure of %s returns %+v, %v, want %+v; it makes %q %q", at, d, second, err, first,
					intent, again)
			}
		}
	})
	if unfinished == 0 {
		t.Error("no erasure met the damage")
	}
}

// TestEraseValuesEvent erases values, and then the device, or the assignment at whose time they were measured: the
// times of the first erasure go with its event. The event of values of the time of two subjects stays if one's
// assignment is erased.
//
// Seen to fail when only events of assignments lost their content.
func TestEraseValuesEvent(t *testing.T) {
	const at = 0x0000_0187_6543_2101
	trace := []string{"\x00\x00\x01\x87\x65\x43\x21\x01"}
	for _, tt := range []struct {
		what  string
		end   int64 // of the first subject's assignment
		toMs  int64
		stays bool
		erase func(*pebblestore.Store) error
	}{
		{what: "device", end: at + 9, toMs: at + 1, erase: func(s *pebblestore.Store) error {
			_, err := s.Erase(mustName("d"))
			return err
		}},
		{what: "assignment", end: at + 9, toMs: at + 1, erase: eraseP},
		{what: "assignment of another", end: at + 5, toMs: at + 7, stays: true, erase: eraseP},
	} {
		fs := vfs.NewCrashableMem()
		s := mustOpen(t, pebblestore.Options{FS: fs, ChangesKeep: time.Hour})
		mustAppend(t, s, entry("d", at, 1), entry("d", at+2, 1), entry("d", at+6, 1), entry("other", 5, 1))
		try(t, s.Assign(t.Context(), storage.Assignment{Device: mustName("d"), Subject: "P", FromUnixMs: at - 9,
			ToUnixMs: tt.end}))
		try(t, s.Assign(t.Context(), storage.Assignment{Device: mustName("d"), Subject: "Q", FromUnixMs: tt.end,
			ToUnixMs: at + 20}))
		_, err := s.EraseValues(storage.Erasure{Device: mustName("d"), FromUnixMs: at, ToUnixMs: tt.toMs})
		try(t, err, tt.erase(s))
		if left := tracesOf(fs, dataDir, trace); len(left) > 0 && !tt.stays {
			t.Errorf("%s: after it was erased, %v have the time of its reading", tt.what, left)
		}
		subjects, stays := 0, false
		try(t, s.VisitEvents(t.Context(), 0, math.MaxUint64, func(c *storage.Change) bool {
			if c.Kind == storage.ChangeErased {
				subjects, stays = len(c.Subjects), stays || c.FromUnixMs == at
			}
			return true
		}))
		if stays != tt.stays {
			t.Errorf("%s: after it was erased, the event of values stays: %t", tt.what, stays)
		}
		if want := map[string]int{"device": 2}[tt.what]; want > 0 && subjects != want {
			t.Errorf("%s: the event names %d subjects, want %d", tt.what, subjects, want)
		}
		mustClose(t, s)
	}
}

func eraseP(s *pebblestore.Store) error {
	_, err := s.EraseAssignment(storage.Assignment{Device: mustName("d"), Subject: "P",
		FromUnixMs: 0x0000_0187_6543_2101 - 9})
	return err
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
