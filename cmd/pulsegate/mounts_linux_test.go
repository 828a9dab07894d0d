package main_test

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownMounts lets the process of the tests start again in a mount namespace of its own,
// once, where it may make one. What the tests mount is there for this process and its
// children only, and goes with them.
//
// Otherwise every process that makes a namespace for itself meanwhile, such as a
// container, keeps a copy of each disk that is mounted. A disk whose power was cut
// then is not gone when it is unmounted: it is mounted again as it is, without power,
// and every file on it gives an input/output error. (Seen to happen beside the tests of
// deploy/test.)
func ownMounts() error {
	const made = "OWN_MOUNTS_MADE"
	if os.Getenv(made) != "" {
		return os.Unsetenv(made)
	}
	runtime.LockOSThread() // the namespace is the thread's, until exec makes it the process's
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil // a test that mounts says that it cannot
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), made+"=1")); err != nil {
		return fmt.Errorf("start again in a mount namespace: %w", err)
	}
	return nil
}
