package pebblestore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestUnitReadFault appends a unit of late readings while each of the reads that it needs fails in
// turn. The unit is stored as a whole or not at all.
//
// Seen to fail with a look-up of each reading before the unit is settled and another one then.
func TestUnitReadFault(t *testing.T) {
	const devices, readings, first, last = 24, 1000, "d-00", "d-23"
	for n := int64(1); ; n++ {
		var reads atomic.Int64 // from the n-th one before 0
		fault := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && reads.Add(1) == 0 {
				return errDisk
			}
			return nil
		})
		reads.Store(1)
		s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), fault), MinFreeBytes: -1, CacheBytes: 1})
		// The segments of the first and the last device are not in one block of a table.
		random := rand.New(rand.NewPCG(1, 1))
		for d := range devices {
			var group []*storage.Entry
			for ms := range int64(readings) {
				group = append(group, entry(fmt.Sprintf("d-%02d", d), 2*ms, vitals.Value(1+random.IntN(60_000))))
			}
			mustAppend(t, s, group...)
		}
		try(t, pebblestore.Seal(s), pebblestore.Flush(s))
		reads.Store(-n)
		unit := []*storage.Entry{entry(first, 1, 61), entry(last, 1, 61)}
		unit[0].Unit = 2
		mustAppend(t, s, unit...)
		failed := reads.Load() >= 0
		reads.Store(1)
		stored := 0
		for _, e := range unit {
			if e.Outcome == storage.Stored {
				stored++
			}
		}
		kept := count(t, s, first) + count(t, s, last) - 2*readings
		if stored != kept || kept != 0 && kept != len(unit) {
			t.Errorf("with read %d failed, %d readings of a unit of %d are stored, and %d are reported as stored", n, kept,
				len(unit), stored)
		}
		mustClose(t, s)
		if !failed {
			if n == 1 {
				t.Error("no read failed")
			}
			return
		}
	}
}

// TestUnitsRejected appends units of new gateways that are rejected, again and again, as a gateway that is not set up
// well sends them. Nothing of them must stay in memory.
//
// Seen to fail when each took another number for its gateway.
func TestUnitsRejected(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1})
	defer mustClose(t, s)
	mustAppend(t, s, entry("old", 1, 60))
	send := func(conflicts vitals.Value) []*storage.Entry {
		unit := []*storage.Entry{entry("new", 1, 60), entry("old", 1, conflicts)}
		unit[0].Unit = 2
		unit[0].Reading.Gateway = mustName("gateway")
		mustAppend(t, s, unit...)
		return unit
	}
	for range 3 {
		wantOutcome(t, send(61)[1], storage.Conflict)
	}
	wantOutcome(t, send(60)[0], storage.Stored)
	if n := pebblestore.GatewayNumbers(s); n != 1 {
		t.Errorf("one gateway has %d numbers", n)
	}
}
