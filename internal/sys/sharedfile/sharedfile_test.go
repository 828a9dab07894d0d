package sharedfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

func TestMain(m *testing.M) { polltest.Main(m) }

// At most one goroutine holds the lock.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var held atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				unlock, err := sharedfile.Lock(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if n := held.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				held.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 0 {
		t.Errorf("the lock file: %v, %v; want it empty, with mode 0600", info, err)
	}
}

func TestLockFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	unlock, err := sharedfile.Lock(t.Context(), path)
	try(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sharedfile.Lock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("held by another: %v, want Canceled", err)
	}
	link := filepath.Join(dir, "link")
	try(t, os.Symlink(path, link))
	if _, err := sharedfile.Lock(t.Context(), link); err == nil {
		t.Error("a link was followed")
	}
	if _, err := sharedfile.Lock(t.Context(), filepath.Join(dir, "none", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v, want ErrNotExist", err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"first", "", "third"} {
		// A file left over from a crash does not block a change.
		try(t, os.WriteFile(path+".tmp", []byte("left"), 0o444))
		try(t, sharedfile.Replace(path, []byte(text)))
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q, %v; want %q", got, err, text)
		}
	}
	try(t, os.Chmod(path, 0o666))
	try(t, sharedfile.Replace(path, []byte("fourth")))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v; want 0644", info.Mode(), err)
	}
	if err := sharedfile.Replace(filepath.Join(path, "file"), nil); err == nil {
		t.Error("a file was created in a file")
	}
}

func TestOpenAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if _, err := sharedfile.OpenAppend(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v, want ErrNotExist", err)
	}
	try(t, errors.Join(os.WriteFile(path, []byte("first\n"), 0o600), os.Symlink(path, path+".link")))
	file, err := sharedfile.OpenAppend(path)
	try(t, err)
	if _, err := file.WriteString("second\n"); err != nil {
		t.Error(err)
	}
	file.Close()
	if got, err := os.ReadFile(path); err != nil || string(got) != "first\nsecond\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := sharedfile.OpenAppend(path + ".link"); err == nil {
		t.Error("a link was followed")
	}
}

var try = polltest.Try
