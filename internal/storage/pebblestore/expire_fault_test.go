package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestExpireFaults fails each write of an Expire in turn, except those of the log, whose
// failure ends the process. All expired readings must be removed, and no others.
func TestExpireFaults(t *testing.T) {
	t.Parallel()
	for n := int64(1); ; n++ {
		disk := vfs.NewMem()
		f := &nthWrite{n: math.MaxInt64, spare: func(op errorfs.Op) bool {
			// After these errors Pebble ends the process; see failure_test.go.
			stack := debug.Stack()
			return isLog(op.Path) || strings.Contains(op.Path, "MANIFEST") || bytes.Contains(stack, []byte("rotateWAL")) || bytes.Contains(stack, []byte("atomicfs")) ||
				bytes.Contains(stack, []byte("storeDir")) || bytes.Contains(stack, []byte("(*openList).writeLocked"))
		}}
		s := mustOpen(t, pebblestore.Options{FS: inject(disk, f)})
		fill(t, s, 0, 10) // expired readings of 51 devices
		for _, e := range manyEntries(50) {
			e.Reading.TimeUnixMs += 1_900_000_000_000
			mustAppend(t, s, e)
		}
		f.mu.Lock()
		f.n, f.seen = n, 0
		f.mu.Unlock()
		x, err := s.Expire(context.Background(), 1_800_000_000_000, math.MaxInt64)
		f.mu.Lock()
		over := f.seen < n
		f.n = math.MaxInt64
		f.mu.Unlock()
		if err != nil {
			t.Errorf("write %d: Expire returns %v, want nil: failed writes of tables are retried", n, err)
		}
		_ = s.Close()
		s = mustOpen(t, pebblestore.Options{FS: disk})
		rest, err := s.Expire(context.Background(), 1_800_000_000_000, math.MaxInt64)
		if got := x.Readings + rest.Readings; err != nil || got != 700 {
			t.Errorf("write %d: removed %d and then %d readings, %v, want 700 in all", n, x.Readings, rest.Readings, err)
		}
		mustClose(t, s)
		report, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: disk})
		if err != nil || report.Readings != 50 || report.OldestUnixMs < 1_800_000_000_000 {
			t.Errorf("write %d: Check returns %+v, %v, want 50 readings", n, report, err)
		}
		if over {
			break
		}
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
	if err := errors.Join(pebblestore.Seal(s), pebblestore.Flush(s)); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, manyDevices(10, 2000)...)
	failing.Store(true)
	if done, err := s.Expire(context.Background(), 2500, math.MaxInt64); !errors.Is(err, syscall.EIO) {
		t.Errorf("Expire returns %+v, %v, want the error of the disk", done, err)
	}
	if failing.Load() {
		t.Fatal("no segment was read")
	}
	if _, err := s.Expire(context.Background(), 2500, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	for _, e := range manyDevices(10, 0) {
		if got := count(t, s, e.Reading.Device.String()); got != 1 {
			t.Errorf("device %s has %d readings, want 1", e.Reading.Device, got)
		}
	}
	mustClose(t, s)
}
