package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
)

// TestRestoreCrash loses power before every operation of a restore that changes files.
// Afterwards there must be the complete store, or a directory in which no store is opened or
// created; once Restore has returned, there must be the store.
//
// Seen to fail with the mutant restore-format-file-first.
func TestRestoreCrash(t *testing.T) {
	s := mustOpen(t, pebblestore.Options{FS: vfs.NewMem(), MemTableBytes: 64 << 10})
	for k := range int64(20) {
		mustAppend(t, s, shifted(manyEntries(50), 1000*k)...)
	}
	want, archive := mustDump(t, s), mustBackup(t, s)
	mustClose(t, s)
	for name, inside := range map[string]bool{"missing": false, "empty": true} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewCrashableMem()
			mustReceive(t, disk, archive)
			if inside {
				mkdirSynced(t, disk, "restored", restoredPath)
			}
			var mu sync.Mutex // guards what follows
			var found []crashPoint
			rng := rand.New(rand.NewPCG(9, 9))
			begun := false
			snap := func(at string) {
				percent := []int{0, 50, 100, 50}[len(found)%4]
				found = append(found, crashPoint{
					at: fmt.Sprintf("%d: before %s, unsynced %d %%", len(found), at, percent),
					fs: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
				})
			}
			spy := errorfs.InjectorFunc(func(op errorfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				begun = begun || op.Kind == errorfs.OpMkdirAll
				if begun && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
					snap(fmt.Sprintf("%v of %s", op.Kind, op.Path))
				}
				return nil
			})
			if _, err := pebblestore.Restore(context.Background(), backupPath, restoredPath, backup.Options{FS: inject(disk, spy)}); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			for range 4 {
				snap("the end")
			}
			mu.Unlock()
			whole := 0
			for i, p := range found {
				s, err := pebblestore.Open(restoredPath, pebblestore.Options{FS: p.fs, Existing: true})
				if err != nil {
					if !errors.Is(err, storage.ErrFormat) || i >= len(found)-4 {
						t.Errorf("%s: %v", p.at, err)
					}
					continue
				}
				whole++
				if got, err := dump(s); err != nil || got != want {
					t.Errorf("%s: the store differs, or error %v", p.at, err)
				}
				mustClose(t, s)
			}
			t.Logf("%d crashes, %d left the whole store", len(found), whole)
			if len(found) < 30 || whole < 4 || whole > len(found)/2 {
				t.Error("there were too few crashes before or after the end")
			}
		})
	}
}

// mkdirSynced creates directories, each in the one before.
func mkdirSynced(t *testing.T, fs vfs.FS, dirs ...string) {
	t.Helper()
	parent := ""
	for _, dir := range dirs {
		try(t, fs.MkdirAll(dir, 0o700))
		d, err := fs.OpenDir(parent)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		try(t, err)
		parent = dir
	}
}
