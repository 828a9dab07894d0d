package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A signer is a CA.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newSigner creates a CA and writes its certificate to dir/name.pem.
func newSigner(dir, name string) (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &signer{cert, key}, writePEM(filepath.Join(dir, name+".pem"), "CERTIFICATE", der)
}

// issue writes a certificate to dir/name.pem and then its key to dir/name.key, each atomically.
func (s *signer) issue(dir, name string, template x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(12*time.Hour)
	if template.SerialNumber == nil {
		template.SerialNumber = big.NewInt(2)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, s.cert, &key.PublicKey, s.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, name+".pem"), "CERTIFICATE", der); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, name+".key"), "PRIVATE KEY", keyDER)
}

// issueServer issues a certificate for the addresses of this machine.
func (s *signer) issueServer(dir string, serial int64) error {
	return s.issue(dir, "server", x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "pulsegate"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// issueClient issues a certificate that names a gateway.
func (s *signer) issueClient(dir, file, gateway string) error {
	return s.issue(dir, file, x509.Certificate{
		Subject: pkix.Name{CommonName: "somebody"}, URIs: []*url.URL{{Scheme: "pulsegate", Opaque: "gateway:" + gateway}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// writePEM replaces a file atomically, as certificate tools do.
func writePEM(path, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// writeCertificates writes the files that TestScripts describes.
func writeCertificates(dir string) error {
	ca, err := newSigner(dir, "ca")
	if err != nil {
		return err
	}
	if err := ca.issueServer(dir, 2); err != nil {
		return err
	}
	for _, gateway := range []string{"bed-1", "bed-2"} {
		if err := ca.issueClient(dir, gateway, gateway); err != nil {
			return err
		}
	}
	others, err := newSigner(dir, "other-ca")
	if err != nil {
		return err
	}
	return others.issueClient(dir, "stranger", "bed-1")
}

// startTLS starts a server with a certificate, and returns it with a TLS configuration of clients
// that trust it.
func startTLS(t *testing.T, args ...string) (*process, *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	ca, err := newSigner(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.issueServer(dir, 2); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--tls-cert="+filepath.Join(dir, "server.pem"), "--tls-key="+filepath.Join(dir, "server.key"))
	cfg := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	cfg.RootCAs.AddCert(ca.cert)
	return start(t, program(t), filepath.Join(dir, "data"), args...), cfg
}
