package server

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Without tokens, a page's Origin must be the scheme, host and port of the request, as the client
// of a trusted proxy names them, or one of --cors-origin. Mutants: the scheme is not compared; the
// header of every peer counts; a default port differs from none.
func TestOrigin(t *testing.T) {
	const proxy, stranger = "10.0.0.1:1", "192.0.2.7:1"
	const proto = "X-Forwarded-Proto"
	proxies := &share.Holders{Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	origins, err := newOrigins([]string{"https://ward.example"})
	try(t, err)
	public := (&Options{Addr: "127.0.0.1:8080",
		PublicURL: []string{"http://ward.test/page", "https://Vitals.example:8443/"}}).publicHosts(origins)
	admin := &hosts{names: []string{"127.0.0.1"}}
	for _, tt := range []struct {
		hosts                           *hosts
		peer, host, name, value, scheme string // of the request, with a header field
		origin                          string
		want                            bool
	}{
		{public, stranger, "vitals.example", "", "", "http", "http://vitals.example", true},
		{public, stranger, "vitals.example:80", "", "", "http", "http://vitals.example", true},
		{public, stranger, "vitals.example", "", "", "http", "http://vitals.example:80", true},
		{public, stranger, "Vitals.example:8080", "", "", "http", "http://vitals.example:8080", true},
		{public, stranger, "[::1]:80", "", "", "http", "http://[::1]", true},
		{public, stranger, "[::1]:8080", "", "", "http", "http://[::1]:8080", true},
		{public, stranger, "vitals.example", "", "", "http", "", true},
		{public, stranger, "vitals.example", "", "", "http", "https://ward.example", true},
		{public, stranger, "vitals.example", "", "", "http", "http://ward.example", false},
		{public, stranger, "vitals.example", "", "", "http", "https://vitals.example", false},
		{public, stranger, "vitals.example:443", "", "", "http", "https://vitals.example", false},
		{public, stranger, "vitals.example", "", "", "http", "http://vitals.example:8080", false},
		{public, stranger, "vitals.example:8080", "", "", "http", "http://vitals.example", false},
		{public, stranger, "vitals.example:443", "", "", "http", "http://vitals.example", false},
		{public, stranger, "vitals.example", "", "", "http", "http://localhost", false},
		{public, stranger, "localhost", "", "", "http", "http://127.0.0.1", false},
		{public, stranger, "vitals.example", "", "", "http", "null", false},
		{public, stranger, "vitals.example", "", "", "http", "vitals.example", false},
		{public, stranger, "vitals.example", "", "", "http", "http://vitals.example/", false},
		{public, stranger, "", "", "", "http", "http://", false},
		{public, stranger, "vitals.example", "", "", "https", "https://vitals.example", true},
		{public, stranger, "vitals.example:8443", "", "", "https", "https://vitals.example:8443", true},
		{public, stranger, "vitals.example", "", "", "https", "https://vitals.example:443", true},
		{public, stranger, "vitals.example", "", "", "https", "http://vitals.example", false},
		{public, proxy, "vitals.example", proto, "https", "http", "https://vitals.example", true},
		{public, proxy, "vitals.example:443", proto, "HTTPS", "http", "https://vitals.example", true},
		{public, proxy, "vitals.example", proto, "https, http", "http", "https://vitals.example", true},
		{public, proxy, "vitals.example", "Forwarded", `for=192.0.2.1;Proto="https";host=x, for=10.0.0.2;proto=http`, "http",
			"https://vitals.example", true},
		{public, proxy, "vitals.example", proto, "https", "http", "http://vitals.example", false},
		{public, proxy, "vitals.example", proto, "http", "https", "http://vitals.example", true},
		{public, proxy, "vitals.example", proto, "http", "http", "https://vitals.example", false},
		{public, proxy, "vitals.example", "", "", "http", "https://vitals.example", false},
		{public, proxy, "vitals.example", "", "", "http", "http://vitals.example", true},
		{public, proxy, "vitals.example", proto, "ftp", "http", "ftp://vitals.example", false},
		{public, stranger, "vitals.example", proto, "https", "http", "https://vitals.example", false},
		{public, stranger, "vitals.example", proto, "https", "http", "http://vitals.example", true},
		{admin, stranger, "localhost:6060", "", "", "http", "http://localhost:6060", true},
		{admin, stranger, "localhost:6060", "", "", "http", "https://localhost:6060", false},
		{admin, stranger, "localhost:6060", "", "", "http", "http://localhost:3000", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/readings", nil)
		r.RemoteAddr, r.Host = tt.peer, tt.host
		if tt.scheme == "https" {
			r.TLS = &tls.ConnectionState{}
		}
		for name, value := range map[string]string{tt.name: tt.value, "Origin": tt.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		served := false
		h := tt.hosts.only(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), problem.New())
		forwarded(proxies, h).ServeHTTP(httptest.NewRecorder(), r)
		if served != tt.want {
			t.Errorf("%s://%s from %s with %s %q, Origin %q: served: %v, want %v", tt.scheme, tt.host, tt.peer, tt.name,
				tt.value, tt.origin, served, tt.want)
		}
	}
}
