package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// For a request of a trusted proxy, the last address that is not a trusted proxy's
// counts. The header of any other peer is ignored.
//
// Seen to fail when the first address is used, and when the peer is not checked.
func TestForwarded(t *testing.T) {
	proxies := &share.Holders{Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}}
	for _, tt := range []struct{ peer, name, value, want string }{
		{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.1", "192.0.2.1:0"},
		{"[::ffff:10.0.0.1]:1", "X-Forwarded-For", "192.0.2.1", "192.0.2.1:0"},
		{"10.0.0.1:1", "X-Forwarded-For", "198.51.100.9, 192.0.2.1, 10.1.1.1", "192.0.2.1:0"},
		{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.1:5555", "192.0.2.1:0"},
		{"10.0.0.1:1", "X-Forwarded-For", "10.1.1.1", "10.0.0.1:1"},
		{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.1, unknown", "10.0.0.1:1"},
		{"10.0.0.1:1", "X-Forwarded-For", "", "10.0.0.1:1"},
		{"10.0.0.1:1", "Forwarded", `for=198.51.100.9, proto=http;For="[2001:db8::1]:4711"`, "[2001:db8::1]:0"},
		{"10.0.0.1:1", "Forwarded", "by=10.0.0.1", "10.0.0.1:1"},
		{"192.0.2.7:1", "X-Forwarded-For", "192.0.2.1", "192.0.2.7:1"},
		{"pipe", "X-Forwarded-For", "192.0.2.1", "pipe"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.peer
		r.Header.Set(tt.name, tt.value)
		got := ""
		forwarded(proxies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr })).
			ServeHTTP(httptest.NewRecorder(), r)
		if got != tt.want {
			t.Errorf("%s from %s with %q: %s, want %s", tt.name, tt.peer, tt.value, got, tt.want)
		}
	}
}
