package tlsfiles

import (
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors for client certificates. [Gateway] returns all but ErrUntrusted, which is for
// callers of [Files.Trusts].
var (
	ErrNoCertificate = errors.New("the client presented no verified certificate")
	ErrExpired       = errors.New("the client's certificate has expired since the handshake")
	ErrUntrusted     = errors.New("the CA of the client's certificate was removed")
	ErrNoName        = errors.New("the client's certificate does not name exactly one gateway")
)

// A URI that names a gateway is pulsegate:gateway:NAME.
const (
	uriScheme = "pulsegate"
	uriPrefix = "gateway:"
)

// Gateway returns the gateway named in the client's verified certificate; see the
// package comment. It compares the expiry with now, because a connection may outlive
// its certificate. It does not allocate, so it may be called for each request.
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
