package pebblestore_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// cutErasure returns what a crash leaves of an erasure whose intent is durable, and that has
// not removed anything.
func cutErasure(t *testing.T) (crashed *vfs.MemFS) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	var mu sync.Mutex // the logs of readings and of the database are synced by two goroutines
	spy := errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if crashed == nil && op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, ".log") {
			// A log that is synced in the background may come before the intent is durable.
			left := disk.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 1))})
			if text, err := readFile(left, dataDir+"/ERASING"); err == nil && strings.HasPrefix(text, "pulsegate erasure 1 remove\n") {
				crashed = left
			}
		}
		return nil
	})
	s := mustOpen(t, pebblestore.Options{FS: inject(disk, spy)})
	defer mustClose(t, s)
	fill(t, s, 0, 2)
	if _, err := s.Erase(mustName(erasedDevice)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if crashed == nil {
		t.Fatal("no log was synced between the durable intent and the removal")
	}
	return crashed
}

// TestEraseUnreadIntent starts after an erasure was cut off, while its intent cannot be read.
// If the store were opened, the next start would remove what is acknowledged until then.
//
// Seen to fail with the mutant open-without-intent.
func TestEraseUnreadIntent(t *testing.T) {
	crashed := cutErasure(t)
	for n := int64(1); ; n++ {
		disk := crashed.CrashClone(vfs.CrashCloneCfg{})
		var opens atomic.Int64
		f := &fault{failing: errDisk, match: func(op errorfs.Op) bool {
			if op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, "/ERASING") {
				return opens.Add(1) == n
			}
			return false
		}}
		f.on.Store(true)
		s, err := pebblestore.Open(dataDir, pebblestore.Options{FS: inject(disk, f)})
		switch {
		case err == nil && s.Ready() != nil: // the erasure could not be resumed
			_ = s.Close()
		case err == nil:
			mustAppend(t, s, newEntry(1))
			mustClose(t, s)
			s = mustOpen(t, pebblestore.Options{FS: disk})
			defer mustClose(t, s)
			if got := count(t, s, erasedDevice); got != 1 {
				t.Errorf("with fault %d, Open succeeds; of a reading that was acknowledged then, %d records are left after the next start", n, got)
			}
		case !errors.Is(err, errDisk) || errors.Is(err, storage.ErrCorrupt):
			t.Errorf("with fault %d, Open returns %v; want %v, which is no damage", n, err, errDisk)
		}
		if f.failed.Load() == 0 {
			if n < 2 {
				t.Error("no operation failed")
			}
			return
		}
	}
}

// TestEraseDamagedIntent starts after an erasure was cut off, with a damaged intent. The store
// takes readings, and reports the damage.
func TestEraseDamagedIntent(t *testing.T) {
	disk := cutErasure(t)
	flip(t, disk, dataDir+"/ERASING", 40)
	s := mustOpen(t, pebblestore.Options{FS: disk})
	defer mustClose(t, s)
	mustAppend(t, s, newEntry(1))
	if err := s.Degraded(); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "ERASING") {
		t.Errorf("Degraded returns %v, want ErrCorrupt with the file", err)
	}
	if n := pebblestore.Scrubbed(s).Damaged; n != 1 {
		t.Errorf("%d files are damaged, want 1", n)
	}
}
