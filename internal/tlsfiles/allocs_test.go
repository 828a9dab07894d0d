//go:build !race

package tlsfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/tlsfiles"
)

func TestGatewayAllocs(t *testing.T) {
	ca := newAuthority(t, "ca")
	pair := ca.client(t, "", "https://example.org/x", "pulsegate:gateway:bed-7")
	cs := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}, VerifiedChains: [][]*x509.Certificate{{pair.Leaf, ca.cert}}}
	now := time.Now()
	got := testing.AllocsPerRun(1000, func() {
		if _, err := tlsfiles.Gateway(cs, now); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}
