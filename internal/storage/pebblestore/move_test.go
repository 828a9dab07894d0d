package pebblestore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
)

// A store that is being moved to a directory has its name only when it is complete, and no server
// creates another one there before.
func TestOpenPartial(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for range 2 { // the second run continues the first
		s, err := pebblestore.OpenPartial(dir, pebblestore.Options{})
		try(t, err)
		e := entry("-awkward", 1, 1)
		if err := errors.Join(s.Begin(), s.Append([]*storage.Entry{e}), s.Close()); err != nil ||
			e.Outcome != storage.Stored && e.Outcome != storage.Duplicate {
			t.Fatalf("%v, outcome %d", err, e.Outcome)
		}
		if _, err := pebblestore.Open(dir, pebblestore.Options{}); !errors.Is(err, storage.ErrFormat) ||
			!strings.Contains(err.Error(), "data.partial") {
			t.Fatalf("the directory of an unfinished move: %v", err)
		}
	}
	s, err := pebblestore.OpenPartial(dir, pebblestore.Options{})
	try(t, err)
	try(t, s.Publish())
	if _, err := os.Stat(dir + ".partial"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	// What was published is compared again, and not written to.
	s, err = pebblestore.OpenPartial(dir, pebblestore.Options{})
	try(t, err)
	if err := s.Begin(); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("a store that exists: %v", err)
	}
	try(t, s.Publish())
	s, err = pebblestore.Open(dir, pebblestore.Options{Existing: true})
	try(t, err)
	if s.DeviceCount() != 1 {
		t.Errorf("%d devices", s.DeviceCount())
	}
	try(t, s.Close())

	other := t.TempDir()
	if _, err := pebblestore.OpenPartial(other, pebblestore.Options{}); !errors.Is(err, storage.ErrFormat) {
		t.Errorf("an empty directory: %v", err)
	}
}

// A store with an unfinished erasure is not moved.
func TestOpenVerifiedErasing(t *testing.T) {
	dir := t.TempDir()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	try(t, err)
	try(t, s.Append([]*storage.Entry{entry("gone", 1, 1)}), s.Close())
	s, _, err = pebblestore.OpenVerified(t.Context(), dir, pebblestore.CheckOptions{})
	try(t, err)
	try(t, s.Close())
	// An erasure began, and the process was killed: the store was not closed.
	try(t, os.Remove(filepath.Join(dir, "LISTED")))
	try(t, os.Remove(filepath.Join(dir, "CHECKSUMS")))
	text := pebblestore.WithSum("pulsegate erasure 1 remove\ndevice gone\nreadings 0\n")
	try(t, os.WriteFile(filepath.Join(dir, "ERASING"), []byte(text), 0o600))
	if _, _, err := pebblestore.OpenVerified(t.Context(), dir, pebblestore.CheckOptions{}); !errors.Is(err,
		storage.ErrUnfinished) || !strings.Contains(err.Error(), "gone") {
		t.Fatal(err)
	}
}
