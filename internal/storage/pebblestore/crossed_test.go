package pebblestore_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
)

// TestRemovalsBesideBackup expires readings and tries to erase a device during a backup. The
// backup must hold what was stored when it began. During the backup, Erase returns ErrBusy;
// afterwards it removes everything of the device, and a later backup holds nothing of it.
// In a store restored from the earlier backup, the device can be erased again, as
// docs/backup.md requires, whether its readings expire before the erasure, during it or not at all.
func TestRemovalsBesideBackup(t *testing.T) {
	t.Parallel()
	const before = 1_800_000_000_000
	ctx := context.Background()
	expire := func(s *pebblestore.Store, want int64) {
		t.Helper()
		if x, err := s.Expire(ctx, before, math.MaxInt64); err != nil || x.Readings != want {
			t.Errorf("Expire returns %+v, %v, want %d readings", x, err, want)
		}
	}
	erase := func(s *pebblestore.Store) int64 {
		t.Helper()
		e, err := s.Erase(mustName(erasedDevice))
		if err != nil {
			t.Errorf("Erase: %v", err)
		}
		return e.Readings
	}
	fs := vfs.NewMem()
	o := pebblestore.Options{FS: fs, MemTableBytes: 64 << 10, MinFreeBytes: -1}
	s := mustOpen(t, o)
	fill(t, s, 0, 30)
	mustAppend(t, s, entry("later", before, 1), newEntry(1))
	want := mustDump(t, s)

	b, err := s.Backup()
	try(t, err)
	expire(s, 30*70)
	if _, err := s.Erase(mustName(erasedDevice)); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("during the backup, Erase returns %v, want ErrBusy", err)
	}
	var archive bytes.Buffer
	_, err = b.WriteTo(&archive)
	try(t, err)
	try(t, b.Close())
	if n := erase(s); n != 1 {
		t.Errorf("Erase removes %d readings, want 1", n)
	}
	wantNoTraces(t, fs)
	mustReceive(t, fs, mustBackup(t, s))
	if found := traces(t, fs, backupPath); len(found) > 0 {
		t.Errorf("in the backup after it, %v hold traces", found)
	}
	mustClose(t, s)

	for name, again := range map[string]func(s *pebblestore.Store){
		"erased":               func(s *pebblestore.Store) { erase(s) },
		"expired, then erased": func(s *pebblestore.Store) { expire(s, 30*70); erase(s) },
		"erased while expiring": func(s *pebblestore.Store) {
			var expiring sync.WaitGroup
			expiring.Go(func() {
				if _, err := s.Expire(ctx, before, math.MaxInt64); err != nil {
					t.Errorf("Expire: %v", err)
				}
			})
			erase(s)
			expiring.Wait()
		},
	} {
		fs := vfs.NewMem()
		mustReceive(t, fs, archive.Bytes())
		_, err := pebblestore.Restore(ctx, backupPath, restoredPath, backup.Options{FS: fs})
		try(t, err)
		s := openAt(t, fs, restoredPath)
		if got := mustDump(t, s); got != want {
			t.Errorf("%s: the backup differs from the store when it began", name)
		}
		again(s)
		if found := traces(t, fs, restoredPath); len(found) > 0 {
			t.Errorf("%s: in the restored store, %v hold traces", name, found)
		}
		if got := count(t, s, "later"); got != 1 {
			t.Errorf("%s: a reading that has not expired is gone", name)
		}
		mustClose(t, s)
		if _, err := pebblestore.Check(ctx, restoredPath, pebblestore.CheckOptions{FS: fs}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
