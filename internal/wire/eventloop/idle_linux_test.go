//go:build !race

// With the race detector, 10,000 handshakes take minutes and use more memory.

package eventloop_test

import (
	"crypto/tls"
	"net"
	"testing"
)

// 10,000 idle connections with TLS take less than 100 MiB. Nearly all of it is what
// crypto/tls keeps: its buffers have grown to the length of the ClientHello, and the keys
// of AES-GCM take 1.7 KiB.
func TestTenThousandTLSConnections(t *testing.T) {
	testIdleConnections(t, startChildAs(t, "tls"), func(c net.Conn) net.Conn {
		conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		return conn
	}, 10<<10, 100<<20)
}
