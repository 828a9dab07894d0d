package pebblestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// TestLockRemoved removes LOCK of an open store. The directory must still be locked, in
// this process and in others.
func TestLockRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	end := holder(t, dir)
	try(t, os.Remove(filepath.Join(dir, "LOCK")))
	if _, err := pebblestore.Open(dir, pebblestore.Options{}); !errors.Is(err, storage.ErrLocked) {
		t.Errorf("while another process has the store open, Open returns %v, want ErrLocked", err)
	}
	_ = end() // it may have failed already

	link := dir + ".link"
	try(t, os.Symlink(dir, link))
	s, err := pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1})
	try(t, err)
	for _, path := range []string{dir, link} {
		if _, err := pebblestore.Open(path, pebblestore.Options{}); !errors.Is(err, storage.ErrLocked) {
			t.Errorf("while this process has the store open, Open of %s returns %v, want ErrLocked", path, err)
		}
	}
	mustClose(t, s)
}
