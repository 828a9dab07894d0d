package listen

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endDead sets TCP_USER_TIMEOUT (RFC 5482; tcp(7)).
func endDead(socket syscall.RawConn, after time.Duration) error {
	var set error
	err := socket.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
	return errors.Join(err, set)
}
