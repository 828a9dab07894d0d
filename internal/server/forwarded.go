package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// forwarded sets the address of a request from a trusted proxy to that of the proxy's
// client. If the header names none, or is malformed, the address stays the proxy's.
func (s *server) forwarded(next http.Handler) http.Handler {
	if len(s.holders.Exempt) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && s.holders.IsExempt(peer.Addr()) {
			if client := s.clientOf(r.Header); client.IsValid() {
				r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf returns the last address before the trusted proxies. The client may have made
// up the addresses before that one. The header is X-Forwarded-For or, if it is missing,
// Forwarded (RFC 7239). The zero Addr means none.
func (s *server) clientOf(h http.Header) netip.Addr {
	hops, forwarded := h["X-Forwarded-For"], false
	if len(hops) == 0 {
		hops, forwarded = h["Forwarded"], true
	}
	list := strings.Split(strings.Join(hops, ","), ",")
	for i := len(list) - 1; i >= 0; i-- {
		hop := list[i]
		if forwarded {
			hop = forOf(hop)
		}
		addr := hopAddr(hop)
		if !addr.IsValid() || !s.holders.IsExempt(addr) {
			return addr
		}
	}
	return netip.Addr{}
}

// forOf returns the value of the for parameter in one element of Forwarded.
func forOf(element string) string {
	for pair := range strings.SplitSeq(element, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// hopAddr parses an address, with or without a port.
func hopAddr(text string) netip.Addr {
	text = strings.TrimSpace(text)
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap()
}
