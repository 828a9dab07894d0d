package systemd

import "golang.org/x/sys/unix"

// monotonicUsec returns the time of CLOCK_MONOTONIC, which Go's own clock does not
// show.
func monotonicUsec() (usec int64, ok bool) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, false
	}
	return now.Nano() / 1000, true
}

// listens reports whether a descriptor is a socket that listens, and not a
// connection, which Accept=yes would hand over.
func listens(fd uintptr) bool {
	v, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && v != 0
}
