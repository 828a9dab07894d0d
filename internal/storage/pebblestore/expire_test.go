package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// oldAndNew fills a store with more devices, and one device with more readings, than
// Expire handles in one batch. Times below 1,000,000 have expired; a third of the devices
// has only expired readings, and a third has none. It returns the numbers of expired
// readings and of devices with only these.
func oldAndNew(t *testing.T, s storage.Store) (readings, devices int64) {
	t.Helper()
	var group []*storage.Entry
	for i := range 300 {
		name := fmt.Sprintf("d-%03d", i)
		if i%3 != 2 {
			group = append(group, entry(name, 10, 1), entry(name, 20, 2))
			readings += 2
		}
		if i%3 != 0 {
			group = append(group, entry(name, 1_000_000, 3))
		} else {
			devices++
		}
	}
	for i := range int64(45_000) {
		group = append(group, entry("many", i, 4))
	}
	for i := range int64(10) {
		group = append(group, entry("many", 1_000_000+i, 5))
	}
	mustAppend(t, s, group...)
	return readings + 45_000, devices
}

// TestExpireLarge removes expired readings in several batches, during writes.
func TestExpireLarge(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s := mustOpen(t, pebblestore.Options{FS: fs, MemTableBytes: 256 << 10})
	readings, devices := oldAndNew(t, s)
	ctx, stop := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	appended := int64(0)
	begun := make(chan struct{})
	writer.Go(func() {
		for ; ctx.Err() == nil; appended++ {
			mustAppend(t, s, entry("many", 2_000_000+appended, 6), entry("fresh", 2_000_000+appended, 6))
			if appended == 0 {
				close(begun)
			}
			time.Sleep(time.Millisecond) // leaves the processor to Expire
		}
	})
	<-begun
	got, err := s.Expire(context.Background(), 1_000_000, math.MaxInt64)
	stop()
	writer.Wait()
	if want := (storage.Expiry{Readings: readings, Devices: devices}); err != nil || got != want {
		t.Errorf("Expire returns %+v, %v, want %+v", got, err, want)
	}
	left := s.DeviceCount()
	if r, d := shown(t, s, "retention_removed_readings_total"),
		shown(t, s, "retention_removed_devices_total"); r != float64(readings) || d != float64(devices) ||
		left != 300-devices+2 {
		t.Errorf("the metrics have %v removed readings and %v removed devices; %d devices are left", r, d, left)
	}
	if got := count(t, s, "many"); int64(got) != 10+appended {
		t.Errorf("the large device has %d records, want %d", got, 10+appended)
	}
	newest, err := s.NewestUnixMs(context.Background())
	if err != nil || int64(len(newest)) != left || slices.Min(newest) != 1_000_000 ||
		slices.Max(newest) != 2_000_000+appended-1 {
		t.Errorf("NewestUnixMs returns %d times, %v", len(newest), err)
	}
	if n, err := s.EstimateReadings(context.Background()); err != nil || n <= 0 {
		t.Errorf("EstimateReadings returns %d, %v", n, err)
	}
	again, err := s.Expire(context.Background(), 1_000_000, math.MaxInt64)
	if err != nil || again != (storage.Expiry{}) {
		t.Errorf("the second Expire returns %+v, %v, want zeros", again, err)
	}
	mustClose(t, s)
	report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: fs})
	if err != nil || report.OldestUnixMs != 1_000_000 {
		t.Errorf("Check returns %+v, %v", report, err)
	}
}

// TestExpireAtMost checks that one call removes at most atMost readings, and that further
// calls remove the others.
func TestExpireAtMost(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem()})
	defer mustClose(t, s)
	readings, devices := oldAndNew(t, s)
	total := storage.Expiry{}
	for _, atMost := range []int64{0, 1, 99, 20_000, 20_001, math.MaxInt64} {
		x, err := s.Expire(context.Background(), 1_000_000, atMost)
		if last := atMost == math.MaxInt64; err != nil || x.More == last || !last && x.Readings != atMost {
			t.Errorf("Expire of at most %d returns %+v, %v", atMost, x, err)
		}
		total.Readings += x.Readings
		total.Devices += x.Devices
	}
	if want := (storage.Expiry{Readings: readings, Devices: devices}); total != want {
		t.Errorf("in all, %+v were removed, want %+v", total, want)
	}
}

// TestExpireStopped interrupts Expire by its context, by Close, and by a loss of power.
// Exactly the readings that it has returned must be removed.
func TestExpireStopped(t *testing.T) {
	t.Parallel()
	disk, gate := vfs.NewCrashableMem(), newSyncGate()
	s := mustOpen(t, pebblestore.Options{FS: inject(disk, gate)})
	readings, devices := oldAndNew(t, s)
	total := storage.Expiry{}
	for n := range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		gate.close()
		closed := make(chan error, 1)
		var stopper sync.WaitGroup
		stopper.Go(func() {
			defer gate.open()
			<-gate.waiting // the first removal is synced
			if n != 1 {
				cancel()
				return
			}
			go func() { closed <- s.Close() }()
			polltest.Within(polltest.Patience, func() bool { return errors.Is(s.Ready(), storage.ErrClosed) })
		})
		got, err := s.Expire(ctx, 1_000_000, math.MaxInt64)
		stopper.Wait()
		cancel()
		if n == 1 {
			if err := <-closed; err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if !errors.Is(err, context.Canceled) && !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Expire %d returns %+v, %v, want an error", n, got, err)
		}
		total.Readings += got.Readings
		total.Devices += got.Devices
		if n > 0 {
			if n == 2 {
				after := disk.CrashClone(vfs.CrashCloneCfg{})
				mustClose(t, s)
				disk = after
			}
			report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: disk})
			if want := readings + 210 - total.Readings; err != nil || report.Readings != want {
				t.Errorf("after %d stops, Check returns %+v, %v, want %d readings", n+1, report, err, want)
			}
			s = mustOpen(t, pebblestore.Options{FS: inject(disk, gate)})
		}
	}
	got, err := s.Expire(context.Background(), 1_000_000, math.MaxInt64)
	total.Readings += got.Readings
	total.Devices += got.Devices
	if want := (storage.Expiry{Readings: readings, Devices: devices}); err != nil || total != want {
		t.Errorf("in all, %+v were removed, %v, want %+v", total, err, want)
	}
	mustClose(t, s)
}

// TestExpireNoSpaceLeft cancels Expire while its flush finds no space. A server that is
// shutting down must not wait for space.
func TestExpireNoSpaceLeft(t *testing.T) {
	f := &fault{match: operation(".sst", errorfs.OpFileWrite), failing: syscall.ENOSPC}
	s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), f)})
	defer mustClose(t, s)
	mustAppend(t, s, entry("d", 1, 1), entry("d", 100, 1))
	f.on.Store(true)
	defer f.on.Store(false)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := s.Expire(ctx, 50, math.MaxInt64)
		ended <- err
	}()
	polltest.Until(t, "the flush fails", func() bool { return f.failed.Load() > 0 })
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Expire returns %v, want context.Canceled", err)
		}
	case <-time.After(polltest.Patience):
		t.Fatal("Expire does not end")
	}
}

// TestExpireNotSealed fails a read of a segment while Expire seals late readings that are expired.
// They stay in memory then, and Expire must not report that it has removed what is expired.
//
// Seen to fail when Expire removed what was in segments, and returned nil.
func TestExpireNotSealed(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	fault := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && failing.CompareAndSwap(true, false) {
			return syscall.EIO
		}
		return nil
	})
	s := mustOpen(t, pebblestore.Options{FS: inject(vfs.NewMem(), fault), MinFreeBytes: -1, CacheBytes: 1})
	mustAppend(t, s, manyDevices(10, 1000)...)
	mustAppend(t, s, manyDevices(10, 3000)...)
	try(t, pebblestore.Seal(s), pebblestore.Flush(s))
	mustAppend(t, s, manyDevices(10, 2000)...)
	failing.Store(true)
	if done, err := s.Expire(context.Background(), 2500, math.MaxInt64); !errors.Is(err, syscall.EIO) {
		t.Errorf("Expire returns %+v, %v, want the error of the disk", done, err)
	}
	if failing.Load() {
		t.Fatal("no segment was read")
	}
	_, err := s.Expire(context.Background(), 2500, math.MaxInt64)
	try(t, err)
	for _, e := range manyDevices(10, 0) {
		if got := count(t, s, e.Reading.Device.String()); got != 1 {
			t.Errorf("device %s has %d readings, want 1", e.Reading.Device, got)
		}
	}
	mustClose(t, s)
}

// manyDevices returns a reading of each of n devices.
func manyDevices(n int, timeUnixMs int64) (group []*storage.Entry) {
	for i := range n {
		group = append(group, entry(fmt.Sprintf("d%04d", i), timeUnixMs, 7000))
	}
	return group
}
