package main_test

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownNamespaces runs the test process again, once, in its own mount and network namespaces, if
// it may create them: only this process and its children see what the tests mount and listen
// on.
//
// Otherwise every process that creates a mount namespace during the test, such as a container, keeps
// a copy of each mounted disk. A disk whose power was cut then survives its unmount: it is
// mounted again in its old state, without power, and every file on it gives an input/output
// error (seen in parallel with the tests of deploy/test). The README's commands also listen on
// the default addresses, which another process may use.
func ownNamespaces() error {
	const made = "OWN_NAMESPACES_MADE"
	if os.Getenv(made) != "" {
		return os.Unsetenv(made)
	}
	runtime.LockOSThread() // the namespaces belong to the thread until exec makes them the process's
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return nil // tests that need namespaces report it
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	if err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), made+"=1")); err != nil {
		return fmt.Errorf("start again in namespaces: %w", err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}
