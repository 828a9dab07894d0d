package listen_test

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// TestHandshakesOfOneAddress opens more connections from one address than there are slots,
// one after another, and keeps them: a slot is for the time of the handshake alone.
//
// Seen to fail when an address' open connections count against its share of the slots.
func TestHandshakesOfOneAddress(t *testing.T) {
	const slots, open = 2, 6
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	defer cert.Close()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var holders share.Holders
	conns := &share.Conns{Max: 4 * open, MaxGuests: 1, Holders: &holders}
	l := listen.TLS(inner, conns, listen.Handshakes{Config: cert.TLS, Slots: slots, Timeout: 10 * time.Second, Holders: &holders})
	defer l.Close()
	for i := range open {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		client := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) // it is about the listener
		if err := client.Handshake(); err != nil {
			t.Fatalf("with %d connections of this address open, a handshake fails: %v", i, err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
	}
	if got := conns.Open(); got != open {
		t.Errorf("%d connections are open, want %d", got, open)
	}
}
