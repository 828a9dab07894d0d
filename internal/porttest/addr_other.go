//go:build !linux

package porttest

import (
	"net"
	"testing"
)

// Addr returns a loopback address whose port was free just now: other kernels do not let
// a socket keep a port for a listener.
func Addr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
