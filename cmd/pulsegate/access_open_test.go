package main_test

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/certtest"
)

// When a CA is removed, the connections that its certificates opened write nothing more and are
// closed, so that a client can reconnect with a new certificate, in both lanes.
//
// Seen to fail without Gate.Trusted, when readings were still stored, without closeExpired and
// without Core.outlived, when the connection stayed open.
func TestRemovedCAOnOpenConnections(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	for _, lane := range []string{"on", "off"} {
		t.Run("fast lane "+lane, func(t *testing.T) { testRemovedCA(t, lane) })
	}
}

func testRemovedCA(t *testing.T, lane string) {
	dir := t.TempDir()
	clients := certtest.New("clients")
	trusted := filepath.Join(dir, "clients.pem")
	certtest.Write(t, trusted, clients.PEM)
	p, cfg := startTLS(t, "--tls-client-ca="+trusted, "--fast-lane="+lane)
	cfg.Certificates = []tls.Certificate{clients.Client("bed-7").TLS()}
	poster := newPoster(t, tls.Client(connect(t, p.addr), cfg), "")
	if status, ends := poster.post(); status != 200 || ends {
		t.Fatalf("with a certificate: %d, the connection ends: %v", status, ends)
	}
	certtest.Write(t, trusted, certtest.New("next").PEM)
	ends := poster.until(401)
	if !ends { // net/http's handlers look before the request is authorized: the CAs were replaced in between
		var status int
		if status, ends = poster.post(); status != 401 {
			t.Errorf("the next reading is answered %d, want 401", status)
		}
	}
	if !ends {
		t.Error("the connection stays open, so the client does not present another certificate")
	}
	p.stopCleanly()
}
