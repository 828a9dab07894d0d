package pebblestore_test

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

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

// TestFirstSign stores the first value of a sign, definition of one, and assignment. Power is lost before every
// operation that changes files. Every crash leaves a store that can be opened, with the definition and without.
func TestFirstSign(t *testing.T) {
	for _, tt := range []struct {
		name  string
		signs []vitals.Definition
		first func(s *pebblestore.Store)
		has   func(r pebblestore.Report) bool
	}{
		{"another sign", nil, func(s *pebblestore.Store) {
			mustAppend(t, s, with(entry("a", 2, 1), vitals.GlucoseMass, 100_000))
		}, func(r pebblestore.Report) bool { return r.Values[vitals.GlucoseMass] == 1 }},
		{"a sign of the user's own", []vitals.Definition{drift()}, func(*pebblestore.Store) {},
			func(r pebblestore.Report) bool { return r.Signs.Of(vitals.OwnSign(0)) != nil }},
		{"an assignment", nil, func(s *pebblestore.Store) {
			mustAssign(t, s, erasedAssignment(1, 2))
		}, func(r pebblestore.Report) bool { return r.Assignments == 1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			s := mustOpen(t, pebblestore.Options{FS: disk})
			mustAppend(t, s, entry("a", 1, 1))
			mustClose(t, s)
			crashes := crashesOf(disk, []int{0, 100}, func(fs vfs.FS) {
				s := mustOpen(t, pebblestore.Options{Signs: tt.signs, FS: fs})
				tt.first(s)
				mustClose(t, s)
			})
			for i, crash := range crashes {
				r, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: crash.fs})
				if err != nil {
					t.Fatalf("crash %d: Check: %v", i, err)
				}
				if !tt.has(r) && i >= len(crashes)-2 {
					t.Errorf("crash %d: it is lost", i)
				}
				for _, signs := range [][]vitals.Definition{nil, tt.signs} {
					s := mustOpen(t, pebblestore.Options{FS: crash.fs, Signs: signs})
					if number, ok := s.Signs().Named(drift().Field); signs != nil && (!ok || number != vitals.OwnSign(0)) {
						t.Errorf("crash %d: the sign has number %d, %v", i, number, ok)
					}
					mustClose(t, s)
				}
			}
		})
	}
}
