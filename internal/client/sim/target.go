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
	"strings"
)

// ErrRemote means that a target can be another machine, and that this was not
// allowed.
var ErrRemote = errors.New("sim: the target is not this machine; a simulated fleet is a heavy load, and its readings stay in the store. Add --allow-remote if that is wanted")

// ErrTarget is wrapped by errors about the form of a target.
var ErrTarget = errors.New("sim: a target is of the form http://host:port")

// A Target is a server to load.
type Target struct {
	url   string // without a slash at its end
	host  string // for the Host field
	name  string // that the certificate is to bear
	path  string // before /v1
	tls   bool
	roots *x509.CertPool    // nil: the system's
	certs []tls.Certificate // to show to the server
	addrs []netip.AddrPort  // never empty
}

// ResolveTarget finds the addresses of a target. Unless remote is true, all of
// them must be loopback addresses. What was resolved here is what is connected
// to, so that a name cannot come to mean another machine later.
func ResolveTarget(ctx context.Context, target string, remote bool) (*Target, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w, not %q", ErrTarget, target)
	}
	t := &Target{
		url:  strings.TrimRight(target, "/"),
		host: u.Host,
		name: u.Hostname(),
		path: strings.TrimRight(u.EscapedPath(), "/"),
		tls:  u.Scheme == "https",
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme // a service name, as the resolver takes it
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, fmt.Errorf("%w, not %q", ErrTarget, target)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("find the target's address: %w", err)
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); !remote && !ip.IsLoopback() {
			return nil, ErrRemote
		}
		t.addrs = append(t.addrs, netip.AddrPortFrom(ip, uint16(n)))
	}
	return t, nil
}

// WithTLS says by which CAs the target's certificate is to be signed, nil for the
// system's, and which certificates to show to it. It returns t.
func (t *Target) WithTLS(roots *x509.CertPool, certs []tls.Certificate) *Target {
	t.roots, t.certs = roots, certs
	return t
}

// String returns the target's URL.
func (t *Target) String() string { return t.url }

// Remote reports whether t can be another machine.
func (t *Target) Remote() bool {
	return slices.ContainsFunc(t.addrs, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() })
}

// dial connects to the target, over TLS if its URL is one of https.
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

// dialContext connects to one of the target's addresses, whatever the name in
// the URL means by now.
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

// tlsConfig returns how to speak TLS with the target.
func (t *Target) tlsConfig() *tls.Config {
	return &tls.Config{ServerName: t.name, RootCAs: t.roots, Certificates: t.certs, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

// head returns the head of a POST of readings up to the value of its
// Content-Length.
func (t *Target) head(token string, gzip bool) []byte {
	head := "POST " + t.path + "/v1/readings HTTP/1.1\r\nHost: " + t.host + "\r\nContent-Type: application/json\r\n"
	if token != "" {
		head += "Authorization: Bearer " + token + "\r\n"
	}
	if gzip {
		head += "Content-Encoding: gzip\r\n"
	}
	return []byte(head + "Content-Length: ")
}
