package datadir

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// setDirect turns direct reads of a file, which bypass the page cache, on or off. It reports
// whether they are on.
func setDirect(f vfs.File, direct bool) bool {
	fd := f.Fd()
	if fd == vfs.InvalidFd {
		return false
	}
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	flags &^= unix.O_DIRECT
	if direct {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(fd, unix.F_SETFL, flags)
	return direct && err == nil // tmpfs and some other file systems do not support it
}
