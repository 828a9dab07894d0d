package mqtt_test

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A client that vanishes without a FIN or RST, as a host without power does, loses its place after 1.5 times its keep
// alive. Others are served meanwhile.
func TestVanishedClient(t *testing.T) {
	eachPlainLane(t, func(t *testing.T, l lane) {
		s := start(t, l, config{})
		other := s.connect(t, 5)
		for _, version := range []byte{4, 5} {
			c := s.dial(t)
			whole := hello(version)
			c.send(whole[:10] + u16(1) + whole[12:])
			c.want("CONNACK 0")
			vanish(t, c.Conn)
		}
		other.send(publish(5, 1, 7, "pulsegate/e", reading(1)))
		other.want("PUBACK 7")
		polltest.Until(t, "the vanished clients have lost their places", func() bool { return s.conns.Open() == 1 })
		if n := s.Ended()["slow"]; n != 2 {
			t.Errorf("%d clients are counted as slow, want 2", n)
		}
	})
}

// vanish closes a connection without a word to its peer, which tcp(7) offers for processes that move to another host.
func vanish(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	try(t, err)
	var failed error
	try(t, raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) }))
	if failed == unix.EPERM && os.Getenv("CI") != "true" {
		t.Skip("needs CAP_NET_ADMIN")
	}
	if failed != nil {
		t.Fatal(failed)
	}
	try(t, c.Close())
}
