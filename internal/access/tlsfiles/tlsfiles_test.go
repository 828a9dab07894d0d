package tlsfiles_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/certtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

func TestMain(m *testing.M) { polltest.Main(m) }

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	try(t, os.WriteFile(path, text, 0o600))
}

// A place has the paths of a server's files in one directory.
type place struct{ cert, key, cas string }

func newPlace(t *testing.T) place {
	dir := t.TempDir()
	return place{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "cas.pem")}
}

func (p place) write(t *testing.T, l certtest.Pair) {
	t.Helper()
	write(t, p.cert, l.Cert)
	write(t, p.key, l.Key)
}

func open(t *testing.T, cfg tlsfiles.Options) *tlsfiles.Files {
	t.Helper()
	if cfg.Every == 0 {
		cfg.Every = -1
	}
	f, err := tlsfiles.Open(cfg)
	try(t, err)
	t.Cleanup(f.Close)
	return f
}

// A server echoes each line that it reads, and records the gateway of each handshake.
type server struct {
	addr string

	mu       sync.Mutex
	gateways []string
}

func serve(t *testing.T, f *tlsfiles.Files) *server {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", f.TLSConfig())
	try(t, err)
	s := &server{addr: l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.echo(conn.(*tls.Conn)) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return s
}

func (s *server) echo(conn *tls.Conn) {
	defer conn.Close()
	if conn.Handshake() != nil {
		return
	}
	cs := conn.ConnectionState()
	gateway, err := tlsfiles.Gateway(&cs, time.Now())
	text := gateway.String()
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	s.gateways = append(s.gateways, text)
	s.mu.Unlock()
	_, _ = io.Copy(conn, conn) // the client notices
}

func (s *server) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.gateways, " ")
	s.gateways = nil
	return all
}

// dial connects and exchanges a line, so that the handshake is complete on both sides.
func dial(t *testing.T, addr string, cfg *tls.Config) (*tls.Conn, error) {
	t.Helper()
	cfg = cfg.Clone()
	cfg.ServerName = "localhost"
	conn, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return conn, exchange(conn)
}

func exchange(conn *tls.Conn) error {
	if _, err := io.WriteString(conn, "line\n"); err != nil {
		return err
	}
	text, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && text != "line\n" {
		err = errors.New("a different line came back")
	}
	return err
}

func trust(a *certtest.CA) *tls.Config { return &tls.Config{RootCAs: a.Pool()} }

// serial returns the serial number of the server's certificate.
func serial(conn *tls.Conn) *big.Int { return conn.ConnectionState().PeerCertificates[0].SerialNumber }

// New connections use a renewed certificate; open ones keep working.
func TestRenewal(t *testing.T) {
	ca, p := certtest.New("ca"), newPlace(t)
	p.write(t, ca.Server(1))
	reported := make(chan error, 10)
	f := open(t, tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, Every: 5 * time.Millisecond,
		OnChange: func(err error) { reported <- err }})
	s := serve(t, f)
	first, err := dial(t, s.addr, trust(ca))
	if err != nil || serial(first).Int64() != 1 {
		t.Fatalf("the first certificate: %v, %v", serial(first), err)
	}

	// The two files are replaced one after the other. A check in between finds a pair
	// that does not match, and changes nothing.
	second := ca.Issue(&x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"localhost"},
		NotAfter: time.Now().Add(24 * time.Hour)})
	notAfter := f.NotAfter()
	certtest.Write(t, p.cert, second.Cert)
	if err := <-reported; err == nil || !strings.Contains(err.Error(), p.key) {
		t.Errorf("a certificate with another key: reported %v, want an error with the file's name", err)
	}
	between, err := dial(t, s.addr, trust(ca))
	if err != nil || serial(between).Int64() != 1 || !f.NotAfter().Equal(notAfter) {
		t.Errorf("between the two files: certificate %v, %v; want 1", serial(between), err)
	}
	certtest.Write(t, p.key, second.Key)
	if err := <-reported; err != nil {
		t.Errorf("the complete pair: reported %v", err)
	}
	third, err := dial(t, s.addr, trust(ca))
	if err != nil || serial(third).Int64() != 2 || !f.NotAfter().After(notAfter) {
		t.Errorf("after the renewal: certificate %v, %v; want 2", serial(third), err)
	}
	for _, conn := range []*tls.Conn{first, between} {
		if err := exchange(conn); err != nil {
			t.Errorf("a connection from before the renewal: %v", err)
		}
	}
}

func TestGateway(t *testing.T) {
	ca, clients, strangers, p := certtest.New("ca"), certtest.New("clients"), certtest.New("strangers"), newPlace(t)
	p.write(t, ca.Server(1))
	write(t, p.cas, clients.PEM)
	optional := serve(t, open(t, tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, ClientCAFile: p.cas}))
	required := serve(t,
		open(t, tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, ClientCAFile: p.cas, RequireClient: true}))
	serverOnly := clients.Server(5).TLS()
	const noName = "the client's certificate does not name exactly one gateway"
	for _, tt := range []struct {
		name    string
		cert    []tls.Certificate
		gateway string // "": rejected in the handshake
		needed  string // the same, if certificates are required
	}{
		{"none", nil, "the client presented no verified certificate", ""},
		{"a common name", []tls.Certificate{clients.Client("bed-7").TLS()}, "bed-7", "bed-7"},
		{"a URI", []tls.Certificate{clients.Client("bed-7", "https://example.org/x", "pulsegate:gateway:bed-8").TLS()},
			"bed-8", "bed-8"},
		{"a URI alone", []tls.Certificate{clients.Client("", "pulsegate:gateway:ward:2_a.b-c").TLS()}, "ward:2_a.b-c",
			"ward:2_a.b-c"},
		{"two URIs", []tls.Certificate{clients.Client("bed-7", "pulsegate:gateway:a", "pulsegate:gateway:b").TLS()},
			noName, noName},
		{"a URI with an invalid name", []tls.Certificate{clients.Client("bed-7", "pulsegate:gateway:").TLS()},
			noName, noName},
		{"a URI of another kind", []tls.Certificate{clients.Client("bed-7", "pulsegate:admin:a").TLS()}, noName, noName},
		{"a URI with a query", []tls.Certificate{clients.Client("bed-7", "pulsegate:gateway:a?b").TLS()}, noName, noName},
		{"an invalid common name", []tls.Certificate{clients.Client("Bed 7").TLS()}, noName, noName},
		{"no name", []tls.Certificate{clients.Client("").TLS()}, noName, noName},
		{"signed by another CA", []tls.Certificate{strangers.Client("bed-7").TLS()}, "", ""},
		{"for servers only", []tls.Certificate{serverOnly}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, side := range []struct {
				s    *server
				want string
			}{{optional, tt.gateway}, {required, tt.needed}} {
				cfg := trust(ca)
				// Sent whether or not the server's list of CAs has its issuer.
				cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if len(tt.cert) == 0 {
						return &tls.Certificate{}, nil
					}
					return &tt.cert[0], nil
				}
				_, err := dial(t, side.s.addr, cfg)
				if got := side.s.take(); got != side.want || (err == nil) != (side.want != "") {
					t.Errorf("gateway %q, %v; want %q", got, err, side.want)
				}
			}
		})
	}
}

// A certificate that has expired since the handshake names no gateway.
func TestGatewayExpired(t *testing.T) {
	ca := certtest.New("ca")
	pair := ca.Client("bed-7").TLS()
	cs := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf},
		VerifiedChains: [][]*x509.Certificate{{pair.Leaf, ca.Cert}}}
	if name, err := tlsfiles.Gateway(cs, time.Now()); err != nil || name.String() != "bed-7" {
		t.Errorf("valid: %q, %v", name, err)
	}
	if _, err := tlsfiles.Gateway(cs, time.Now().Add(24*time.Hour)); !errors.Is(err, tlsfiles.ErrExpired) {
		t.Errorf("expired: %v, want ErrExpired", err)
	}
	cs.VerifiedChains = nil
	if _, err := tlsfiles.Gateway(cs, time.Now()); !errors.Is(err, tlsfiles.ErrNoCertificate) {
		t.Errorf("not verified: %v, want ErrNoCertificate", err)
	}
	if _, err := tlsfiles.Gateway(nil, time.Now()); !errors.Is(err, tlsfiles.ErrNoCertificate) {
		t.Errorf("no TLS: %v, want ErrNoCertificate", err)
	}
}

// A session is resumed while nothing changes, and keeps its gateway. After its CA is
// removed, new and resumed connections are rejected, although the ticket keys stay the
// same, and open connections are no longer trusted.
func TestRemovedCA(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			ca, old, renewed, p := certtest.New("ca"), certtest.New("old"), certtest.New("renewed"), newPlace(t)
			p.write(t, ca.Server(1))
			write(t, p.cas, old.PEM)
			f := open(t, tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, ClientCAFile: p.cas, RequireClient: true})
			s := serve(t, f)
			cfg := trust(ca)
			cfg.MinVersion, cfg.MaxVersion = version, version
			client := old.Client("bed-7").TLS()
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client, nil }
			cfg.ClientSessionCache = tls.NewLRUClientSessionCache(10)
			for i := range 2 {
				conn, err := dial(t, s.addr, cfg)
				if err != nil || conn.ConnectionState().DidResume != (i == 1) {
					t.Fatalf("connection %d: %v, resumed: %v", i, err, conn.ConnectionState().DidResume)
				}
				if got := s.take(); got != "bed-7" {
					t.Errorf("connection %d is of %q, want bed-7", i, got)
				}
			}
			shown := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{client.Leaf, old.Cert}}}
			if err := f.Reload(); err != nil || !f.Trusts(shown) {
				t.Errorf("after a reload of the same CA: %v, trusted: %v", err, f.Trusts(shown))
			}
			write(t, p.cas, renewed.PEM)
			if err := f.Reload(); err != nil || f.Trusts(shown) {
				t.Errorf("after a reload without the CA: %v, trusted: %v", err, f.Trusts(shown))
			}
			if _, err := dial(t, s.addr, cfg); err == nil {
				t.Error("a client of a removed CA was accepted")
			}
			client = renewed.Client("bed-8").TLS()
			if _, err := dial(t, s.addr, cfg); err != nil || s.take() != "bed-8" {
				t.Errorf("a client of the new CA: %v", err)
			}
		})
	}
}

// Bad files are rejected by Open; later they change nothing.
func TestBadFiles(t *testing.T) {
	ca, p := certtest.New("ca"), newPlace(t)
	good := ca.Server(1)
	other := ca.Server(2)
	p.write(t, good)
	write(t, p.cas, ca.PEM)
	cfg := tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, ClientCAFile: p.cas, Every: -1}
	reported := 0
	running := cfg
	running.OnChange = func(error) { reported++ }
	f := open(t, running)
	notAfter := f.NotAfter()
	for _, tt := range []struct {
		name, path string
		text       []byte
		reason     string
	}{
		{"another's certificate", p.cert, other.Cert, p.key},
		{"another's key", p.key, other.Key, p.key},
		{"no certificate", p.cert, good.Key, p.cert},
		{"an empty key", p.key, nil, p.key},
		{"no CA", p.cas, nil, "no certificate in PEM"},
		{"a key for a CA", p.cas, good.Key, "block 1 is not a certificate"},
		{"a truncated CA", p.cas, append(bytes.Clone(ca.PEM), ca.PEM[:100]...), "truncated"},
		{"a damaged CA", p.cas, bytes.Replace(ca.PEM, ca.PEM[30:60], bytes.Repeat([]byte("A"), 30), 1), "certificate 1"},
		{"a huge file", p.cas, make([]byte, 5<<20), "is larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was, err := os.ReadFile(tt.path)
			try(t, err)
			defer write(t, tt.path, was)
			write(t, tt.path, tt.text)
			if _, err := tlsfiles.Open(cfg); err == nil || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("Open: %v, want an error with %q", err, tt.reason)
			}
			reported = 0
			for range 2 {
				if err := f.Reload(); err == nil || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("Reload: %v, want an error with %q", err, tt.reason)
				}
			}
			if reported != 1 || !f.NotAfter().Equal(notAfter) {
				t.Errorf("reported %d times, want once; the certificate is valid until %v, want %v", reported,
					f.NotAfter(), notAfter)
			}
			write(t, tt.path, was)
			if err := f.Reload(); err != nil || reported != 2 {
				t.Errorf("good again: %v, reported %d times, want 2", err, reported)
			}
			if err := f.Reload(); err != nil || reported != 2 {
				t.Errorf("unchanged: %v, reported %d times, want 2", err, reported)
			}
		})
	}
	for _, cfg := range []tlsfiles.Options{
		{CertFile: p.cert}, {KeyFile: p.key}, {CertFile: p.cert, KeyFile: p.key, RequireClient: true},
	} {
		if _, err := tlsfiles.Open(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	try(t, os.Remove(p.cert))
	if err := f.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed certificate: %v, want ErrNotExist", err)
	}
}

var try = polltest.Try
