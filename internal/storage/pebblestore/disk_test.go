package pebblestore_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

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
		if err := s.Ready(); !errors.Is(err, storage.ErrDiskLow) ||
			!strings.Contains(err.Error(), "104857599 bytes are free") {
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
