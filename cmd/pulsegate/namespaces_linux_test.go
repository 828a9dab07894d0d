package main_test

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownNamespaces lets the process of the tests start again, once, with mounts and a
// network of its own, where it may make them: only this process and its children see
// what the tests mount and listen on.
//
// Otherwise every process that makes a mount namespace meanwhile, such as a container,
// keeps a copy of each disk that is mounted. A disk whose power was cut then is not gone
// when it is unmounted: it is mounted again as it is, without power, and every file on
// it gives an input/output error. (Seen to happen beside the tests of deploy/test.) And
// the commands of the README listen on the default addresses, which another process may
// have taken.
func ownNamespaces() error {
	const made = "OWN_NAMESPACES_MADE"
	if os.Getenv(made) != "" {
		return os.Unsetenv(made)
	}
	runtime.LockOSThread() // the namespaces are the thread's, until exec makes them the process's
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return nil // a test that needs them says so
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
