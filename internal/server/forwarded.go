package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// forwarded sets the address and the scheme of a request from one of the exempt addresses, those
// of trusted proxies, to the ones of the proxy's client. What the header does not name, or names malformed, stays the
// proxy's.
func forwarded(proxies *share.Holders, next http.Handler) http.Handler {
	if len(proxies.Exempt) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && proxies.IsExempt(peer.Addr()) {
			if client := clientOf(r.Header, proxies); client.IsValid() {
				r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
			}
			if scheme := clientScheme(r.Header); scheme != "" {
				r = r.WithContext(gate.WithScheme(r.Context(), scheme))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// clientScheme returns the scheme that the first proxy has seen, by X-Forwarded-Proto or, if it is
// missing, Forwarded. "" means neither http nor https.
func clientScheme(h http.Header) string {
	first, _, _ := strings.Cut(h.Get("X-Forwarded-Proto"), ",")
	if first == "" {
		element, _, _ := strings.Cut(h.Get("Forwarded"), ",")
		first = forwardedParam(element, "proto")
	}
	switch scheme := strings.ToLower(strings.TrimSpace(first)); scheme {
	case "http", "https":
		return scheme
	}
	return ""
}

// clientOf returns the last address before the trusted proxies. The client may have made
// up the addresses before that one. The header is X-Forwarded-For or, if it is missing,
// Forwarded (RFC 7239). The zero Addr means none.
func clientOf(h http.Header, proxies *share.Holders) netip.Addr {
	hops, forwarded := h["X-Forwarded-For"], false
	if len(hops) == 0 {
		hops, forwarded = h["Forwarded"], true
	}
	list := strings.Split(strings.Join(hops, ","), ",")
	for i := len(list) - 1; i >= 0; i-- {
		hop := list[i]
		if forwarded {
			hop = forwardedParam(hop, "for")
		}
		addr := hopAddr(hop)
		if !addr.IsValid() || !proxies.IsExempt(addr) {
			return addr
		}
	}
	return netip.Addr{}
}

// forwardedParam returns the value of a parameter in one element of Forwarded.
func forwardedParam(element, wanted string) string {
	for pair := range strings.SplitSeq(element, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && strings.EqualFold(name, wanted) {
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
