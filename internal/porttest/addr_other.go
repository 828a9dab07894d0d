//go:build !linux

package porttest

import (
	"net"
	"testing"
)

// Addr returns a loopback address whose port was free a moment ago: on this platform no
// socket can reserve a port for a listener.
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
