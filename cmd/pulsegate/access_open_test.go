package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
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
	server, err := newSigner(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.issueServer(dir, 2); err != nil {
		t.Fatal(err)
	}
	clients, err := newSigner(dir, "clients")
	if err != nil {
		t.Fatal(err)
	}
	if err := clients.issueClient(dir, "bed-7", "bed-7"); err != nil {
		t.Fatal(err)
	}
	if _, err := newSigner(dir, "next"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "bed-7.pem"), filepath.Join(dir, "bed-7.key"))
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, program(t), filepath.Join(dir, "data"), "--tls-cert="+filepath.Join(dir, "server.pem"),
		"--tls-key="+filepath.Join(dir, "server.key"), "--tls-client-ca="+filepath.Join(dir, "clients.pem"), "--fast-lane="+lane)
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", Certificates: []tls.Certificate{pair}}
	cfg.RootCAs.AddCert(server.cert)
	poster := newPoster(t, tls.Client(connect(t, p.addr), cfg), "")
	if status, ends := poster.post(); status != 200 || ends {
		t.Fatalf("with a certificate: %d, the connection ends: %v", status, ends)
	}
	if err := os.Rename(filepath.Join(dir, "next.pem"), filepath.Join(dir, "clients.pem")); err != nil {
		t.Fatal(err)
	}
	if ends := poster.until(401); !ends {
		t.Error("the connection stays open, so the client does not present another certificate")
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.stderr())
	}
}
