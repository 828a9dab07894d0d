package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
)

// TLS connections are served in the fast lane, with tokens and with client certificates, and
// resumed with a ticket. Handshakes and requests are counted.
//
// Seen to fail with --fast-lane=off, and when the server's sessions have no tickets.
func TestTLSLane(t *testing.T) {
	bin, dir := program(t), t.TempDir()
	writeCertificates(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	tokens := file("tokens")
	token := createToken(t, bin, tokens, "--gateway", "bed-7")
	p := start(t, bin, file("data"), append(certified(dir), "--admin-addr=127.0.0.1:0", "--tokens="+tokens,
		"--read-timeout=2s", "--tls-client-ca="+file("ca.pem"))...)
	client, err := tls.LoadX509KeyPair(file("bed-1.pem"), file("bed-1.key"))
	try(t, err)
	base := &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}
	session := func(change func(*tls.Config)) net.Conn {
		cfg := base.Clone()
		change(cfg)
		conn := tls.Client(connect(t, p.addr), cfg)
		try(t, conn.HandshakeContext(t.Context()))
		return conn
	}
	post := func(conn net.Conn, header string) {
		t.Helper()
		poster := newPoster(t, conn, header)
		for range 3 {
			if status, ends := poster.post(); status != 200 || ends {
				t.Errorf("got %d, the connection ends: %v", status, ends)
			}
		}
		conn.Close()
	}
	authorization := "Authorization: Bearer " + token + "\r\n"
	tickets := map[uint16]tls.ClientSessionCache{
		tls.VersionTLS12: tls.NewLRUClientSessionCache(0), tls.VersionTLS13: tls.NewLRUClientSessionCache(0),
	}
	versions := func(version uint16) func(*tls.Config) {
		return func(cfg *tls.Config) {
			cfg.MinVersion, cfg.MaxVersion, cfg.ClientSessionCache = version, version, tickets[version]
		}
	}
	for range 2 { // the second resumes
		post(session(versions(tls.VersionTLS12)), authorization)
		post(session(versions(tls.VersionTLS13)), authorization)
	}
	post(session(func(cfg *tls.Config) { cfg.Certificates = []tls.Certificate{client} }), "")
	odd := session(func(*tls.Config) {})
	post(odd, authorization+"X-Odd: 1\r\n")

	plain := connect(t, p.addr)
	_, err = io.WriteString(plain, "GET / HTTP/1.1\r\n\r\n")
	try(t, err)
	if text, err := io.ReadAll(plain); err != nil || !strings.HasPrefix(string(text), "HTTP/1.0 400") {
		t.Errorf("without TLS: %q, %v", text, err)
	}
	connect(t, p.addr).Close()
	stalled := connect(t, p.addr)
	_, err = stalled.Write([]byte{22, 3, 1})
	try(t, err)
	_, err = io.ReadAll(stalled)
	try(t, err)
	old := base.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if err := tls.Client(connect(t, p.addr), old).HandshakeContext(t.Context()); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
	strict := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	if err := tls.Client(connect(t, p.addr), strict).HandshakeContext(t.Context()); err == nil {
		t.Error("a client accepts an unknown CA")
	}

	want := []string{
		`pulsegate_http_lane_requests_total{lane="fast",tls="1.2"} 6`,
		`pulsegate_http_lane_requests_total{lane="fast",tls="1.3"} 9`,
		`pulsegate_http_lane_requests_total{lane="full",tls="1.3"} 3`,
		`pulsegate_tls_handshakes_total{resumed="false",version="1.2"} 1`,
		`pulsegate_tls_handshakes_total{resumed="true",version="1.2"} 1`,
		`pulsegate_tls_handshakes_total{resumed="false",version="1.3"} 3`,
		`pulsegate_tls_handshakes_total{resumed="true",version="1.3"} 1`,
		`pulsegate_tls_handshake_failures_total{reason="not_tls"} 1`,
		`pulsegate_tls_handshake_failures_total{reason="timeout"} 1`,
		`pulsegate_tls_handshake_failures_total{reason="protocol"} 1`,
		`pulsegate_tls_handshake_failures_total{reason="ended_by_client"} 2`,
		`pulsegate_certificate_expiry_timestamp_seconds{use="server"} 1`,
	}
	var missing []string
	counted := polltest.Within(polltest.Patience, func() bool {
		_, text := fetch(t, http.MethodGet, "http://"+p.admin+"/metrics", "")
		missing = missing[:0]
		for _, line := range want {
			if !strings.Contains(text, line) {
				missing = append(missing, line)
			}
		}
		return len(missing) == 0
	})
	if !counted {
		t.Errorf("not in /metrics:\n%s", strings.Join(missing, "\n"))
	}
	p.stopCleanly()
}
