package transfer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// Credentials identify a client, and name the CAs that it trusts.
type Credentials struct {
	Token string      // sent as a bearer token; "": none
	TLS   *tls.Config // for https; nil means the system's CAs, and no client certificate

	// Dial, if not nil, connects to the server. If nil, the client resolves the name in
	// the URL, or uses the proxy of the environment.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Exposed means that the token leaves this machine in clear text.
	Exposed bool

	reread func() (string, error) // of the token's file; nil without one
}

// CredentialFiles name the files with credentials. The struct tags define command-line
// flags for commands that embed it. There is no flag for the token itself, because every
// user of a machine can see command lines.
type CredentialFiles struct {
	TokenFile string `type:"path" placeholder:"FILE" help:"File that holds the token to send. Default: the token in the environment variable PULSEGATE_TOKEN."`
	CA        string `name:"ca" type:"path" placeholder:"FILE" help:"CA certificates in PEM that verify the server's certificate. Requires https. Default: those of the system."`
	Cert      string `name:"cert" type:"path" placeholder:"FILE" help:"Client certificate in PEM. Requires https."`
	Key       string `name:"key" type:"path" placeholder:"FILE" help:"Private key of the client certificate in PEM."`
}

// maxPEMFileBytes bounds a file of certificates.
const maxPEMFileBytes = 4 << 20

// Load reads the files for a server at target. token is used if TokenFile is empty.
func (f *CredentialFiles) Load(target, token string) (c Credentials, err error) {
	u, err := url.Parse(target)
	if err != nil {
		return c, settings.Usagef("--target is not of the form http://host:port%s", targetHint(target))
	}
	if c.Token, err = f.token(token); err != nil {
		return c, err
	}
	if f.TokenFile != "" {
		c.reread = func() (string, error) { return f.token("") }
	}
	if u.Scheme != "https" {
		if f.CA != "" || f.Cert != "" || f.Key != "" {
			return c, settings.Usagef("--ca, --cert and --key require a --target with https")
		}
		c.Exposed = c.Token != "" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback()
		return c, nil
	}
	c.TLS, err = f.TLSConfig()
	return c, err
}

// token returns the token to send, or "". Errors do not repeat text that may be a
// token.
func (f *CredentialFiles) token(text string) (string, error) {
	from := "environment variable PULSEGATE_TOKEN"
	if f.TokenFile != "" {
		var err error
		if text, err = sharedfile.Secret(f.TokenFile); err != nil {
			return "", fmt.Errorf("read token: %w", err)
		}
		from = f.TokenFile
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("read token: %s: it does not contain exactly one token", from)
	}
	return text, nil
}

// TLSConfig returns the TLS configuration for the server.
func (f *CredentialFiles) TLSConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := sharedfile.Read(f.CA, maxPEMFileBytes)
		if err != nil {
			return nil, fmt.Errorf("read CAs: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read CAs: %s: there is no certificate in PEM", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, settings.Usagef("--cert and --key must be given together")
	}
	if f.Cert != "" {
		cert, err := sharedfile.Read(f.Cert, maxPEMFileBytes)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		key, err := sharedfile.Read(f.Key, maxPEMFileBytes)
		if err != nil {
			return nil, fmt.Errorf("read key of client certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
