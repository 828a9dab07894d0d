package pebblestore

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// lockDirectory returns an error when another process holds the lock of the directory.
// Network file systems do not lock directories.
func (a *anchor) lockDirectory() error {
	err := unix.Flock(int(a.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	return nil
}

// descriptorPath returns a path to the directory that does not depend on its name.
func (a *anchor) descriptorPath() string { return fmt.Sprintf("/proc/self/fd/%d", a.dir.Fd()) }
