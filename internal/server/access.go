package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// AccessOptions say who gets in.
type AccessOptions struct {
	Tokens string  `type:"path" placeholder:"FILE" help:"Token file, as 'pulsegate token' makes it. Who writes or reads then needs a token. Changes take effect within a second, and at SIGHUP."`
	Audit  *string `placeholder:"FILE" help:"Audit log: changes of tokens, exports, erasures, backups, refused credentials. Default: ${default_audit} where there are tokens or client certificates, otherwise none. Empty: none."`

	TLSCert          string `name:"tls-cert" type:"path" placeholder:"FILE" help:"Certificate of the public listener in PEM, followed by those between it and its CA. It is read again when it changes. With TLS there is no fast lane."`
	TLSKey           string `name:"tls-key" type:"path" placeholder:"FILE" help:"Key of the certificate in PEM."`
	TLSClientCA      string `name:"tls-client-ca" type:"path" placeholder:"FILE" help:"CAs in PEM whose client certificates let gateways write under the name that they bear."`
	TLSRequireClient bool   `name:"tls-require-client" help:"Take no connection without a client certificate."`

	TokenRate  int `placeholder:"N" help:"Readings a second in the long run of each token without a rate of its own. Default: no limit."`
	TokenBurst int `placeholder:"N" help:"Readings at once after a silence of each token without a rate of its own. Default: those of a minute."`
}

// DefaultAudit is where the server and 'pulsegate token' record, unless told
// otherwise.
const DefaultAudit = "pulsegate-audit.log"

// open reports whether anybody may write and read.
func (f *AccessOptions) open() bool { return f.Tokens == "" && f.TLSClientCA == "" }

// check refuses flags that do not go together.
func (f *AccessOptions) check() error {
	switch {
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return UsageError{"--tls-cert and --tls-key come together"}
	case f.TLSClientCA != "" && f.TLSCert == "":
		return UsageError{"--tls-client-ca needs --tls-cert and --tls-key"}
	case f.TLSRequireClient && f.TLSClientCA == "":
		return UsageError{"--tls-require-client needs --tls-client-ca"}
	case (f.TokenRate != 0 || f.TokenBurst != 0) && f.Tokens == "":
		return UsageError{"--token-rate and --token-burst need --tokens"}
	case f.TokenRate < 0 || f.TokenRate > token.MaxPerSecond:
		return UsageError{fmt.Sprintf("--token-rate is not from 1 to %d", token.MaxPerSecond)}
	case f.TokenBurst < 0 || f.TokenBurst > token.MaxBurst || f.TokenBurst > 0 && f.TokenRate == 0:
		return UsageError{fmt.Sprintf("--token-burst is not from 1 to %d, beside a --token-rate", token.MaxBurst)}
	}
	if token.IsText(f.Tokens) {
		return UsageError{"--tokens is to name a file, and was given the text of a token"}
	}
	return nil
}

// auditPath returns the path of the audit log; empty: none.
func (f *AccessOptions) auditPath() string {
	switch {
	case f.Audit != nil:
		return *f.Audit
	case f.open():
		return ""
	}
	return DefaultAudit
}

// An access is what decides who gets in, and follows its files while the server
// runs.
type access struct {
	gate *gate.Gate
	tls  *tlsfiles.Files // nil: no TLS
	log  *slog.Logger
}

// recordTimeout bounds the wait for other processes that write to the audit log.
const recordTimeout = 10 * time.Second

// openAccess opens the files that the flags name. The caller must close what it
// returns.
func openAccess(f *AccessOptions, log *slog.Logger) (_ *access, err error) {
	a := &access{gate: &gate.Gate{Certificates: f.TLSClientCA != ""}, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if path := f.auditPath(); path != "" {
		ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
		defer cancel()
		a.gate.Audit, err = audit.Open(ctx, path, audit.Options{
			Failed: func(err error) { log.Error("refused credentials cannot be recorded", "error", err) },
		})
		if err != nil {
			return nil, err
		}
	}
	if f.Tokens != "" {
		a.gate.Tokens, err = token.Open(f.Tokens, token.Options{
			DefaultLimit: token.LimitOf(f.TokenRate, f.TokenBurst),
			Changed:      a.tokensChanged,
		})
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w; 'pulsegate token create --file %s' makes it", err, f.Tokens)
		}
		if err != nil {
			return nil, err
		}
	}
	if f.TLSCert != "" {
		a.tls, err = tlsfiles.Open(tlsfiles.Config{
			CertFile: f.TLSCert, KeyFile: f.TLSKey, ClientCAFile: f.TLSClientCA, RequireClient: f.TLSRequireClient,
			Changed: a.certificatesChanged,
		})
		if err != nil {
			return nil, err
		}
		a.gate.Trusted = a.tls.Trusts
	}
	return a, nil
}

// close stops following the files and closes the audit log. No request may be
// under way.
func (a *access) close() error {
	if a.gate.Tokens != nil {
		a.gate.Tokens.Close()
	}
	if a.tls != nil {
		a.tls.Close()
	}
	if a.gate.Audit == nil {
		return nil
	}
	if err := a.gate.Audit.Close(); err != nil {
		return fmt.Errorf("close audit log: %w", err)
	}
	return nil
}

// reload reads the files again. What cannot be used changes nothing.
func (a *access) reload() error {
	var tokens, certificates error
	if a.gate.Tokens != nil {
		tokens = a.gate.Tokens.Reload()
	}
	if a.tls != nil {
		certificates = a.tls.Reload()
	}
	return errors.Join(tokens, certificates)
}

// record writes to the audit log, if there is one.
func (a *access) record(r audit.Record) error {
	if a.gate.Audit == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	return a.gate.Audit.Append(ctx, r)
}

// started records that the server is about to serve, and says what protects it.
func (a *access) started(publicAddr, adminAddr string) error {
	if a.gate.Tokens != nil {
		a.log.Info("tokens loaded", "tokens", a.gate.Tokens.Len())
		if a.tls == nil {
			a.warnClear("public", publicAddr)
		}
		a.warnClear("admin", adminAddr)
	}
	if a.tls != nil {
		a.log.Info("certificates loaded", "expire", a.tls.NotAfter().UTC().Format(time.RFC3339), "client_certificates", a.gate.Certificates)
	}
	return a.record(audit.Record{Event: audit.ServerStarted, Actor: audit.Actor()})
}

// tokensChanged is told of reloads of the token file.
func (a *access) tokensChanged(c token.Change) {
	r := audit.Record{Event: audit.TokensLoaded, Count: int64(c.Tokens)}
	if c.Err != nil {
		r.Event = audit.TokensRefused
		a.log.Error("the token file cannot be used; the tokens that it held before stay in force", "tokens", c.Tokens, "error", c.Err)
	} else {
		a.log.Info("tokens loaded", "tokens", c.Tokens, "added", len(c.Added), "removed", len(c.Removed))
	}
	if err := a.record(r); err != nil {
		a.log.Error("a change of tokens cannot be recorded", "error", err)
	}
}

// certificatesChanged is told of reloads of the certificates.
func (a *access) certificatesChanged(err error) {
	if err != nil {
		a.log.Error("the certificates cannot be used; those that were read before stay in use", "error", err)
		return
	}
	a.log.Info("certificates loaded")
}

// endOutlived closes connections that have outlived their client's certificate behind
// an answer. A client that keeps its connection would be refused there for ever, and
// shows its new certificate on the next.
func (a *access) endOutlived(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.gate.Outlived(r.TLS, time.Now()) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// warnClear says aloud that tokens travel in clear text to an address, if others
// can reach it.
func (a *access) warnClear(listener, addr string) {
	if host, _, err := net.SplitHostPort(addr); err == nil && !IsLoopback(host) {
		a.log.Warn("tokens and readings travel in clear text to this address: whoever listens on the way has them", "listener", listener, "addr", addr)
	}
}

// A handshakeLog passes on what net/http logs, and notes the client certificates
// that did not stand the handshake: they never get to a handler.
type handshakeLog struct {
	gate *gate.Gate
	next io.Writer
}

// httpErrors returns a log for net/http that writes to next.
func (a *access) httpErrors(next *log.Logger) *log.Logger {
	if !a.gate.Certificates {
		return next
	}
	return log.New(&handshakeLog{a.gate, next.Writer()}, "", 0)
}

// What net/http and crypto/tls say of such a handshake. TestTLS holds them to it.
const (
	handshakeError   = "http: TLS handshake error from "
	certificateWrong = "tls: failed to verify certificate"
	certificateNone  = "tls: client didn't provide a certificate"
)

func (l *handshakeLog) Write(line []byte) (int, error) {
	peer, text, _ := strings.Cut(strings.TrimPrefix(string(line), handshakeError), ": ")
	if strings.HasPrefix(text, certificateWrong) || strings.HasPrefix(text, certificateNone) {
		l.gate.BadCertificate(peerAt(peer))
	}
	return l.next.Write(line)
}

// A peerAt is an address with a port, as text.
type peerAt string

// PeerAddr returns the address, or the zero Addr if there is none.
func (p peerAt) PeerAddr() netip.Addr {
	addr, err := netip.ParseAddrPort(string(p))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr()
}
