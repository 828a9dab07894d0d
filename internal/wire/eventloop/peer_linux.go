package eventloop

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// PeerAddr returns the address of the peer, or the zero Addr if the connection is closed.
func (c *Conn) PeerAddr() netip.Addr {
	if c.Gone() {
		return netip.Addr{}
	}
	peer, err := unix.Getpeername(c.fd)
	if err != nil {
		return netip.Addr{}
	}
	return addrOf(peer)
}

// addrOf returns the address of a peer, or the zero Addr.
func addrOf(peer unix.Sockaddr) netip.Addr {
	switch peer := peer.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(peer.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(peer.Addr).Unmap()
	}
	return netip.Addr{}
}
