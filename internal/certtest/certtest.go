// Package certtest makes certificates for tests.
//
// # Promise
//
// The certificates of a [CA] are valid from an hour ago until twelve hours from now, and each has a
// key of its own. The keys are on P-256, which signs much faster than RSA.
//
// # Not here
//
// No configurations of TLS: each test needs a different one. No errors: a certificate that cannot be
// made is a mistake of the test, and a panic.
package certtest

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

// A CA issues certificates.
type CA struct {
	Cert *x509.Certificate
	PEM  []byte // of Cert
	key  *ecdsa.PrivateKey
}

// New returns a CA with a common name.
func New(name string) *CA {
	ca := &CA{key: newKey()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca.Cert, ca.PEM = sign(template, template, &ca.key.PublicKey, ca.key)
	return ca
}

// Pool returns a pool with the CA's certificate.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	return pool
}

// Server issues a certificate for localhost and the loopback addresses.
func (ca *CA) Server(serial int64) Pair {
	return ca.Issue(&x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Client issues a certificate of a client, with a common name and URIs.
func (ca *CA) Client(name string, uris ...string) Pair {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(100), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"dns-name"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		template.URIs = append(template.URIs, u)
	}
	return ca.Issue(template)
}

// Issue issues a certificate like a template, whose times may be missing.
func (ca *CA) Issue(template *x509.Certificate) Pair {
	key := newKey()
	_, cert := sign(template, ca.Cert, &key.PublicKey, ca.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return Pair{cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
}

// A Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// TLS returns the pair for a configuration of TLS.
func (p Pair) TLS() tls.Certificate {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		panic(err)
	}
	return pair
}

// Write writes the certificate to dir/name.pem and then the key to dir/name.key.
func (p Pair) Write(t testing.TB, dir, name string) {
	t.Helper()
	Write(t, filepath.Join(dir, name+".pem"), p.Cert)
	Write(t, filepath.Join(dir, name+".key"), p.Key)
}

// Write replaces a file atomically, as tools for certificates do.
func Write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}

// sign returns a certificate, and its PEM.
func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate,
	[]byte) {
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(12 * time.Hour)
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
