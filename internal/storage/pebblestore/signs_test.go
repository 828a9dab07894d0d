package pebblestore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// drift is a sign with negative values and three decimals.
func drift() vitals.Definition {
	return vitals.Definition{
		Field: "skin_drift_k", Label: "Drift", Unit: "K", Decimals: 3,
		Accepted: vitals.Range{Min: -90_000_000, Max: 90_000_000}, Usual: vitals.Range{Min: -1000, Max: vitals.MaxValue},
	}
}

func formatOf(t *testing.T, fs vfs.FS) string {
	t.Helper()
	line, _, _ := strings.Cut(files(t, fs)["PULSEGATE"], "\n")
	return line
}

// TestSignsFormat checks that a store gets a later format with the first reading or definition that
// needs it, and not before.
func TestSignsFormat(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs})
	mustAppend(t, s, with(with(entry("a", 1, 1), vitals.SpO2, 65535), vitals.RestingHeartRate, 0))
	mustClose(t, s)
	if got := formatOf(t, fs); got != "pulsegate store, format 2" {
		t.Errorf("with the first five signs: %q", got)
	}
	s = mustOpen(t, pebblestore.Options{FS: fs})
	mustAppend(t, s, with(entry("a", 2, 1), vitals.GlucoseMass, 100_000))
	if got := formatOf(t, fs); got != "pulsegate store, format 4" {
		t.Errorf("with another sign: %q", got)
	}
	mustClose(t, s)

	fs = vfs.NewMem()
	mustClose(t, mustOpen(t, pebblestore.Options{FS: fs, Signs: []vitals.Definition{drift()}}))
	if got := formatOf(t, fs); got != "pulsegate store, format 4" {
		t.Errorf("with a sign of the user's own: %q", got)
	}
}

// TestLaterVersion opens a store with signs of the user's own in a version that has one more built-in
// sign: its values are found, and both signs can be stored. A sign with the field of that one is refused by name.
func TestLaterVersion(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs, Signs: []vitals.Definition{drift()}})
	number, _ := s.Signs().Named(drift().Field)
	old := with(entry("a", 1, 1), number, -5)
	mustAppend(t, s, old)
	mustClose(t, s)

	steps := drift()
	steps.Field = "steps"
	const later = vitals.NumBuiltIn
	s = mustOpen(t, pebblestore.Later(pebblestore.Options{FS: fs, Signs: []vitals.Definition{drift()}}, steps))
	both := with(with(entry("a", 2, 1), later, 7), number, 8)
	mustAppend(t, s, both)
	page := make([]storage.Record, 3)
	n, err := s.Scan(context.Background(), storage.Range{Device: mustName("a"), ToUnixMs: 10}, page)
	if err != nil || n != 2 || page[0].Values != old.Reading.Values || page[1].Values != both.Reading.Values {
		t.Errorf("Scan returns %d, %v, %+v", n, err, page)
	}
	if d := s.Signs().Of(number); d.Field != drift().Field || d.Retired || s.Signs().Of(later).Own() {
		t.Errorf("the signs are %+v and %+v", d, s.Signs().Of(later))
	}
	mustClose(t, s)

	changed, other := drift(), drift()
	changed.Decimals, other.Field = 2, "steps_an_hour"
	var of *vitals.DefinitionError
	if _, err := pebblestore.Open(dataDir, pebblestore.Options{FS: fs, Signs: []vitals.Definition{other, changed}}); !errors.As(err, &of) || of.Index != 1 ||
		!strings.HasSuffix(err.Error(), "decimals: vitals: bad definition of a sign: skin_drift_k is stored with 3 decimals") {
		t.Errorf("with other decimals, Open returns %v", err)
	}
	_, err = pebblestore.Open(dataDir, pebblestore.Later(pebblestore.Options{FS: fs}, drift()))
	if !errors.Is(err, vitals.ErrTaken) || errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "skin_drift_k is a built-in field of this version; export") {
		t.Errorf("with a built-in sign of the same name, Open returns %v", err)
	}
}

// TestOwnSignsCrash crashes while the first definition is stored: the store can be opened afterwards, with
// the sign and without.
func TestOwnSignsCrash(t *testing.T) {
	for _, with := range []bool{false, true} {
		disk := vfs.NewCrashableMem()
		mustClose(t, mustOpen(t, pebblestore.Options{FS: disk}))
		var mu sync.Mutex
		var crashes []*vfs.MemFS
		watched := inject(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				mu.Lock()
				defer mu.Unlock()
				crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{}))
			}
			return nil
		}))
		mustClose(t, mustOpen(t, pebblestore.Options{FS: watched, Signs: []vitals.Definition{drift()}}))
		if len(crashes) < 5 {
			t.Fatalf("%d crashes", len(crashes))
		}
		for i, fs := range crashes {
			o := pebblestore.Options{FS: fs}
			if with {
				o.Signs = []vitals.Definition{drift()}
			}
			s, err := pebblestore.Open(dataDir, o)
			if err != nil {
				t.Errorf("crash %d: %v", i, err)
				continue
			}
			if number, ok := s.Signs().Named("skin_drift_k"); with && (!ok || number != vitals.OwnSign(0)) {
				t.Errorf("crash %d: number %d, %v", i, number, ok)
			}
			mustClose(t, s)
		}
	}
}

// TestOtherSignCrash crashes while the first reading with a sign beyond the first five is stored. Every
// crash leaves a store that can be opened and checked, and whose format permits what it holds.
func TestOtherSignCrash(t *testing.T) {
	disk := vfs.NewCrashableMem()
	mustClose(t, mustOpen(t, pebblestore.Options{FS: disk}))
	var mu sync.Mutex
	var crashes []*vfs.MemFS
	s := mustOpen(t, pebblestore.Options{FS: inject(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			mu.Lock()
			defer mu.Unlock()
			crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{}))
		}
		return nil
	}))})
	mustAppend(t, s, entry("a", 1, 1))
	mustAppend(t, s, with(entry("a", 2, 1), vitals.GlucoseMass, 100_000))
	mu.Lock()
	crashes = append(crashes, disk.CrashClone(vfs.CrashCloneCfg{}))
	last := len(crashes) - 1
	mu.Unlock()
	mustClose(t, s)
	for i, fs := range crashes[:last+1] {
		r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
		if err != nil {
			t.Errorf("crash %d: Check: %v", i, err)
			continue
		}
		other := r.Values[vitals.GlucoseMass] == 1
		if i == last && !other {
			t.Errorf("the acknowledged reading is lost")
		}
		if got := formatOf(t, fs); other && got != "pulsegate store, format 4" {
			t.Errorf("crash %d: %q with another sign", i, got)
		}
		mustClose(t, mustOpen(t, pebblestore.Options{FS: fs}))
	}
}
