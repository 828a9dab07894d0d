package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
)

// hosts decides for which hosts a listener answers if it has no other access control.
//
// A page in a browser on this machine reaches loopback like any program, and one in a browser
// on this network reaches whatever listens there. The owner of a name can point it at such an
// address at any time (DNS rebinding), and the browser then takes the listener for the page's
// own site. But the browser sends that name in Host. No name can be pointed anywhere whose
// spelling is that of an address.
type hosts struct {
	names   []string // allowed besides loopback names and addresses
	anyName bool     // every host is allowed
	anyAddr bool     // every IP address is allowed
	origins *origins // of pages that may read, besides those of the server itself

	last atomic.Pointer[string] // the allowed Host that usual has seen last
}

// publicHosts returns the hosts for the public listener; nil for all, with access control.
// With TLS the browser verifies the name.
func (c *Options) publicHosts(allowed *origins) *hosts {
	if !c.AccessOptions.open() {
		return nil
	}
	names := []string{hostOf(c.Addr)}
	for _, text := range c.PublicURL {
		names = append(names, webURL(text).Hostname()) // checkURLs has parsed it
	}
	return &hosts{
		names: names, anyName: c.TLSCert != "", anyAddr: true, origins: allowed,
	}
}

// checkURLs rejects public URLs to which no path can be appended.
func (c *Options) checkURLs() error {
	for _, text := range c.PublicURL {
		if u := webURL(text); u == nil || u.String() != text || u.Hostname() == "" {
			return settings.Usagef("--public-url: %q is not a URL such as https://vitals.example/", text)
		}
	}
	return nil
}

// publicURL returns the URL of the public listener in links, with a slash at its end, or "" if no option names one.
func (c *Options) publicURL() string {
	if len(c.PublicURL) == 0 {
		return ""
	}
	return strings.TrimRight(c.PublicURL[0], "/") + "/"
}

// page returns the URL at which people sign in, or "" if they do not.
func (c *Options) page() string {
	if c.OIDCIssuer == "" {
		return ""
	}
	return c.publicURL()
}

// webURL parses a URL with the scheme http or https and without a user, a query and a fragment. It returns nil for any
// other.
func webURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.ForceQuery || u.Fragment != "" {
		return nil
	}
	return u
}

// hostOf returns the host of an address with or without a port, without brackets.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return strings.Trim(addr, "[]")
}

// has reports whether a host, with or without a port, is allowed. An empty one is,
// because browsers never send it.
func (h *hosts) has(host string) bool {
	if host == "" || h.anyName || isLoopback(host) {
		return true
	}
	host = hostOf(host)
	if _, err := netip.ParseAddr(host); err == nil && h.anyAddr {
		return true
	}
	return slices.ContainsFunc(h.names, func(name string) bool { return name != "" && strings.EqualFold(name, host) })
}

// usual reports whether a Host field is allowed, for the fast lane. It allocates only if the
// field differs from the last one.
func (h *hosts) usual(field []byte) bool {
	if last := h.last.Load(); last != nil && string(field) == *last {
		return true
	}
	host := string(field)
	if !h.has(host) {
		return false
	}
	h.last.Store(&host)
	return true
}

// allow reports whether the request's Host is allowed and, if a browser sent an Origin,
// that one too.
func (h *hosts) allow(r *http.Request) bool { return h.has(r.Host) && ownPage(r, h.origins) }

// ownPage reports whether a request was not made by a page of a browser, or by one of this server's
// own origin, or of others that are allowed.
func ownPage(r *http.Request, others *origins) bool {
	return !slices.ContainsFunc(r.Header["Origin"], func(origin string) bool {
		return !gate.OwnOrigin(r, origin) && !others.has(origin)
	})
}

// only answers requests for other hosts with 403. A nil hosts allows all.
func (h *hosts) only(next http.Handler, problems *problem.Set) http.Handler {
	if h == nil {
		return next
	}
	detail :=
		"Host must name loopback or the address that this server listens on, and Origin the scheme, host and port of " +
			"the request."
	if h.anyAddr {
		detail = "A server without tokens answers under localhost, IP addresses and the hosts of --public-url, and for " +
			"pages of the same scheme, host and port or of --cors-origin."
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allow(r) {
			problems.UntrustedOrigin.Write(w, r, detail)
			return
		}
		next.ServeHTTP(w, r)
	})
}
