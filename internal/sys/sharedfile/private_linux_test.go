package sharedfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// What is not a regular file is rejected without waiting for its other end.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	fifo, regular, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "regular"), filepath.Join(dir, "link")
	try(t, syscall.Mkfifo(fifo, 0o600), os.WriteFile(regular, []byte("text"), 0o600), os.Symlink(regular, link))
	for path, want := range map[string]error{fifo: sharedfile.ErrNotRegular, dir: sharedfile.ErrNotRegular,
		regular: nil, link: nil} {
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
	for name, mode := range map[string]os.FileMode{"own": 0o700, "group": 0o775, "all": 0o777,
		"sticky": 0o777 | os.ModeSticky} {
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
	link := filepath.Join(dir, "link")
	inMount, err := os.MkdirTemp("/dev/shm", "pulsegate-test-")
	try(t, err, os.Chmod(inMount, 0o777), os.Symlink(inMount, link))
	defer os.Remove(inMount)
	if got, err := sharedfile.PrivateDir(link); !errors.Is(err, sharedfile.ErrPublic) {
		t.Errorf("a link to a directory in a mount: %q, %v", got, err)
	}
}

// In the root of a mount to which every user may write, any of them can have made the directory of a server.
func TestPrivateDirOfOthers(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, "mode=1777,size=64k"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("only root can mount: ", err)
	}
	defer syscall.Unmount(root, syscall.MNT_DETACH)
	own := filepath.Join(root, "pulsegate")
	for name, c := range map[string]struct {
		harm func() error
		want string
	}{
		"fresh":    {func() error { return nil }, ""},
		"readable": {func() error { return os.Chmod(own, 0o755) }, ""},
		"public":   {func() error { return os.Chmod(own, 0o777) }, sharedfile.ErrPublic.Error()},
		"foreign":  {func() error { return os.Chown(own, 12345, 0) }, "belongs to another user"},
		"link":     {func() error { return errors.Join(os.Remove(own), os.Symlink(t.TempDir(), own)) }, "is not a directory"},
		"file": {func() error { return errors.Join(os.Remove(own), os.WriteFile(own, nil, 0o600)) },
			"is not a directory"},
	} {
		try(t, os.Mkdir(own, 0o700), c.harm())
		got, err := sharedfile.PrivateDir(root)
		if got != own || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
		try(t, os.Remove(own))
	}
}
