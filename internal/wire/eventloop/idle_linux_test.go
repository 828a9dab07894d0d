//go:build !race

// With the race detector, connections take more memory, and 10,000 handshakes take minutes.

package eventloop_test

import (
	"crypto/tls"
	"net"
	"testing"
)

// Ten thousand idle connections that were used before take less than 1 KiB of heap each,
// and less than 60 MiB in total.
func TestTenThousandConnections(t *testing.T) {
	testIdleConnections(t, 10_000, startChild(t, 0), func(c net.Conn) net.Conn { return c }, 1<<10, 60<<20)
}

// Idle connections with TLS take less than 10 KiB of heap each, and 1,000 of them less than
// 16 MiB. Nearly all of it is what crypto/tls keeps: its buffers have grown to the length of
// the ClientHello, and the keys of AES-GCM take 1.7 KiB.
//
// TestTenThousandTLSConnectionsExhaustive (make exhaustive) opens 10,000, which take less
// than 100 MiB.
func TestThousandTLSConnections(t *testing.T) { testIdleTLS(t, 1000, 16<<20) }

func TestTenThousandTLSConnectionsExhaustive(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	testIdleTLS(t, 10_000, 100<<20)
}

func testIdleTLS(t *testing.T, n, maxResident int) {
	testIdleConnections(t, n, startChildAs(t, "tls"), func(c net.Conn) net.Conn {
		conn := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		try(t, conn.Handshake())
		return conn
	}, 10<<10, maxResident)
}
