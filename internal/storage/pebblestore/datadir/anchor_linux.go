package datadir

import (
	"errors"

	"golang.org/x/sys/unix"
)

// lockDirectory locks the directory. It returns an error if another process has locked
// it. Other errors are ignored: network file systems do not lock directories.
func (a *anchor) lockDirectory() error {
	err := unix.Flock(int(a.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	return nil
}

// unlockDirectory releases the lock of the directory. Closing the descriptor would release it
// only when no child process has a copy, and a child has one between fork and exec.
func (a *anchor) unlockDirectory() {
	_ = unix.Flock(int(a.dir.Fd()), unix.LOCK_UN) // the descriptor is closed next
}
