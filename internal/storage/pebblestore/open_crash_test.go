package pebblestore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// crashesOf returns copies of the disk as a crash would leave it before each operation of
// call that changes files.
func crashesOf(disk *vfs.MemFS, percents []int, call func(vfs.FS)) (found []crashPoint) {
	var mu sync.Mutex // guards found
	rng := rand.New(rand.NewPCG(9, 9))
	spy := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, percent := range percents {
			found = append(found, crashPoint{
				at: fmt.Sprintf("before operation %d, %v of %s, unsynced %d %%", len(found)/len(percents), op.Kind,
					op.Path, percent),
				fs: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
			})
		}
		return nil
	})
	call(inject(disk, spy))
	return found
}

// strided returns every stride-th of some crashes, from a random one on.
func strided(t *testing.T, found []crashPoint, stride int) (some []crashPoint) {
	t.Helper()
	first := rand.IntN(stride)
	t.Logf("every crash of %d from number %d on, with a stride of %d", len(found), first, stride)
	for i := first; i < len(found); i += stride {
		some = append(some, found[i])
	}
	return some
}

// TestCrashWhileOpening loses power before some operations of a start and of a clean close,
// and again during some of the next starts. No start may report damage, and everything
// acknowledged must be stored. TestCrashWhileOpeningExhaustive (make exhaustive) loses it before
// every operation.
func TestCrashWhileOpening(t *testing.T) {
	long(t)
	t.Parallel()
	crashOpening(t, 20)
}

func TestCrashWhileOpeningExhaustive(t *testing.T) {
	long(t)
	t.Parallel()
	crashOpening(t, 1)
}

// crashOpening tests every stride-th crash.
func crashOpening(t *testing.T, stride int) {
	for name, s := range damageScenes(t) {
		if s.readers {
			continue
		}
		want := s.states[len(s.states)-1]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reopen := func(fs vfs.FS) {
				o := pebblestore.Options{FS: fs, MemTableBytes: 64 << 10}
				st, err := pebblestore.Open(dataDir, o)
				if err != nil {
					t.Errorf("Open: %v", err)
					return
				}
				mustClose(t, st)
			}
			found := crashesOf(s.fs.CrashClone(vfs.CrashCloneCfg{}), []int{0, 50, 100}, reopen)
			holds := func(p crashPoint) {
				t.Helper()
				if _, err := pebblestore.Check(context.Background(), dataDir, pebblestore.CheckOptions{FS: p.fs}); err != nil {
					t.Errorf("%s: %v", p.at, err)
					return
				}
				st, err := pebblestore.Open(dataDir, pebblestore.Options{FS: p.fs})
				if err != nil {
					t.Errorf("%s: %v", p.at, err)
					return
				}
				defer mustClose(t, st)
				if mustDump(t, st) != want {
					t.Errorf("%s: acknowledged readings are missing", p.at)
				}
			}
			twice := 0
			for i, p := range strided(t, found, stride) {
				if i%(40/stride) == 0 {
					for j, again := range crashesOf(p.fs.CrashClone(vfs.CrashCloneCfg{}), []int{50}, reopen) {
						if j%(5*stride) == 0 {
							again.at = p.at + ", then " + again.at
							holds(again)
							twice++
						}
					}
				}
				holds(p)
			}
			t.Logf("%d crashes, %d of two starts", len(found), twice)
			if len(found) < 100 || twice < 20/stride {
				t.Errorf("%d crashes, %d of two starts, want more", len(found), twice)
			}
		})
	}
}
