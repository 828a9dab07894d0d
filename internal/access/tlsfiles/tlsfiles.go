package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
)

// A Config names the files.
type Config struct {
	CertFile string // PEM: the server's certificate, then those between it and its CA
	KeyFile  string // PEM: the key of the first one

	// ClientCAFile holds, in PEM, the CAs whose client certificates are accepted.
	// Empty: clients are not asked for one.
	ClientCAFile string

	// RequireClient refuses clients without a certificate in the handshake.
	// Otherwise a certificate is verified if one is given, so that readers may
	// come with a token instead.
	RequireClient bool

	// Every is the time between two looks at the files: default 1 s, below 0 none.
	Every time.Duration

	// Changed is called as [filewatch.Options.Loaded] is. May be nil.
	Changed func(error)
}

// maxFileBytes bounds each of the files.
const maxFileBytes = 4 << 20

// protocols are those that ALPN offers, best first. The list is never written to.
var protocols = []string{"h2", "http/1.1"}

// Files hold the certificates of a running server. The methods may be called from
// many goroutines. Connections that are open are touched by none of them.
type Files struct {
	*filewatch.Follower

	cfg Config

	// current is replaced whole and never changed.
	current atomic.Pointer[state]
}

// A state is what one reading of the files gave.
type state struct {
	contents [3]string // of certificate, key and client CAs
	tls      *tls.Config
	cas      []*x509.Certificate // of clients
	notAfter time.Time
}

// Open reads the files and follows their changes until Close. It returns an error
// if they cannot be used now.
func Open(cfg Config) (*Files, error) {
	switch {
	case cfg.CertFile == "" || cfg.KeyFile == "":
		return nil, errors.New("tlsfiles: certificate and key are both needed")
	case cfg.RequireClient && cfg.ClientCAFile == "":
		return nil, errors.New("tlsfiles: client certificates cannot be required without a CA for them")
	}
	f := &Files{cfg: cfg}
	f.current.Store(&state{})
	paths := []string{cfg.CertFile, cfg.KeyFile}
	if cfg.ClientCAFile != "" {
		paths = append(paths, cfg.ClientCAFile)
	}
	var err error
	f.Follower, err = filewatch.Follow(filewatch.Options{Paths: paths, Every: cfg.Every, Load: f.load, Loaded: f.loaded})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Files) load() (changed bool, err error) {
	st, err := f.read()
	if err != nil || st.contents == f.current.Load().contents {
		return false, err
	}
	f.current.Store(st)
	return true, nil
}

func (f *Files) loaded(err error) {
	if f.cfg.Changed != nil {
		f.cfg.Changed(err)
	}
}

// TLSConfig returns a configuration for a listener. Each handshake uses what was
// read last. The caller may add to it what the handshake does not need; what
// concerns certificates, versions and protocols is decided here.
func (f *Files) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return f.current.Load().tls, nil
		},
	}
}

// Trusts reports whether the certificate that a client showed in its handshake leads to
// one of the CAs in use: a connection may live longer than the trust in the CA that let
// it in. It does not allocate, so it may be asked for each request.
func (f *Files) Trusts(cs *tls.ConnectionState) bool {
	cas := f.current.Load().cas
	for _, chain := range cs.VerifiedChains {
		root := chain[len(chain)-1]
		for _, ca := range cas {
			if root.Equal(ca) {
				return true
			}
		}
	}
	return false
}

// IsClientRefused reports whether err is a handshake's of a client that showed a
// certificate that does not hold, or none where one is required. No handler sees such a
// client.
func IsClientRefused(err error) bool {
	// Of a missing certificate crypto/tls has the text only; TestClientRefused holds it
	// to that.
	const missing = "tls: client didn't provide a certificate"
	_, wrong := errors.AsType[*tls.CertificateVerificationError](err)
	return wrong || err != nil && err.Error() == missing
}

// NotAfter returns when the server's certificate, or one that it was sent with,
// expires.
func (f *Files) NotAfter() time.Time { return f.current.Load().notAfter }

func (f *Files) read() (*state, error) {
	cert, err := readFile(f.cfg.CertFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	key, err := readFile(f.cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("use certificate %s with key %s: %w", f.cfg.CertFile, f.cfg.KeyFile, err)
	}
	st := &state{contents: [3]string{string(cert), string(key)}}
	for i, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("use certificate %s: number %d in it: %w", f.cfg.CertFile, i+1, err)
		}
		if i == 0 || c.NotAfter.Before(st.notAfter) {
			st.notAfter = c.NotAfter
		}
	}
	st.tls = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{pair},
	}
	if f.cfg.ClientCAFile == "" {
		return st, nil
	}
	cas, err := readFile(f.cfg.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("read client CAs: %w", err)
	}
	st.contents[2] = string(cas)
	if st.cas, err = parseCertificates(cas); err != nil {
		return nil, fmt.Errorf("use client CAs %s: %w", f.cfg.ClientCAFile, err)
	}
	st.tls.ClientCAs = x509.NewCertPool()
	for _, ca := range st.cas {
		st.tls.ClientCAs.AddCert(ca)
	}
	st.tls.ClientAuth = tls.VerifyClientCertIfGiven
	if f.cfg.RequireClient {
		st.tls.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return st, nil
}

// parseCertificates returns the certificates of a PEM file. Unlike AppendCertsFromPEM
// it passes over nothing: of a file that was copied in part a part is not put in use.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is no certificate", len(all)+1)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, errors.New("its last certificate is cut off")
	case len(all) == 0:
		return nil, errors.New("it holds no certificate in PEM")
	}
	return all, nil
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return text, err
}
