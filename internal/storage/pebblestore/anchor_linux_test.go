package pebblestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
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

// TestLockCopied closes a store while a copy of the directory's descriptor is open, as in a child
// process between fork and exec. The store must open again.
//
// Seen to fail when the directory was closed without unlocking it.
func TestLockCopied(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1})
	try(t, err)
	entries, err := os.ReadDir("/proc/self/fd")
	try(t, err)
	copies := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err != nil || target != dir {
			continue
		}
		fd, err := strconv.Atoi(e.Name())
		try(t, err)
		fd, err = syscall.Dup(fd)
		try(t, err)
		defer syscall.Close(fd)
		copies++
	}
	if copies == 0 {
		t.Fatal("the store has no descriptor of its directory: the test tests nothing")
	}
	mustClose(t, s)
	s, err = pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1})
	try(t, err)
	mustClose(t, s)
}
