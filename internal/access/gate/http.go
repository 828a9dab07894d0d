package gate

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

// CredentialsOf returns the credentials in r. It does not allocate, unless r has a cookie.
func CredentialsOf(r *http.Request) Credentials {
	v := Credentials{TLS: r.TLS, Peer: PeerOf(r)}
	switch values := r.Header["Authorization"]; len(values) {
	case 0:
		v.Cookies = cookies(r)
	case 1:
		v.Authorization = values[0]
	default:
		v.Several = true
	}
	return v
}

// OwnPage reports whether a request was made by a page of the origin that the request names, or by no page. Fetch
// metadata decides if the browser has sent it, and otherwise Origin.
func OwnPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin" || site == "none"
	}
	for _, origin := range r.Header["Origin"] {
		if !OwnOrigin(r, origin) {
			return false
		}
	}
	return true
}

// OwnOrigin reports whether an origin has the scheme, host and port of a request.
func OwnOrigin(r *http.Request, origin string) bool {
	scheme, host, ok := strings.Cut(origin, "://")
	return ok && host != "" && originOf(scheme, host) == originOf(schemeOf(r), r.Host)
}

// originOf returns the normal form of an origin, which has no default port.
func originOf(scheme, host string) string {
	defaultPort := map[string]string{"http": ":80", "https": ":443"}[scheme]
	return scheme + "://" + strings.ToLower(strings.TrimSuffix(host, defaultPort))
}

// schemeKey is the context key for the scheme that the client of a trusted proxy uses.
type schemeKey struct{}

// WithScheme returns a context of a request whose client uses a scheme up to a trusted proxy.
func WithScheme(ctx context.Context, scheme string) context.Context {
	return context.WithValue(ctx, schemeKey{}, scheme)
}

// schemeOf returns the scheme that the client of a request uses, if only up to a trusted proxy.
func schemeOf(r *http.Request) string {
	if scheme, ok := r.Context().Value(schemeKey{}).(string); ok {
		return scheme
	}
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// PeerOf returns the peer that sent r.
func PeerOf(r *http.Request) Peer { return (*remote)(r) }

// A remote is a request viewed as a Peer. Converting the pointer does not allocate.
type remote http.Request

func (r *remote) PeerAddr() netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr()
}
