package tlsfiles_test

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/certtest"
)

// IsClientRefused distinguishes a handshake that failed because of the client's
// certificate, in each version of TLS. crypto/tls has no error type for a missing
// certificate.
func TestIsClientRefused(t *testing.T) {
	ca, clients, strangers, p := certtest.New("ca"), certtest.New("clients"), certtest.New("strangers"), newPlace(t)
	p.write(t, ca.Server(1))
	write(t, p.cas, clients.PEM)
	f := open(t, tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, ClientCAFile: p.cas, RequireClient: true})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	defer l.Close()
	bad, good := strangers.Client("bed-7").TLS(), clients.Client("bed-7").TLS()
	for _, tt := range []struct {
		name  string
		cert  *tls.Certificate
		trust *certtest.CA
		want  bool
	}{
		{"none", &tls.Certificate{}, ca, true},
		{"of an unknown CA", &bad, ca, true},
		{"a good one", &good, ca, false},
		{"the client rejects the server", &good, strangers, false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			cfg := trust(tt.trust)
			cfg.ServerName, cfg.MaxVersion = "localhost", version
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.cert, nil }
			var client sync.WaitGroup
			client.Go(func() {
				conn, err := tls.Dial("tcp", l.Addr().String(), cfg)
				if err == nil {
					_, _ = conn.Read(make([]byte, 1)) // the server's alert, in TLS 1.3
					conn.Close()
				}
			})
			near, err := l.Accept()
			try(t, err)
			try(t, near.SetDeadline(time.Now().Add(time.Minute)))
			server := tls.Server(near, f.TLSConfig())
			err = server.Handshake()
			near.Close()
			client.Wait()
			if got := tlsfiles.IsClientRefused(err); got != tt.want {
				t.Errorf("%s, version %x: %v of %v, want %v", tt.name, version, got, err, tt.want)
			}
			// A finished handshake returns the same result again.
			if again := server.Handshake(); (again == nil) != (err == nil) || tlsfiles.IsClientRefused(again) != tt.want {
				t.Errorf("%s, version %x: second call %v, first call %v", tt.name, version, again, err)
			}
		}
	}
}
