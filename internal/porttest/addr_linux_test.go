package porttest_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/pulsegate/pulsegate/internal/porttest"
	"golang.org/x/sys/unix"
)

// The kernel assigns a reserved address to no other listener and no connection, even if
// it has no other port left; the test may listen on it repeatedly, and connections are
// rejected in between.
//
// Seen to fail when Addr closes its socket.
func TestAddr(t *testing.T) {
	addr := porttest.Addr(t)
	port := int(netip.MustParseAddrPort(addr).Port())
	onlyThis := func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, port<<16|port)
		})
		return errors.Join(err, set)
	}
	listening := net.ListenConfig{Control: onlyThis}
	dialing := net.Dialer{Control: onlyThis}
	peer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for range 2 {
		if conn, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial returns %v, %v; want connection refused", conn, err)
		}
		l, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if errors.Is(err, syscall.ENOPROTOOPT) {
			t.Skip("before Linux 6.3, one socket's ports cannot be narrowed down")
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("another listener: %v, %v; want an error that no port is free", l, err)
		}
		if conn, err := dialing.Dial("tcp", peer.Addr().String()); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Fatalf("a connection: %v, %v; want an error that no port is free", conn, err)
		}
		if l, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
