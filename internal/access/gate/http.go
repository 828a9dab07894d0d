package gate

import (
	"net/http"
	"net/netip"
)

// VisitorOf returns who sent r. It does not allocate.
func VisitorOf(r *http.Request) Visitor {
	v := Visitor{TLS: r.TLS, Peer: PeerOf(r)}
	switch values := r.Header["Authorization"]; len(values) {
	case 0:
	case 1:
		v.Authorization = values[0]
	default:
		v.Several = true
	}
	return v
}

// PeerOf returns where r came from.
func PeerOf(r *http.Request) Peer { return (*remote)(r) }

// A remote is a request as a Peer. A pointer of another type takes no memory.
type remote http.Request

func (r *remote) PeerAddr() netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr()
}
