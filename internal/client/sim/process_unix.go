//go:build unix

package sim

import (
	"crypto/tls"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processTime returns the user and system CPU time of this process.
func processTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spareFiles is the number of open files that a run needs in addition to its
// connections.
const spareFiles = 64

// fitFiles returns an error if the limit on open files is too low for conns
// connections.
func fitFiles(conns int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(conns)+spareFiles > uint64(limit.Cur) {
		return fmt.Errorf("%w: %d connections need more open files than the limit of %d (ulimit -n)", ErrOptions,
			conns, limit.Cur)
	}
	return nil
}

// closedByPeer reports whether an idle connection is no longer usable: it was closed,
// or has unsolicited data such as a TLS close alert.
func closedByPeer(conn net.Conn) bool {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	var peeked error
	// Not raw.Read, which fails after the deadline of the last request.
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err != nil || peeked != unix.EAGAIN
}
