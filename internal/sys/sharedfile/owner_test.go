//go:build unix

package sharedfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// As root, files keep their owner, and new files get the owner of their directory.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root can change owners")
		}
		t.Skip("only root can change owners")
	}
	const uid, gid = 12345, 23456
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	try(t, errors.Join(os.WriteFile(path, nil, 0o640), os.Chown(path, uid, gid), os.Chown(dir, uid, gid)))
	unlock, err := sharedfile.Lock(t.Context(), path+".lock")
	try(t, err)
	defer unlock()
	try(t, sharedfile.Replace(path, []byte("new")))
	try(t, sharedfile.Replace(path+".other", nil))
	for path, mode := range map[string]os.FileMode{path: 0o640, path + ".lock": 0o600, path + ".other": 0o600} {
		info, err := os.Stat(path)
		try(t, err)
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != gid || info.Mode() != mode {
			t.Errorf("%s: owner %d:%d, mode %v; want %d:%d, %v", path, st.Uid, st.Gid, info.Mode(), uid, gid, mode)
		}
	}
}
