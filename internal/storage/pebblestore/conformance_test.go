package pebblestore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestConformance runs the suite on an in-memory file system that can lose power, with
// memtables so small that the checks cause flushes and compactions.
func TestConformance(t *testing.T) {
	long(t) // the next one flushes and compacts as often
	t.Parallel()
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		return newCrashable(t, pebblestore.Options{MemTableBytes: 64 << 10}).harness()
	})
}

// TestConformanceSmallWindow runs the suite with windows and segments so small that every few
// readings are sealed, and segments are merged and split. Assignments are not sealed.
func TestConformanceSmallWindow(t *testing.T) {
	t.Parallel()
	for _, o := range []pebblestore.Options{
		pebblestore.WithSegmentRows(pebblestore.Options{WindowRows: 1, MemTableBytes: 64 << 10}, 6),
		pebblestore.WithSegmentRows(pebblestore.Options{WindowRows: 7, MemTableBytes: 64 << 10}, 64),
	} {
		t.Run(fmt.Sprintf("%d readings", o.WindowRows), func(t *testing.T) {
			if o.WindowRows == 1 {
				long(t)
			}
			for _, c := range storetest.Checks() {
				if !strings.HasPrefix(c.Name, "subjects/") || c.Name == "subjects/erase" {
					t.Run(c.Name, func(t *testing.T) {
						c.Run(t, func(t testing.TB) storetest.Harness { return newCrashable(t, o).harness() })
					})
				}
			}
		})
	}
}

// TestConformanceOnDisk runs every fourth check of the suite, from a random one on, on the real
// file system, without crashes. TestConformanceOnDiskExhaustive (make exhaustive) runs all.
func TestConformanceOnDisk(t *testing.T) {
	long(t)
	t.Parallel()
	runOnDisk(t, 4)
}

func TestConformanceOnDiskExhaustive(t *testing.T) {
	long(t)
	t.Parallel()
	runOnDisk(t, 1)
}

// runOnDisk runs every stride-th check, without the random ones, whose thousands of real syncs
// would find nothing more.
func runOnDisk(t *testing.T, stride int) {
	first := rand.IntN(stride)
	t.Logf("every check from number %d on, with a stride of %d", first, stride)
	runSome(t, storetest.Checks()[first:], stride, func(t testing.TB) storetest.Harness {
		dir := t.TempDir()
		return storetest.Harness{
			Open: func() (storage.Store, error) { return pebblestore.Open(dir, pebblestore.Options{}) },
			OpenLimited: func(maxDevices int) (storage.Store, error) {
				return pebblestore.Open(dir, pebblestore.Options{MaxDevices: maxDevices})
			},
			OpenSigns: func(own []vitals.Definition) (storage.Store, error) {
				return pebblestore.Open(dir, pebblestore.Options{Signs: own})
			},
		}
	})
}

// runSome runs every stride-th of the checks but the random ones.
func runSome(t *testing.T, checks []storetest.Check, stride int, open func(testing.TB) storetest.Harness) {
	for i, c := range checks {
		if i%stride == 0 && !strings.HasSuffix(c.Name, "random") {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, open) })
		}
	}
}

// A crashable is a directory in memory that can lose power.
type crashable struct {
	t    testing.TB
	o    pebblestore.Options
	fs   *vfs.MemFS
	open *pebblestore.Store // nil if none is open
}

const dataDir = "var/lib/pulsegate"

func newCrashable(t testing.TB, o pebblestore.Options) *crashable {
	c := &crashable{t: t, o: o, fs: vfs.NewCrashableMem()}
	t.Cleanup(func() {
		if c.open != nil {
			_ = c.open.Close()
		}
	})
	return c
}

func (c *crashable) harness() storetest.Harness {
	return storetest.Harness{
		Open:        func() (storage.Store, error) { return c.reopen(c.o) },
		Crash:       c.crash,
		OpenLimited: func(n int) (storage.Store, error) { o := c.o; o.MaxDevices = n; return c.reopen(o) },
		OpenSigns:   func(own []vitals.Definition) (storage.Store, error) { o := c.o; o.Signs = own; return c.reopen(o) },
		OpenChanges: func(own []vitals.Definition) (storage.Store, error) {
			o := c.o
			o.Signs, o.ChangesKeep = own, time.Hour
			return c.reopen(o)
		},
	}
}

func (c *crashable) reopen(o pebblestore.Options) (storage.Store, error) {
	o.FS = c.fs
	s, err := pebblestore.Open(dataDir, o)
	if err != nil {
		return nil, err
	}
	c.open = s
	return s, nil
}

// crash replaces the file system by a copy in the state after a loss of power. The old
// store continues to write to the old file system until it is closed.
func (c *crashable) crash(unsyncedPercent int, seed uint64) {
	after := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: rand.New(rand.NewPCG(seed, 1))})
	if c.open != nil {
		_ = c.open.Close() // ErrClosed if the check has closed it
		c.open = nil
	}
	c.fs = after
}
