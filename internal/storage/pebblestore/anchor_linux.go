package pebblestore

import (
	"errors"
	"fmt"

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

// descriptorPath returns a path to the directory that does not depend on its name.
func (a *anchor) descriptorPath() string { return fmt.Sprintf("/proc/self/fd/%d", a.dir.Fd()) }
