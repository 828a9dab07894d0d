package listen

import (
	"errors"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT (RFC 5482; tcp(7)), which package syscall does not have.
const tcpUserTimeout = 18

func endDead(socket syscall.RawConn, after time.Duration) error {
	var set error
	err := socket.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(after.Milliseconds()))
	})
	return errors.Join(err, set)
}
