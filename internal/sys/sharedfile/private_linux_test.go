package sharedfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// What is not a regular file is rejected without waiting for its other end.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	fifo, regular, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "regular"), filepath.Join(dir, "link")
	try(t, syscall.Mkfifo(fifo, 0o600), os.WriteFile(regular, []byte("text"), 0o600), os.Symlink(regular, link))
	for path, want := range map[string]error{fifo: sharedfile.ErrNotRegular, dir: sharedfile.ErrNotRegular, regular: nil, link: nil} {
		file, err := sharedfile.Open(path)
		if err == nil {
			try(t, file.Close())
		}
		if !errors.Is(err, want) {
			t.Errorf("Open %s: %v, want %v", path, err, want)
		}
		if text, err := sharedfile.Read(path, 4); !errors.Is(err, want) || want == nil && string(text) != "text" {
			t.Errorf("Read %s: %q, %v, want %v", path, text, err, want)
		}
	}
	if _, err := sharedfile.OpenAppend(fifo); !errors.Is(err, sharedfile.ErrNotRegular) {
		t.Errorf("OpenAppend: %v, want %v", err, sharedfile.ErrNotRegular)
	}
}

func TestPrivateDir(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"own": 0o700, "group": 0o775, "all": 0o777, "sticky": 0o777 | os.ModeSticky} {
		path := filepath.Join(dir, name)
		try(t, os.Mkdir(path, 0o700), os.Chmod(path, mode))
		got, err := sharedfile.PrivateDir(path)
		if mode&0o002 != 0 && !errors.Is(err, sharedfile.ErrPublic) || mode&0o002 == 0 && (err != nil || got != path) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	missing := filepath.Join(dir, "missing")
	if got, err := sharedfile.PrivateDir(missing); got != missing || err != nil {
		t.Errorf("missing: %q, %v", got, err)
	}
	// /dev/shm is the root of a mount to which every user may write.
	if got, err := sharedfile.PrivateDir("/dev/shm"); got != "/dev/shm/pulsegate" || err != nil {
		t.Errorf("a mount: %q, %v", got, err)
	}
}
