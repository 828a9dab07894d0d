package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallFileSystems are file systems of a given size that can be filled. Each is mounted by its
// function, and unmounted when the test ends.
var smallFileSystems = map[string]func(t testing.TB, bytes int64) (dir string){
	"tmpfs": newTmpfs,
	"ext4":  func(t testing.TB, bytes int64) string { return newDisk(t, bytes).dir },
}

func newTmpfs(t testing.TB, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	mountTmpfs(t, dir, bytes)
	return dir
}

// mountTmpfs mounts a tmpfs on a directory until the test ends.
func mountTmpfs(t testing.TB, dir string, bytes int64) {
	t.Helper()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=700", bytes), "tmpfs", dir).
		CombinedOutput(); err != nil {
		unable(t, "mount a tmpfs: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Error(err)
		}
	})
}

// freeBytes returns how much an unprivileged process may still write.
func freeBytes(t testing.TB, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	try(t, unix.Statfs(dir, &st))
	return int64(st.Bavail) * st.Bsize
}

// A filler is a file of another program that takes space.
type filler struct {
	t    testing.TB
	path string
}

// leave fills the file system except for this many bytes; a negative number leaves none.
func leave(t testing.TB, dir string, bytes int64) *filler {
	t.Helper()
	f := &filler{t, filepath.Join(dir, "filler")}
	file, err := os.Create(f.path)
	try(t, err)
	defer file.Close()
	if bytes >= 0 {
		if err := unix.Fallocate(int(file.Fd()), 0, 0, freeBytes(t, dir)-bytes); err != nil {
			t.Fatalf("take space in %s: %v", dir, err)
		}
		return f
	}
	chunk := make([]byte, 1<<20)
	for len(chunk) > 0 {
		if _, err := file.Write(chunk); errors.Is(err, unix.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// remove frees the space.
func (f *filler) remove() {
	f.t.Helper()
	try(f.t, os.Remove(f.path))
}

// awaitReady waits until readyz answers with a status.
func (b *harness) awaitReady(want int) {
	b.Helper()
	b.server.awaitStatus("/readyz", want)
}
