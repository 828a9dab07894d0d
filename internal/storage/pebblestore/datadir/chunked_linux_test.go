package datadir_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// directIO reports whether the file system of a file supports direct reads, which bypass
// the page cache.
func directIO(t *testing.T, name string) bool {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return false
	}
	try(t, f.Close())
	return true
}
