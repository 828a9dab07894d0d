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

// processTime returns the CPU time that this process has used, user and system.
func processTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spareFiles is how many open files a run needs beside its connections.
const spareFiles = 64

// fitFiles returns an error if this process may not open so many connections.
func fitFiles(conns int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(conns)+spareFiles > uint64(limit.Cur) {
		return fmt.Errorf("%w: %d connections need more open files than the limit of %d (ulimit -n)", ErrConfig, conns, limit.Cur)
	}
	return nil
}

// closedByPeer reports whether an idle connection cannot be used any more: it has
// ended, or something has arrived that nothing was asked for, such as the alert
// with which TLS ends.
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
	// Not raw.Read, which fails once the deadline of the last request is over.
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err != nil || peeked != unix.EAGAIN
}
