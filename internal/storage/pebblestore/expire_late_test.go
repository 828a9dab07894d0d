package pebblestore_test

import (
	"context"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestExpireLate removes expired readings of devices of which further expired ones arrive after
// the windows were sealed. These stay until the next Expire; all others must be removed, or a
// device that keeps sending expired readings might never be expired.
//
// Seen to fail when Expire left out such devices, and with the mutant expire-new-readings.
func TestExpireLate(t *testing.T) {
	for name, kept := range map[string][]*storage.Entry{
		"only expired":          nil,
		"others in one segment": {entry("d", 1_000_000, 3)},
		"others in segments": {entry("d", 1_000_000, 3), with(entry("d", 1_000_001, 4), vitals.SpO2, 5),
			entry("d", 1_000_002, 4), entry("d", 1_000_003, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			o := pebblestore.WithSegmentRows(pebblestore.Options{FS: fs}, 3)
			s := mustOpen(t, o)
			mustAppend(t, s, with(entry("d", 10, 1), vitals.SpO2, 6), entry("d", 20, 2), entry("e", 30, 2))
			mustAppend(t, s, kept...)
			late := []*storage.Entry{entry("d", 15, 7), with(entry("d", 20, 2), vitals.SpO2, 8)}
			got, err := pebblestore.ExpireAfterSeal(s, 1_000_000, func() { mustAppend(t, s, late...) })
			if want := (storage.Expiry{Readings: 3, Devices: 1}); err != nil || got != want {
				t.Errorf("Expire returns %+v, %v, want %+v", got, err, want)
			}
			model := storetest.NewMemory()
			mustAppend(t, model, kept...)
			mustAppend(t, model, late...)
			want := mustDump(t, model)
			if got := mustDump(t, s); got != want {
				t.Errorf("the store has\n%swant\n%s", got, want)
			}
			mustClose(t, s)
			s = mustOpen(t, o)
			try(t, pebblestore.Seal(s))
			if got := mustDump(t, s); got != want {
				t.Errorf("after the next start, the store has\n%swant\n%s", got, want)
			}
			mustClose(t, s)
			if report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs}); err != nil ||
				report.Readings != int64(2+len(kept)) {
				t.Errorf("Check returns %+v, %v", report, err)
			}
			s = mustOpen(t, o)
			defer mustClose(t, s)
			_, err = s.Expire(context.Background(), 1_000_000, math.MaxInt64)
			try(t, err)
			model = storetest.NewMemory()
			mustAppend(t, model, kept...)
			if got, want := mustDump(t, s), mustDump(t, model); got != want {
				t.Errorf("after the next Expire, the store has\n%swant\n%s", got, want)
			}
		})
	}
}
