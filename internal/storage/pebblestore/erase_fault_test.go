package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// An eraseCrash is a crash during an erasure. New readings stays to acked must survive it,
// or none if stays is 0.
type eraseCrash struct {
	crashPoint
	returned bool  // Erase had returned nil
	stays    int64 // the first new reading acknowledged after the removal
	acked    int64 // the last new reading acknowledged
}

// TestEraseCrash loses power before every operation of an erasure that changes files,
// while new readings of the device arrive. After the next start, all old readings must be
// stored, or none and not a byte of them; once Erase has returned, none. Readings
// acknowledged after the removal, and those of other devices, must be stored.
//
// It was seen to fail without the second write of the intent, because acknowledged readings
// were lost; and without the compaction, the new manifest or the removal of logs, because
// bytes remained.
func TestEraseCrash(t *testing.T) {
	t.Parallel()
	var (
		mu           sync.Mutex // guards what follows
		found        []eraseCrash
		stays, acked int64
		active       bool
		returned     bool

		disk = vfs.NewCrashableMem()
		rng  = rand.New(rand.NewPCG(8, 8))
	)
	snap := func(at string) {
		percent := []int{0, 50, 100, 50}[len(found)%4]
		p := eraseCrash{returned: returned, stays: stays, acked: acked}
		p.at = fmt.Sprintf("%d: before %s, unsynced %d %%", len(found), at, percent)
		p.fs = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
		found = append(found, p)
	}
	intents := 0
	spy := errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !active || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, "ERASING.new") {
			// At the first change after the removal, no new reading must be acknowledged, although
			// there is time for one. At the later ones there must be one.
			intents++
			patience := []time.Duration{0, 50 * time.Millisecond, polltest.Patience}[min(intents, 3)-1]
			mu.Unlock()
			polltest.Within(patience, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return stays != 0
			})
			mu.Lock()
		}
		snap(fmt.Sprintf("%v of %s", op.Kind, op.Path))
		return nil
	})
	s := mustOpen(t, pebblestore.Options{FS: inject(disk, spy), MemTableBytes: 64 << 10})
	// Not from 0 on: a record with the newest time 5 looks like the end mark of a log when its
	// file is used again.
	fill(t, s, 1, 21)
	want := mustDump(t, s)
	others := withoutDevice(want, erasedDevice)
	oldReadings := count(t, s, erasedDevice)

	ctx, stop := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := int64(1); ctx.Err() == nil; i++ {
			removed := count(t, s, erasedDevice) < oldReadings
			mustAppend(t, s, newEntry(i))
			mu.Lock()
			acked = i
			if removed && stays == 0 {
				stays = i
			}
			mu.Unlock()
			time.Sleep(5 * time.Millisecond) // so that some crashes are between two readings
		}
	})
	mu.Lock()
	active = true
	mu.Unlock()
	_, err := s.Erase(mustName(erasedDevice))
	try(t, err)
	mu.Lock()
	erased := len(found)
	mu.Unlock()
	polltest.Until(t, "there were crashes after the removal", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(found) >= erased+60
	})
	stop()
	writer.Wait()
	mu.Lock()
	returned = true
	for range 4 {
		snap("the end")
	}
	active = false
	mu.Unlock()
	mustClose(t, s)

	every := 1
	if testing.Short() {
		every = 7
	}
	removed, stayed := 0, 0
	for i, p := range found {
		if i%every != 0 {
			continue
		}
		gone, err := p.verify(oldReadings, others)
		if err != nil {
			t.Errorf("%s: %v", p.at, err)
		}
		if gone {
			removed++
		}
		if p.stays > 0 {
			stayed++
		}
	}
	t.Logf("%d crashes, the device was removed after %d, new readings stayed after %d", len(found), removed, stayed)
	if removed < 40/every || removed == (len(found)+every-1)/every || stayed < 20/every {
		t.Error("there were too few crashes before or after the removal")
	}
}

// newEntry returns a reading of the device that arrives during its erasure. Of the traces
// it has only the device's name.
func newEntry(i int64) *storage.Entry {
	return entry(erasedDevice, 1_800_000_000_000+i, vitals.Value(i))
}

// verify opens the store after the crash, and reports whether the old readings are gone.
func (p *eraseCrash) verify(oldReadings int, others string) (gone bool, err error) {
	if p.returned {
		if left := tracesOf(p.fs, dataDir, oldTraces()); len(left) > 0 {
			return false, fmt.Errorf("Erase has returned, and %v hold traces", left)
		}
	}
	if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: p.fs}); err != nil {
		return false, err
	}
	var erased []storage.Erasure
	s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: p.fs, OnErased: func(e storage.Erasure) error {
		erased = append(erased, e)
		return nil
	}})
	if err != nil {
		return false, err
	}
	defer s.Close()
	text, err := dump(s)
	if err != nil {
		return false, err
	}
	if withoutDevice(text, erasedDevice) != others {
		return false, errors.New("other devices have changed")
	}
	old, young := 0, map[int64]bool{}
	records := make([]storage.Record, 10_000)
	n, err := s.Scan(context.Background(), storage.Range{Device: mustName(erasedDevice), ToUnixMs: 1 << 62}, records)
	if err != nil {
		return false, err
	}
	for _, r := range records[:n] {
		if i := r.TimeUnixMs - 1_800_000_000_000; i > 0 {
			young[i] = true
		} else {
			old++
		}
	}
	for i := p.stays; i > 0 && i <= p.acked; i++ {
		if !young[i] {
			return false, fmt.Errorf("reading %d was acknowledged after the removal and is gone; want %d to %d", i,
				p.stays, p.acked)
		}
	}
	switch {
	case old == oldReadings && !p.returned && p.stays == 0 && len(erased) == 0:
		for i := int64(1); i <= p.acked; i++ {
			if !young[i] {
				return false, fmt.Errorf("nothing was removed, and reading %d of %d is gone", i, p.acked)
			}
		}
		return false, nil
	case old != 0:
		return false, fmt.Errorf("%d of %d old readings are stored", old, oldReadings)
	}
	if left := tracesOf(p.fs, dataDir, oldTraces()); len(left) > 0 {
		return true, fmt.Errorf("after the next start, %v hold traces", left)
	}
	return true, nil
}

// withoutDevice returns a dump without the lines of a device.
func withoutDevice(text, device string) string {
	var b strings.Builder
	of := ""
	for line := range strings.Lines(text) {
		if line[0] != '\t' {
			of, _, _ = strings.Cut(line, " ")
		}
		if of != device {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestEraseMeetsClose closes the store before each operation of an erasure that changes files. Erase
// returns nil or storage.ErrClosed. After the next start, the device has readings only if Erase has
// returned an error other than storage.ErrUnfinished.
//
// Seen to fail when the error of a compaction or of the wait for removed tables was returned as it is.
func TestEraseMeetsClose(t *testing.T) {
	t.Parallel()
	refused := 0
	for n, more := int64(0), true; more; n++ {
		fs := vfs.NewMem()
		var s *pebblestore.Store
		var operations atomic.Int64 // until Close begins
		operations.Store(math.MaxInt64)
		var once sync.Once
		closeStore := func() {
			once.Do(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close before operation %d: %v", n, err)
				}
			})
		}
		s = mustOpen(t, pebblestore.Options{FS: inject(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && operations.Add(-1) == 0 {
				go closeStore()
				polltest.Until(t, "Close begins", func() bool { return pebblestore.Closing(s) })
			}
			return nil
		}))})
		fill(t, s, 0, 3)
		operations.Store(n + 1)
		_, err := s.Erase(mustName(erasedDevice))
		more = operations.Swap(math.MaxInt64) <= 0
		closeStore()
		if err != nil {
			refused++
		}
		if err != nil && !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Close before operation %d: Erase returns %v, want ErrClosed", n, err)
		}
		s = mustOpen(t, pebblestore.Options{FS: fs})
		stays := err != nil && !errors.Is(err, storage.ErrUnfinished)
		if got := count(t, s, erasedDevice); stays != (got > 0) {
			t.Errorf("Close before operation %d: Erase returns %v, and after a start the device has %d readings", n, err, got)
		}
		mustClose(t, s)
	}
	if refused == 0 {
		t.Error("no erasure was refused")
	}
}
