package sim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// ErrRemote means that a target may be another machine, which was not allowed.
var ErrRemote = errors.New(
	"the target is not this machine; a simulated fleet is a heavy load, and its readings stay in the store. Use " +
		"--allow-remote to do it anyway")

// ErrTarget is wrapped by errors about the form of a target.
var ErrTarget = errors.New("the target must have the form http://host:port")

// ErrListener is wrapped by errors about the form of a listener of another protocol than HTTP.
var ErrListener = errors.New("the listener must have the form")

// A Target is a server to load.
type Target struct {
	url   string // without a trailing slash
	host  string // for the Host field
	name  string // expected in the certificate
	path  string // path prefix before /v1
	tls   bool
	alpn  []string
	user  string            // user name for MQTT; "" means none with a token or certificate, otherwise the gateways' names
	roots *x509.CertPool    // nil means the system's roots
	certs []tls.Certificate // client certificates
	addrs []netip.AddrPort  // never empty
}

// ResolveTarget resolves the addresses of a target. Unless remote is true, all of them
// must be loopback addresses. Connections go only to these addresses, so that a name
// cannot refer to another machine later.
func ResolveTarget(ctx context.Context, target string, remote bool) (*Target, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, ErrTarget // the target is not quoted: it may hold a password
	}
	t := &Target{
		url:  strings.TrimRight(target, "/"),
		host: u.Host,
		name: u.Hostname(),
		path: strings.TrimRight(u.EscapedPath(), "/"),
		tls:  u.Scheme == "https",
		alpn: []string{"http/1.1"},
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme // a service name, which the resolver accepts
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, ErrTarget
	}
	return t.resolve(ctx, u.Hostname(), uint16(n), remote)
}

// ResolveListener is ResolveTarget for a listener of protocol, mqtt or mllp, which is the scheme of its URL, or
// with TLS mqtts or mllps. A user name in a URL of MQTT is that of all gateways. By default, only gateways without a
// token and without a certificate have user names: a server takes the gateway from those.
func ResolveListener(ctx context.Context, protocol, target string, remote bool) (*Target, error) {
	// The target is not quoted: it may hold a password.
	bad := fmt.Errorf("%w %[2]s://host:port or %[2]ss://host:port", ErrListener, protocol)
	u, err := url.Parse(target)
	if err != nil || u.Scheme != protocol && u.Scheme != protocol+"s" || u.Hostname() == "" || u.RequestURI() != "/" ||
		u.Fragment != "" {
		return nil, bad
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if _, secret := u.User.Password(); secret || u.User != nil && protocol != "mqtt" || err != nil {
		return nil, bad
	}
	t := &Target{url: target, name: u.Hostname(), tls: u.Scheme != protocol, user: u.User.Username()}
	return t.resolve(ctx, u.Hostname(), uint16(port), remote)
}

// resolve sets the addresses of t, and returns it.
func (t *Target) resolve(ctx context.Context, name string, port uint16, remote bool) (*Target, error) {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, fmt.Errorf("resolve target: %w", err)
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); !remote && !ip.IsLoopback() {
			return nil, ErrRemote
		}
		t.addrs = append(t.addrs, netip.AddrPortFrom(ip, port))
	}
	return t, nil
}

// WithTLS sets the root CAs for the target's certificate, nil for the system's, and the
// client certificates. It returns t.
func (t *Target) WithTLS(roots *x509.CertPool, certs []tls.Certificate) *Target {
	t.roots, t.certs = roots, certs
	return t
}

// String returns the target's URL.
func (t *Target) String() string { return t.url }

// Remote reports whether t may be another machine.
func (t *Target) Remote() bool {
	return slices.ContainsFunc(t.addrs, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() })
}

// TLS reports whether connections to t use TLS.
func (t *Target) TLS() bool { return t.tls }

// dial connects to the target, with TLS for an https or mqtts URL.
func (t *Target) dial(ctx context.Context) (net.Conn, error) {
	conn, err := t.dialContext(ctx, "", "")
	if err != nil || !t.tls {
		return conn, err
	}
	secure := tls.Client(conn, t.tlsConfig())
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// dialContext connects to one of the target's resolved addresses. It ignores its
// network and address parameters.
func (t *Target) dialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	var errs error
	for _, addr := range t.addrs {
		conn, err := d.DialContext(ctx, "tcp", addr.String())
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// tlsConfig returns the TLS configuration for the target.
func (t *Target) tlsConfig() *tls.Config {
	return &tls.Config{ServerName: t.name, RootCAs: t.roots, Certificates: t.certs, MinVersion: tls.VersionTLS12,
		NextProtos: t.alpn}
}

// head returns the header of a POST of readings up to the value of Content-Length.
func (t *Target) head(token string, gzip, influx bool, mapped string) []byte {
	path, mediaType, scheme := "/v1/readings", "application/json", "Bearer"
	if mapped != "" {
		path = "/v1/mapped/" + mapped
	}
	if influx {
		path, mediaType, scheme = "/api/v2/write?precision=ns", "text/plain; charset=utf-8", "Token"
	}
	head := "POST " + t.path + path + " HTTP/1.1\r\nHost: " + t.host + "\r\nContent-Type: " + mediaType + "\r\n"
	if token != "" {
		head += "Authorization: " + scheme + " " + token + "\r\n"
	}
	if gzip {
		head += "Content-Encoding: gzip\r\n"
	}
	return []byte(head + "Content-Length: ")
}
