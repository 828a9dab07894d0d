package gate

import (
	"net/http"
	"net/netip"
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
