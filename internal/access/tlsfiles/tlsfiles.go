package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/sys/filewatch"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Options configure [Files].
type Options struct {
	CertFile string // PEM: the server's certificate, then the intermediate certificates
	KeyFile  string // PEM: the key of the server's certificate

	// ClientCAFile contains, in PEM, the CAs whose client certificates are accepted. If
	// empty, no client certificate is requested.
	ClientCAFile string

	// RequireClient rejects clients without a certificate in the handshake. Otherwise a
	// certificate is optional, so that readers may use a token instead.
	RequireClient bool

	// Every is the interval at which the files are checked: default 1 s; negative:
	// never.
	Every time.Duration

	// OnChange, if not nil, is called as [filewatch.Options.OnLoad] is.
	OnChange func(error)
}

// maxFileBytes bounds each of the files.
const maxFileBytes = 4 << 20

// protocols are offered in ALPN, most preferred first. The slice is never modified.
var protocols = []string{"h2", "http/1.1"}

// Files holds the certificates of a running server. It is safe for concurrent use. No
// method affects open connections.
type Files struct {
	*filewatch.Follower

	opt Options

	// current is replaced as a whole; a state is never modified.
	current atomic.Pointer[state]
}

// A state is the result of reading the files once.
type state struct {
	contents [3]string // of certificate, key and client CAs
	tls      *tls.Config
	cas      []*x509.Certificate // of clients
	notAfter time.Time
}

// Open reads the files and follows their changes until Close. It returns an error
// if they cannot be used now.
func Open(opt Options) (*Files, error) {
	if opt.RequireClient && opt.ClientCAFile == "" {
		return nil, errors.New("client certificates cannot be required without a client CA")
	}
	f := &Files{opt: opt}
	f.current.Store(&state{})
	paths := []string{opt.CertFile, opt.KeyFile}
	if opt.ClientCAFile != "" {
		paths = append(paths, opt.ClientCAFile)
	}
	var err error
	f.Follower, err = filewatch.Follow(filewatch.Options{Paths: paths, Every: opt.Every, Load: f.load,
		OnLoad: opt.OnChange})
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

// TLSConfig returns a configuration for a listener. Each handshake uses the
// certificates that were read last. Certificates, versions and protocols are fixed; the
// caller may set other fields.
func (f *Files) TLSConfig() *tls.Config { return f.TLSConfigWith(func(*tls.Config) {}) }

// TLSConfigWith is like TLSConfig for a listener of another protocol than HTTP. set changes
// the configuration of handshakes, each time that certificates were read.
func (f *Files) TLSConfigWith(set func(*tls.Config)) *tls.Config {
	type changed struct {
		from   *state
		config *tls.Config // one for many handshakes, because it has the keys of session tickets
	}
	var last atomic.Pointer[changed]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols, // net/http serves HTTP/2 only with it
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			st, c := f.current.Load(), last.Load()
			if c == nil || c.from != st {
				c = &changed{st, st.tls.Clone()}
				set(c.config)
				last.Store(c)
			}
			return c.config, nil
		},
	}
}

// Trusts reports whether the client certificate of a connection chains to one of the
// CAs in use; a connection may outlive the removal of its CA. It does not allocate, so
// it may be called for each request.
func (f *Files) Trusts(cs *tls.ConnectionState) bool {
	cas := f.current.Load().cas
	return slices.ContainsFunc(cs.VerifiedChains, func(chain []*x509.Certificate) bool {
		return slices.ContainsFunc(cas, chain[len(chain)-1].Equal)
	})
}

// IsClientRefused reports whether err is from a handshake that failed because the
// client's certificate is invalid or missing. No handler sees such a client.
func IsClientRefused(err error) bool {
	// crypto/tls has no type for the error of a missing certificate;
	// TestIsClientRefused checks its text.
	const missing = "tls: client didn't provide a certificate"
	_, wrong := errors.AsType[*tls.CertificateVerificationError](err)
	return wrong || err != nil && err.Error() == missing
}

// NotAfter returns when the first certificate of the server's chain expires.
func (f *Files) NotAfter() time.Time { return f.current.Load().notAfter }

// CANotAfter returns when the first of the clients' CAs expires, or the zero time if there is none.
func (f *Files) CANotAfter() time.Time { return Earliest(f.current.Load().cas) }

// Earliest returns when the first of some certificates expires, or the zero time if there is none.
func Earliest(all []*x509.Certificate) (first time.Time) {
	for i, c := range all {
		if i == 0 || c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}

func (f *Files) read() (*state, error) {
	cert, err := sharedfile.Read(f.opt.CertFile, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	key, err := sharedfile.Read(f.opt.KeyFile, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("use certificate %s with key %s: %w", f.opt.CertFile, f.opt.KeyFile, err)
	}
	st := &state{contents: [3]string{string(cert), string(key)}}
	var chain []*x509.Certificate
	for i, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("use certificate %s: certificate %d in it: %w", f.opt.CertFile, i+1, err)
		}
		chain = append(chain, c)
	}
	st.notAfter = Earliest(chain)
	st.tls = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols,
		Certificates: []tls.Certificate{pair},
	}
	if f.opt.ClientCAFile == "" {
		return st, nil
	}
	cas, err := sharedfile.Read(f.opt.ClientCAFile, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read client CAs: %w", err)
	}
	st.contents[2] = string(cas)
	if st.cas, err = ParseCertificates(cas); err != nil {
		return nil, fmt.Errorf("use client CAs %s: %w", f.opt.ClientCAFile, err)
	}
	st.tls.ClientCAs = x509.NewCertPool()
	for _, ca := range st.cas {
		st.tls.ClientCAs.AddCert(ca)
	}
	st.tls.ClientAuth = tls.VerifyClientCertIfGiven
	if f.opt.RequireClient {
		st.tls.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return st, nil
}

// ParseCertificates returns the certificates in a PEM file, one at least. Unlike AppendCertsFromPEM
// it skips nothing, so that a partly copied file is not used in part.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is not a certificate", len(all)+1)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(all)+1, err)
		}
		all = append(all, c)
	}
	switch {
	case bytes.Contains(text, []byte("-----BEGIN")):
		return nil, errors.New("the last certificate is truncated")
	case len(all) == 0:
		return nil, errors.New("there is no certificate in PEM")
	}
	return all, nil
}
