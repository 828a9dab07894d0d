package pebblestore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

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
			found := crashesOf(disk, []int{0, 50, 100}, func(fs vfs.FS) {
				_, err := pebblestore.Restore(context.Background(), backupPath, restoredPath, backup.Options{FS: fs})
				try(t, err)
			})
			found = append(found, crashPoint{at: "the end", fs: disk.CrashClone(vfs.CrashCloneCfg{})})
			whole := 0
			for i, p := range found {
				s, err := pebblestore.Open(restoredPath, pebblestore.Options{FS: p.fs, Existing: true})
				if err != nil {
					if !errors.Is(err, storage.ErrFormat) || i == len(found)-1 {
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
			if len(found) < 30 || whole == 0 || whole > len(found)/2 {
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
