package main_test

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/certtest"
)

// writeCertificates writes the files that TestScripts describes, and returns their CA.
func writeCertificates(t testing.TB, dir string) *certtest.CA {
	t.Helper()
	ca, others := certtest.New("ca"), certtest.New("other-ca")
	certtest.Write(t, filepath.Join(dir, "ca.pem"), ca.PEM)
	ca.Server(2).Write(t, dir, "server")
	for _, gateway := range []string{"bed-1", "bed-2"} {
		ca.Client("somebody", "pulsegate:gateway:"+gateway).Write(t, dir, gateway)
	}
	certtest.Write(t, filepath.Join(dir, "other-ca.pem"), others.PEM)
	others.Client("somebody", "pulsegate:gateway:bed-1").Write(t, dir, "stranger")
	return ca
}

// startTLS starts a server with a certificate, and returns it with a TLS configuration of clients
// that trust it.
func startTLS(t *testing.T, args ...string) (*process, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	ca := certtest.New("ca")
	ca.Server(2).Write(t, dir, "server")
	return start(t, program(t), filepath.Join(dir, "data"), append(args, certified(dir)...)...),
		&tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
}

// certified returns the flags of a server with the certificate in dir.
func certified(dir string) []string {
	return []string{"--tls-cert=" + filepath.Join(dir, "server.pem"), "--tls-key=" + filepath.Join(dir, "server.key")}
}
