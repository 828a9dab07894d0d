//go:build !race

package tlsfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
)

func TestGatewayAllocs(t *testing.T) {
	ca := newAuthority(t, "ca")
	pair := ca.client(t, "", "https://example.org/x", "pulsegate:gateway:bed-7")
	cs := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}, VerifiedChains: [][]*x509.Certificate{{pair.Leaf, ca.cert}}}
	p := newPlace(t)
	p.write(t, ca.sign(t, 1, nil))
	write(t, p.cas, ca.pem)
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
