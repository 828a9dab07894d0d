package pebblestore_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
)

// A fatalRecorder collects the texts passed to Options.OnFatal.
type fatalRecorder struct {
	mu    sync.Mutex
	texts []string
}

func (f *fatalRecorder) fatal(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, text)
}

func (f *fatalRecorder) all() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.texts, "\n")
}

// tampering has functions that remove or replace a store's directory or lock. Each returns
// the new path of the directory.
var tampering = map[string]func(t *testing.T, dir string) string{
	"LOCK removed": func(t *testing.T, dir string) string {
		try(t, os.Remove(filepath.Join(dir, "LOCK")))
		return dir
	},
	"LOCK replaced": func(t *testing.T, dir string) string {
		try(t, os.Remove(filepath.Join(dir, "LOCK")), os.WriteFile(filepath.Join(dir, "LOCK"), nil, 0o600))
		return dir
	},
	"directory moved": func(t *testing.T, dir string) string {
		try(t, os.Rename(dir, dir+".old"))
		return dir + ".old"
	},
	"parent moved": func(t *testing.T, dir string) string {
		try(t, os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".old"))
		return filepath.Join(filepath.Dir(dir)+".old", filepath.Base(dir))
	},
	"another store in its place": func(t *testing.T, dir string) string {
		try(t, os.Rename(dir, dir+".old"), os.Rename(dir+".other", dir))
		return dir + ".old"
	},
}

// TestTampering removes or replaces LOCK or the directory of an open store. The store must
// fail by itself, and report the reason. Everything acknowledged must be in its directory,
// and the directory that replaced it must be unchanged.
func TestTampering(t *testing.T) {
	for name, tamper := range tampering {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "parent", "data")
			other, err := pebblestore.Open(dir+".other", pebblestore.Options{MinFreeBytes: -1})
			try(t, err)
			mustAppend(t, other, entry("other", 1, 1))
			mustClose(t, other)
			before := diskFiles(t, dir+".other")

			var f fatalRecorder
			s, err := pebblestore.Open(dir, pebblestore.Options{MinFreeBytes: -1, OnFatal: f.fatal})
			try(t, err)
			mustAppend(t, s, manyEntries(300)...)
			now := tamper(t, dir)
			awaitFailed(t, s)
			if err := s.Append([]*storage.Entry{entry("late", 1, 1)}); !errors.Is(err, storage.ErrFailed) {
				t.Errorf("Append returns %v, want ErrFailed", err)
			}
			if text := f.all(); !strings.Contains(text, dir) || !strings.Contains(text, "was changed while the store was open") {
				t.Errorf("OnFatal was called with %q", text)
			}
			_ = s.Close()
			if now != dir {
				place := dir + ".other"
				if name == "another store in its place" {
					place = dir
				} else if name == "parent moved" {
					place = now + ".other"
				}
				if !maps.Equal(before, diskFiles(t, place)) {
					t.Errorf("the other store was changed")
				}
			}
			s, err = pebblestore.Open(now, pebblestore.Options{MinFreeBytes: -1})
			try(t, err)
			if got := count(t, s, "dev-1"); got != 6 {
				t.Errorf("%d acknowledged records are stored, want 6", got)
			}
			mustClose(t, s)
		})
	}
}

func awaitFailed(t *testing.T, s *pebblestore.Store) {
	t.Helper()
	polltest.Until(t, "the store has failed", func() bool { return s.Ready() != nil })
	if err := s.Ready(); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("Ready returns %v, want ErrFailed", err)
	}
}

// diskFiles returns the files of a directory of the operating system, by name.
func diskFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	try(t, err)
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		try(t, err)
		all[e.Name()] = string(text)
	}
	return all
}
