package tlsfiles

import (
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of a client's certificate. [Gateway] returns all but ErrUntrusted, which is for
// who asks [Files.Trusts].
var (
	ErrNoCertificate = errors.New("tlsfiles: the client showed no certificate that was verified")
	ErrExpired       = errors.New("tlsfiles: the client's certificate has expired since the handshake")
	ErrUntrusted     = errors.New("tlsfiles: the CA of the client's certificate is not in use any more")
	ErrNoName        = errors.New("tlsfiles: the client's certificate does not name one gateway")
)

// A URI that names a gateway is pulsegate:gateway:NAME.
const (
	uriScheme = "pulsegate"
	uriPrefix = "gateway:"
)

// Gateway returns the gateway that the client's verified certificate names; see
// the package comment. It does not allocate, so it may be asked for each request;
// now counts, because a connection may live longer than its certificate.
func Gateway(cs *tls.ConnectionState, now time.Time) (vitals.Name, error) {
	if cs == nil || len(cs.VerifiedChains) == 0 || len(cs.PeerCertificates) == 0 {
		return vitals.Name{}, ErrNoCertificate
	}
	leaf := cs.PeerCertificates[0]
	if now.After(leaf.NotAfter) {
		return vitals.Name{}, ErrExpired
	}
	text, found := leaf.Subject.CommonName, false
	for _, uri := range leaf.URIs {
		name, ok := strings.CutPrefix(uri.Opaque, uriPrefix)
		switch {
		case uri.Scheme != uriScheme:
			continue
		case !ok || found || uri.RawQuery != "" || uri.ForceQuery || uri.Fragment != "":
			return vitals.Name{}, ErrNoName
		}
		text, found = name, true
	}
	name, err := vitals.ParseName(text)
	if err != nil {
		return vitals.Name{}, ErrNoName
	}
	return name, nil
}
