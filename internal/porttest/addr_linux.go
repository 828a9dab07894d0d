package porttest

import (
	"net/netip"
	"syscall"
	"testing"
)

// Addr returns a loopback address whose port is reserved for the test until it ends.
//
// A socket that is bound but does not listen reserves it: the kernel does not choose a
// bound port for a listener on port 0, nor for an outgoing connection, which could
// otherwise connect to itself. A listener that names the port may share it, because both
// sockets have SO_REUSEADDR, which package net sets for its listeners.
func Addr(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) }) // nothing was written
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback.As4()}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(loopback, uint16(bound.(*syscall.SockaddrInet4).Port)).String()
}
