package fronttest

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// awaitArrival waits until the peer's kernel has acknowledged all that was sent.
func awaitArrival(t testing.TB, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	polltest.Try(t, err)
	polltest.Until(t, "everything has arrived", func() bool {
		unsent := -1
		polltest.Try(t, raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }))
		return err == nil && unsent == 0
	})
}
