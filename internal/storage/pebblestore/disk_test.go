package pebblestore_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

func free(bytes uint64) vfs.DiskUsage {
	return vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 40, UsedBytes: 1<<40 - bytes}
}

// TestDiskLow reduces the free space and restores it.
func TestDiskLow(t *testing.T) {
	const limit = 100 << 20
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		fs.TestingSetDiskUsage(free(limit))
		s := mustOpen(t, pebblestore.Options{FS: fs, MinFreeBytes: limit})
		defer mustClose(t, s)
		mustAppend(t, s, entry("d", 1, 1))

		fs.TestingSetDiskUsage(free(limit - 1))
		time.Sleep(time.Second)
		err := s.Append([]*storage.Entry{entry("d", 2, 2)})
		if !errors.Is(err, storage.ErrDiskLow) || !errors.Is(err, storage.ErrNotWritten) {
			t.Errorf("Append returns %v, want ErrDiskLow and ErrNotWritten", err)
		}
		if err := s.Ready(); !errors.Is(err, storage.ErrDiskLow) || !strings.Contains(err.Error(), "104857599 bytes are free") {
			t.Errorf("Ready returns %v, want ErrDiskLow with the free bytes", err)
		}
		if got := count(t, s, "d"); got != 1 {
			t.Errorf("readers see %d records, want 1", got)
		}

		fs.TestingSetDiskUsage(free(limit + limit/8 - 1)) // not enough to resume
		time.Sleep(time.Second)
		if err := s.Ready(); !errors.Is(err, storage.ErrDiskLow) {
			t.Errorf("with little more than the limit, Ready returns %v, want ErrDiskLow", err)
		}

		fs.TestingSetDiskUsage(free(limit + limit/8))
		time.Sleep(time.Second)
		if err := s.Ready(); err != nil {
			t.Errorf("with enough space again, Ready returns %v", err)
		}
		again := entry("d", 2, 2)
		mustAppend(t, s, again)
		wantOutcome(t, again, storage.Stored)
	})
}

// TestNoSpaceLeft fills the disk between two polls, so that a table cannot be written.
// From then on readings are rejected, until there is enough space again. The test uses the
// real clock, because Pebble holds a mutex while it pauses between two attempts.
func TestNoSpaceLeft(t *testing.T) {
	f := &fault{match: operation(".sst", errorfs.OpFileWrite), failing: syscall.ENOSPC}
	mem := vfs.NewMem()
	mem.TestingSetDiskUsage(free(300 << 20))
	s := mustOpen(t, pebblestore.Options{FS: inject(mem, f), MemTableBytes: 64 << 10})
	defer mustClose(t, s)

	f.on.Store(true)
	var err error
	taken := int64(0)
	for err == nil && taken < 1000 {
		if err = s.Append(shifted(manyEntries(50), 1000*taken)); err == nil {
			taken++
		}
		if len(namesWith(t, mem, ".log")) == 1 {
			continue
		}
		// The first memtable is full. If the second one also filled before the flush
		// failed, Append would wait for the flush.
		polltest.Until(t, "the flush fails", func() bool { return f.failed.Load() > 0 })
		mem.TestingSetDiskUsage(free(0))
	}
	if !errors.Is(err, storage.ErrDiskLow) || !errors.Is(err, storage.ErrNotWritten) {
		t.Fatalf("after %d groups, Append returns %v, want ErrDiskLow and ErrNotWritten", taken, err)
	}
	if got := count(t, s, "dev-0"); int64(got) != taken {
		t.Errorf("readers see %d records, want %d", got, taken)
	}
	f.on.Store(false)
	mem.TestingSetDiskUsage(free(300 << 20))
	polltest.Until(t, "the store has polled the free space", func() bool { return s.Ready() == nil })
	mustAppend(t, s, shifted(manyEntries(50), 1000*taken)...)
}
