package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// tidied starts Tidy. It returns a function that ends it.
func tidied(s *pebblestore.Store) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var tidying sync.WaitGroup
	tidying.Go(func() { s.Tidy(ctx) })
	return func() {
		cancel()
		tidying.Wait()
	}
}

// TestTidy makes small segments of two devices. They must be merged when few readings arrive, not
// before, and a large segment must be left out. The readings must not change, and late ones must
// still find their segments.
func TestTidy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		s := mustOpen(t, pebblestore.WithSegmentRows(pebblestore.Options{FS: disk, MinFreeBytes: -1}, 200))
		sealRows := func(device string, from, n int64) {
			for i := range n {
				mustAppend(t, s, entry(device, 1000*(from+i), vitals.Value(from+i)))
			}
			try(t, pebblestore.Seal(s))
		}
		sealRows("large", 0, 90)
		for k := range int64(5) {
			sealRows("large", 90+3*k, 3)
			sealRows("small", 4*k, 4)
		}
		want := mustDump(t, s)

		end := tidied(s)
		var busy sync.WaitGroup
		var stop atomic.Bool
		busy.Go(func() {
			long := mustName(strings.Repeat("x", vitals.MaxNameBytes))
			for i := int64(0); !stop.Load(); i++ {
				var group []*storage.Entry
				for j := range int64(1000) {
					e := entry("busy", 1000*i+j, vitals.Value(j))
					e.Reading.Gateway, e.ReceivedUnixMs = long, (i^j*7919)%1_000_003*977
					group = append(group, e)
				}
				mustAppend(t, s, group...)
				time.Sleep(10 * time.Millisecond)
			}
		})
		time.Sleep(10 * time.Second)
		if got := pebblestore.SegmentRows(s, mustName("small")); len(got) != 5 {
			t.Errorf("while readings arrive, the segments have %v rows, want 5 segments", got)
		}
		stop.Store(true)
		busy.Wait()
		time.Sleep(5 * time.Second)
		end()
		for device, want := range map[string][]int{"large": {90, 15}, "small": {20}} {
			if got := pebblestore.SegmentRows(s, mustName(device)); !slices.Equal(got, want) {
				t.Errorf("the segments of device %s have %v rows, want %v", device, got, want)
			}
		}
		if n := shown(t, s, "store_tidied_readings_total"); n != 35 {
			t.Errorf("%v readings were tidied, want 35", n)
		}
		if _, err := s.Erase(mustName("busy")); err != nil {
			t.Fatal(err)
		}
		if got := mustDump(t, s); got != want {
			t.Error("merging has changed what is stored")
		}

		sealRows("small", 20, 4) // the record must agree with the segments
		mustAppend(t, s, entry("small", 2500, 1), with(entry("small", 3000, 3), vitals.SpO2, 9700), entry("small", 4000, 4))
		try(t, pebblestore.Seal(s))
		if got, want := pebblestore.SegmentRows(s, mustName("small")), []int{21, 4}; !slices.Equal(got, want) {
			t.Errorf("after late readings the segments have %v rows, want %v", got, want)
		}
		want = mustDump(t, s)
		mustClose(t, s)
		if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: disk}); err != nil {
			t.Error(err)
		}
		s = mustOpen(t, pebblestore.WithSegmentRows(pebblestore.Options{FS: disk, MinFreeBytes: -1}, 200))
		if err := pebblestore.TidyPass(s); err != nil { // after the start
			t.Fatal(err)
		}
		if got := mustDump(t, s); got != want {
			t.Error("the store differs after a restart")
		}
		mustClose(t, s)
	})
}

// TestTidyDamaged damages the segments of one device. Those of the others must be merged, and the
// damaged ones stay, and be reported.
func TestTidyDamaged(t *testing.T) {
	t.Parallel()
	disk := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: disk, MinFreeBytes: -1})
	const devices = 3000
	for k := range int64(3) {
		var group []*storage.Entry
		for i := range devices {
			group = append(group, entry(fmt.Sprintf("d%04d", i), 1000*k, vitals.Value(i)))
		}
		mustAppend(t, s, group...)
		try(t, pebblestore.Seal(s))
	}
	pebblestore.CompactAll(s)
	mustClose(t, s)
	tables := namesWith(t, disk, ".sst")
	if len(tables) != 1 {
		t.Fatalf("there are tables %v, want one", tables)
	}
	flip(t, disk, tables[0], size(t, disk, tables[0])/2)

	s = mustOpen(t, pebblestore.Options{FS: disk, MinFreeBytes: -1})
	try(t, pebblestore.TidyPass(s))
	if err := s.Degraded(); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Degraded returns %v, want ErrCorrupt", err)
	}
	merged, damaged := 0, 0
	for i := range devices {
		device := fmt.Sprintf("d%04d", i)
		r := storage.Range{Device: mustName(device), ToUnixMs: 1 << 62}
		switch n, err := s.Scan(context.Background(), r, make([]storage.Record, 4)); {
		case errors.Is(err, storage.ErrCorrupt):
			damaged++
		case err != nil || n != 3:
			t.Fatalf("device %s has %d readings, %v", device, n, err)
		case len(pebblestore.SegmentRows(s, r.Device)) == 1:
			merged++
		}
	}
	// A damaged block of 4 KiB has the segments of some dozen devices.
	if damaged == 0 || damaged > 200 || merged < devices-2*damaged {
		t.Errorf("of %d devices the segments of %d are merged and those of %d damaged", devices, merged, damaged)
	}
	mustClose(t, s)
}

// TestTidyRetries makes the steps of Tidy fail for an hour. It must try again ever less often, so
// that a lasting error does not fill the log, and must merge the segments within ten minutes after
// the error has ended.
//
// Seen to fail when each step was tried again after a second.
func TestTidyRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MinFreeBytes: -1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		for ms := range int64(2) {
			mustAppend(t, s, entry("d", ms, 1))
			try(t, pebblestore.Seal(s))
		}
		var failing atomic.Bool
		failing.Store(true)
		ctx, cancel := context.WithCancel(context.Background())
		var tidying sync.WaitGroup
		tidying.Go(func() {
			pebblestore.TidyFailing(ctx, s, func() error {
				if failing.Load() {
					return syscall.EIO
				}
				return nil
			})
		})
		time.Sleep(time.Hour)
		failing.Store(false)
		time.Sleep(10*time.Minute + time.Second)
		cancel()
		tidying.Wait()
		if n := strings.Count(log.String(), syscall.EIO.Error()); n < 5 || n > 20 {
			t.Errorf("an error that lasts for an hour is logged %d times", n)
		}
		if got := pebblestore.SegmentRows(s, mustName("d")); !slices.Equal(got, []int{2}) {
			t.Errorf("after the error has ended, the segments have %v rows, want 2", got)
		}
		mustClose(t, s)
	})
}

// TestFaultIsNoDamage fails reads of segments while late readings are merged into them. The
// error of the disk must not be reported as damage, and the readings must not be lost.
//
// Seen to fail when each segment that was not read counted as damaged.
func TestFaultIsNoDamage(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	fault := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return syscall.EIO
		}
		return nil
	})
	disk := vfs.NewMem()
	open := func() *pebblestore.Store {
		return mustOpen(t, pebblestore.Options{FS: inject(disk, fault), MinFreeBytes: -1, CacheBytes: 1})
	}
	s := open()
	mustAppend(t, s, manyDevices(100, 1000)...)
	try(t, pebblestore.Seal(s))
	mustAppend(t, s, manyDevices(100, 3000)...)
	try(t, pebblestore.Seal(s), pebblestore.Flush(s))
	mustAppend(t, s, manyDevices(100, 2000)...)
	failing.Store(true)
	try(t, pebblestore.Seal(s), pebblestore.TidyPass(s))
	failing.Store(false)
	if err := s.Degraded(); err != nil {
		t.Errorf("Degraded returns %v after errors of the disk", err)
	}
	mustClose(t, s)
	s = open()
	for _, e := range manyDevices(100, 0) {
		if got := count(t, s, e.Reading.Device.String()); got != 3 {
			t.Fatalf("device %s has %d readings, want 3", e.Reading.Device, got)
		}
	}
	mustClose(t, s)
}
