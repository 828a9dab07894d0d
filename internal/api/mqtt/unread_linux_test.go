package mqtt_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
)

// What a client has sent before it leaves without reading its acknowledgements is stored.
func TestUnreadAcknowledgements(t *testing.T) {
	eachLane(t, func(t *testing.T, l lane) {
		v := newValve(t)
		s := start(t, l, config{before: v.before})
		c := s.connect(t, 4)
		for i := range 200 {
			c.send(publish(4, 1, i+1, "pulsegate/d", reading(i)))
		}
		<-v.began
		tcp := listen.Below(c.Conn).(*net.TCPConn)
		raw, err := tcp.SyscallConn()
		try(t, err)
		polltest.Until(t, "the server has received all", func() bool {
			unsent := -1
			try(t, raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }))
			return err == nil && unsent == 0
		})
		try(t, tcp.SetLinger(0)) // Close resets the connection
		try(t, tcp.Close())
		v.release()
		polltest.Until(t, "the connection has ended", func() bool { return s.conns.Open() == 0 })
		s.stop(t)
		if got := s.store.take(); len(got) != 200 {
			t.Errorf("%d readings are stored, want 200", len(got))
		}
	})
}
