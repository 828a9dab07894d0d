package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// fillWindows appends readings of many devices, and seals them in windows, which merge small segments.
func fillWindows(t testing.TB, s *pebblestore.Store) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	const windows, devices, rows = 30, 300, 12
	for k := range int64(windows) {
		var group []*storage.Entry
		for i := range devices {
			for r := range int64(rows) {
				group = append(group, entry(fmt.Sprintf("ppg-%05d", i), 60_000*(k*rows+r)+rng.Int64N(5000),
					vitals.Value(rng.IntN(30_000))))
			}
		}
		mustAppend(t, s, group...)
		try(t, pebblestore.Seal(s))
	}
}

// TestReclaim leaves a store alone after a load. It must give back nearly all of what the load has left in its tables,
// and say how much it has not.
func TestReclaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1, MemTableBytes: 384 << 10})
		fillWindows(t, s)
		before := mustDump(t, s)
		dead := shown(t, s, "store_dead_bytes")
		end := tidied(s)
		for wait := 0; wait < 120 && !(pebblestore.Resting(s) && shown(t, s, "store_dead_bytes") < dead/10); wait++ {
			time.Sleep(time.Second)
		}
		end()
		left, size := shown(t, s, "store_dead_bytes"), pebblestore.TableBytes(s)
		if mustDump(t, s) != before {
			t.Error("the readings have changed")
		}
		pebblestore.CompactAll(s)
		least := pebblestore.TableBytes(s)
		if float64(size) > 1.15*float64(least) {
			t.Errorf("the tables have %d bytes, and %d after everything was compacted", size, least)
		}
		if dead < float64(least)/10 || left > dead/2 { // less than 64 KiB of each kind of keys is not worth a compaction
			t.Errorf("%.0f dead bytes were counted, and %.0f are left", dead, left)
		}
		mustClose(t, s)
	})
}

// A createGate blocks the creation of tables while it is shut.
type createGate struct{ readGate }

func (g *createGate) MaybeError(op errorfs.Op) error {
	if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
		op.Kind = errorfs.OpFileReadAt
		return g.readGate.MaybeError(op)
	}
	return nil
}

// TestReclaimGivesWay cancels a compaction, which cannot make progress, when readings arrive. Pebble may have compacted
// everything before: then there is nothing to cancel.
func TestReclaimGivesWay(t *testing.T) {
	t.Parallel()
	gate := &createGate{}
	s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), gate), MinFreeBytes: -1, MemTableBytes: 1 << 20})
	fillWindows(t, s)
	try(t, pebblestore.Flush(s))
	gate.close()
	if _, err := pebblestore.Reclaim(context.Background(), s, gate.holds); err != nil &&
		!errors.Is(err, context.Canceled) {
		t.Errorf("with arriving readings it returns %v, want context.Canceled", err)
	}
	gate.open()
	mustClose(t, s)
}

// TestDeadRanges compares the counts of dead bytes with a map, while ranges are divided. None is negative, and ranges
// do not overlap.
func TestDeadRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d pebblestore.Dead
		total := int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			name := mustName(fmt.Sprintf("d%d", rapid.IntRange(0, 20).Draw(t, "device")))
			n := rapid.IntRange(0, 700<<10).Draw(t, "bytes")
			d.Add(&name, n, n/8)
			total += int64(n + n/8)
			if rapid.IntRange(0, 9).Draw(t, "compact") == 0 {
				from, to := rapid.IntRange(0, 20).Draw(t, "from"), rapid.IntRange(0, 20).Draw(t, "to")
				dropped := rapid.Int64Range(0, 8<<20).Draw(t, "dropped")
				before := d.Total()
				d.Take([]byte(fmt.Sprintf("\x02d%d\x00", from)), []byte(fmt.Sprintf("\x02d%d\x00", to)), dropped)
				taken := before - d.Total()
				if taken < 0 || taken > dropped {
					t.Fatalf("%d bytes are taken off, of %d", taken, dropped)
				}
				total -= taken
			}
		}
		sum, last := int64(0), ""
		for _, s := range d.Spans() {
			if s.Bytes <= 0 || s.Start < last || s.End <= s.Start {
				t.Fatalf("a range from %q to %q, after %q, has %d bytes", s.Start, s.End, last, s.Bytes)
			}
			sum, last = sum+s.Bytes, s.End
		}
		if sum != total || d.Total() != total {
			t.Fatalf("the ranges have %d bytes, in total %d, want %d", sum, d.Total(), total)
		}
	})
}
