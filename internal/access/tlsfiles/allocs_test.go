//go:build !race

package tlsfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/certtest"
)

func TestGatewayAllocs(t *testing.T) {
	ca := certtest.New("ca")
	pair := ca.Client("", "https://example.org/x", "pulsegate:gateway:bed-7").TLS()
	cs := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf},
		VerifiedChains: [][]*x509.Certificate{{pair.Leaf, ca.Cert}}}
	p := newPlace(t)
	p.write(t, ca.Server(1))
	write(t, p.cas, ca.PEM)
	f := open(t, tlsfiles.Options{CertFile: p.cert, KeyFile: p.key, ClientCAFile: p.cas})
	now := time.Now()
	got := testing.AllocsPerRun(1000, func() {
		if _, err := tlsfiles.Gateway(cs, now); err != nil {
			t.Fatal(err)
		}
		if !f.Trusts(cs) {
			t.Fatal("the CA in use is not trusted")
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
