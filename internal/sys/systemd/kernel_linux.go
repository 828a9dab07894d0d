package systemd

import "golang.org/x/sys/unix"

// monotonicUsec returns the time of CLOCK_MONOTONIC, which package time does not
// expose.
func monotonicUsec() (usec int64, ok bool) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, false
	}
	return now.Nano() / 1000, true
}

// listens reports whether a descriptor is a listening socket, and not a connection as
// passed with Accept=yes.
func listens(fd uintptr) bool {
	v, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}
