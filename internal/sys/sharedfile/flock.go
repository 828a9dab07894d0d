//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sharedfile

import (
	"errors"
	"os"
	"syscall"
)

const noFollow = syscall.O_NOFOLLOW

// CreatePrivately makes this process create its files with mode 0600 and directories with 0700, unless
// it asks for less.
func CreatePrivately() { syscall.Umask(0o077) }

// isMountRoot reports whether another file system is mounted at path.
func isMountRoot(path string) bool {
	here, err := os.Stat(path)
	above, err2 := os.Stat(path + "/..") // and not the parent of a link
	if err != nil || err2 != nil {
		return false
	}
	in, ok := here.Sys().(*syscall.Stat_t)
	over, ok2 := above.Sys().(*syscall.Stat_t)
	return ok && ok2 && in.Dev != over.Dev
}

// isOwn reports whether a file belongs to the user of this process.
func isOwn(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// tryLock acquires the lock of file if it is free.
func tryLock(file *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, os.NewSyscallError("flock", err)
		}
	}
}

// giveTo changes the owner of file to that of like. Only root can change owners; for
// other users it is an error if the owners differ.
func giveTo(file *os.File, like os.FileInfo) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	have, ok := info.Sys().(*syscall.Stat_t)
	want, ok2 := like.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	return file.Chown(int(want.Uid), int(want.Gid))
}
