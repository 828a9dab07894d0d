package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/internal/sys/sharedfile"
)

// AccessOptions are the options that docs/tokens.md and SECURITY.md explain.
type AccessOptions struct {
	Tokens  string `group:"first" type:"path" placeholder:"FILE" help:"Token file of 'pulsegate token'. Writers and readers then need a token. A new token is in force at once, other changes within a second. Default: no tokens."`
	TLSCert string `name:"tls-cert" group:"first" type:"path" placeholder:"FILE" help:"Certificate chain of the public listener in PEM, the server's own first. It is reloaded when it changes. Default: no TLS."`
	TLSKey  string `name:"tls-key" group:"first" type:"path" placeholder:"FILE" help:"Private key of the certificate in PEM."`

	TLSClientCA      string `name:"tls-client-ca" group:"access" type:"path" placeholder:"FILE" help:"CA certificates in PEM. A client certificate that they verify lets a gateway write under the name in it. Default: none are requested."`
	TLSRequireClient bool   `name:"tls-require-client" group:"access" help:"Reject connections without a client certificate."`
	TokenRate        int    `group:"access" help:"Readings per second in the long run, for tokens without a rate of their own; 60 times as many are accepted at once after a pause. Default: unlimited."`

	MaxContradictions int `group:"access" default:"${max_contradictions}" help:"Readings per hour that may contradict those of another gateway, for each token or certificate without the read right. More are rejected without a comparison."`

	OIDCIssuer   string   `name:"oidc-issuer" group:"oidc" placeholder:"URL" help:"Issuer of an OpenID Connect provider whose JWTs are accepted as tokens, such as https://login.example/realms/house. It requires TLS, or --trusted-proxies, unless the server listens on loopback only. Default: none."`
	OIDCClientID []string `name:"oidc-client-id" group:"oidc" placeholder:"ID" help:"Client ID of this server at the provider, which a JWT must have among its audiences. After it, further clients whose JWTs are accepted, by the claims azp, client_id and appid."`
	AccessRules  string   `group:"oidc" type:"path" placeholder:"FILE" help:"TOML file that maps the claims of a JWT to rights, devices and subjects. It is reloaded when it changes."`
	OIDCSecret   string   `name:"oidc-client-secret-file" group:"oidc" type:"path" placeholder:"FILE" help:"File with the secret of the client at the provider, for sign-in on the page. Default: the client has none."`
	OIDCScopes   []string `name:"oidc-scopes" group:"oidc" placeholder:"SCOPE" help:"Scopes that sign-in on the page requests beside openid. Default: none."`

	Audit       *string `group:"audit" placeholder:"FILE" help:"Audit log of changes of tokens, exports, erasures, backups and rejected credentials; empty for none. What clients cause is in FILE.clients. Default: ${default_audit} with tokens, client certificates or an identity provider, otherwise none."`
	AuditKey    string  `group:"audit" type:"path" placeholder:"FILE" help:"Key of 'pulsegate audit key' that signs the audit log, in a different directory from the log. FILE.head beside it records the last signature. Default: not signed."`
	AuditSyslog string  `group:"audit" placeholder:"ADDR" help:"Syslog server that gets a copy of the audit log: unix:/dev/log, udp:host:514 or tcp:host:601. Default: none."`
}

// DefaultAudit is the default audit log of the server and of 'pulsegate token'.
const DefaultAudit = "pulsegate-audit.log"

// open reports whether there is no access control.
func (f *AccessOptions) open() bool { return !f.tokens() && f.TLSClientCA == "" }

// tokens reports whether there are tokens of either kind.
func (f *AccessOptions) tokens() bool { return f.Tokens != "" || f.OIDCIssuer != "" }

// check rejects options that contradict each other.
func (f *AccessOptions) check() error {
	return firstBroken(
		rule{(f.TLSCert == "") == (f.TLSKey == ""), "--tls-cert and --tls-key must be given together"},
		rule{f.TLSClientCA == "" || f.TLSCert != "", "--tls-client-ca requires --tls-cert and --tls-key"},
		rule{!f.TLSRequireClient || f.TLSClientCA != "", "--tls-require-client requires --tls-client-ca"},
		rule{f.TokenRate == 0 || f.tokens(), "--token-rate requires --tokens or --oidc-issuer"},
		rule{f.OIDCIssuer == "" || len(f.OIDCClientID) > 0 && f.AccessRules != "",
			"--oidc-issuer requires --oidc-client-id and --access-rules"},
		rule{!slices.Contains(f.OIDCClientID, ""), "--oidc-client-id has an empty name"},
		rule{f.OIDCIssuer != "" || len(f.OIDCClientID) == 0 && f.AccessRules == "",
			"--oidc-client-id and --access-rules require --oidc-issuer"},
		rule{f.TokenRate >= 0 && f.TokenRate <= token.MaxPerSecond,
			fmt.Sprintf("--token-rate is not from 1 to %d", token.MaxPerSecond)},
		rule{f.MaxContradictions > 0 && f.MaxContradictions <= token.MaxHourly,
			fmt.Sprintf("--max-contradictions is not from 1 to %d", token.MaxHourly)},
		rule{f.AuditKey == "" && f.AuditSyslog == "" || f.auditPath() != "",
			"--audit-key and --audit-syslog require an audit log; name it with --audit"},
		rule{f.AuditKey == "" || !sameDir(f.AuditKey, f.auditPath()),
			"--audit-key is in the directory of the audit log, where anybody who can change the log can use it"},
		rule{!token.IsText(f.Tokens), "--tokens requires the name of a file, not a token"},
	)
}

// sameDir reports whether two files are, or would be, in the same directory.
func sameDir(a, b string) bool {
	inA, errA := os.Stat(filepath.Dir(a))
	inB, errB := os.Stat(filepath.Dir(b))
	return errA == nil && errB == nil && os.SameFile(inA, inB)
}

// auditPath returns the path of the audit log, or "" for none.
func (f *AccessOptions) auditPath() string {
	switch {
	case f.Audit != nil:
		return *f.Audit
	case f.open():
		return ""
	}
	return DefaultAudit
}

// An access holds the server's access control. It follows changes of its files while the
// server runs.
type access struct {
	opt    *Options
	gate   *gate.Gate
	syslog *audit.Syslog   // nil means none
	tls    *tlsfiles.Files // nil means no TLS
	log    *slog.Logger
}

// recordTimeout bounds the wait for other processes that write to the audit log.
const recordTimeout = 10 * time.Second

// open opens the files that the options name. The caller must call a.close even after
// an error.
func (a *access) open() (err error) {
	f := &a.opt.AccessOptions
	a.gate.Certificates = f.TLSClientCA != ""
	a.gate.Hourly = token.Hourly{Contradictions: f.MaxContradictions, Reads: token.DefaultReads}
	if path := f.auditPath(); path != "" {
		if err := a.openAudit(path); err != nil {
			return err
		}
	}
	limits := token.Options{DefaultLimit: token.LimitOf(f.TokenRate, 0), Hourly: a.gate.Hourly, OnChange: a.tokensChanged}
	if f.Tokens != "" {
		a.gate.Tokens, err = token.Open(f.Tokens, limits)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w; 'pulsegate token create --file %s' creates it", err, f.Tokens)
		}
		if err != nil {
			return err
		}
	}
	if f.OIDCIssuer != "" {
		a.gate.OIDC, err = oidc.Open(oidc.Options{
			Issuer: f.OIDCIssuer, ClientID: f.OIDCClientID[0], Clients: f.OIDCClientID[1:], Rules: f.AccessRules,
			Limits: limits, OnRules: a.rulesChanged,
			OnProvider: a.logTrouble(
				"the keys of the OpenID Connect provider cannot be fetched; those that are known stay in use",
				"the keys of the OpenID Connect provider are fetched again"),
		})
		if err != nil {
			return err
		}
	}
	if page := a.opt.page(); page != "" {
		secret := "" // the client has none
		if f.OIDCSecret != "" {
			if secret, err = sharedfile.Secret(f.OIDCSecret); err != nil {
				return err
			}
		}
		a.gate.SignIns = signin.New(signin.Options{Provider: a.gate.OIDC, ClientID: f.OIDCClientID[0], Secret: secret,
			Scopes: f.OIDCScopes, Page: page})
	}
	if f.TLSCert != "" {
		a.tls, err = tlsfiles.Open(tlsfiles.Options{
			CertFile: f.TLSCert, KeyFile: f.TLSKey, ClientCAFile: f.TLSClientCA, RequireClient: f.TLSRequireClient,
			OnChange: func(err error) {
				if err != nil {
					a.log.Error("the certificates cannot be used; the previous ones stay in use", "error", err)
					return
				}
				a.certificatesLoaded()
			},
		})
		if err != nil {
			return err
		}
		a.gate.Trusted = a.tls.Trusts
	}
	return nil
}

// close stops following the files and closes the audit log. No request may be in progress.
func (a *access) close() error {
	if a.gate.Tokens != nil {
		a.gate.Tokens.Close()
	}
	if a.gate.SignIns != nil {
		a.gate.SignIns.Close()
	}
	if a.gate.OIDC != nil {
		a.gate.OIDC.Close()
	}
	if a.tls != nil {
		a.tls.Close()
	}
	var err error
	for _, log := range []*audit.Log{a.gate.Operators, a.gate.Audit} {
		if log != nil {
			if closeErr := log.Close(); closeErr != nil {
				err = errors.Join(err, fmt.Errorf("close audit log: %w", closeErr))
			}
		}
	}
	if a.syslog != nil {
		a.syslog.Close()
	}
	return err
}

// openAudit opens the audit log of operators, and beside it the log of what clients cause, so that no client can
// rotate the records of operators out.
func (a *access) openAudit(path string) (err error) {
	opt := audit.Options{OnTrouble: a.logTrouble(
		"the audit log cannot be written, or another process changed it; requests that must be recorded are rejected",
		"the audit log works again")}
	if file := a.opt.AuditKey; file != "" {
		if opt.Key, err = audit.LoadKey(file); err != nil {
			return err
		}
	}
	if target := a.opt.AuditSyslog; target != "" {
		host, _ := os.Hostname() // without a name it is left out
		if a.syslog, err = audit.NewSyslog(target, host, a.syslogTrouble); err != nil {
			return settings.Usagef("--audit-syslog: %v", err)
		}
		opt.OnLine = a.syslog.Send
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	if a.gate.Operators, err = audit.Open(ctx, path, opt); err != nil {
		return err
	}
	if opt.Key = opt.Key.ForClients(); a.syslog != nil {
		opt.OnLine = a.syslog.SendClients
	}
	a.gate.Audit, err = audit.Open(ctx, path+audit.ClientsSuffix, opt)
	return err
}

// logTrouble returns a function that is called with an error when something begins to fail, and with nil when it works
// again, and that logs what these texts say.
func (a *access) logTrouble(fails, works string) func(error) {
	return func(err error) {
		if err == nil {
			a.log.Info(works)
			return
		}
		a.log.Error(fails, "error", err)
	}
}

// syslogTrouble is called with an error when the syslog server becomes unreachable, and
// with nil when it is reachable again.
func (a *access) syslogTrouble(err error) {
	if err == nil {
		a.log.Info("the syslog server accepts the audit log again", "lost", a.syslog.Lost())
		return
	}
	a.log.Error("the syslog server does not accept the audit log; its lines are queued, and lost when the queue is full",
		"error", err)
}

// reload reads the files again. A file that is not valid changes nothing.
func (a *access) reload() error {
	var tokens, rules, certificates error
	if a.gate.Tokens != nil {
		tokens = a.gate.Tokens.Reload()
	}
	if a.gate.OIDC != nil {
		rules = a.gate.OIDC.Reload()
	}
	if a.tls != nil {
		certificates = a.tls.Reload()
	}
	return errors.Join(tokens, rules, certificates)
}

// record writes to the audit log of operators, if there is one.
func (a *access) record(r audit.Record) error { return appendTo(a.gate.Operators, r) }

func appendTo(log *audit.Log, records ...audit.Record) error {
	if log == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	return log.Append(ctx, records...)
}

// started records that the server starts. It is called before requests are served.
func (a *access) started() error {
	return a.record(audit.Record{Event: audit.ServerStarted, Actor: audit.Actor()})
}

// announce logs which access control protects the server.
func (a *access) announce() {
	c := a.opt
	if c.exposed(c.Addr) {
		a.log.Warn("INSECURE: any client that can connect to this address can write and read health data", "addr", c.Addr)
	}
	for _, addr := range frontAddrs(c) {
		if c.exposed(addr) {
			a.log.Warn("INSECURE: any client that can connect to this address can write health data", "addr", addr)
		}
	}
	if a.gate.OIDC != nil {
		a.log.Info("access rules loaded", "rules", a.gate.OIDC.Rules(), "issuer", a.gate.OIDC.Issuer())
	}
	if a.gate.Tokens != nil {
		a.log.Info("tokens loaded", "tokens", a.gate.Tokens.Len())
	}
	if c.tokens() {
		if a.tls == nil {
			a.warnCleartext(publicSocket, c.Addr)
			for _, in := range frontInputs() {
				if in.tokens {
					a.warnCleartext(in.socket, *in.addr(c))
				}
			}
		}
		a.warnCleartext(adminSocket, c.AdminAddr)
	}
	if a.tls != nil {
		a.certificatesLoaded()
	}
}

// certificatesLoaded logs when the certificates that were loaded expire.
func (a *access) certificatesLoaded() {
	a.log.Info("certificates loaded", "expire", a.tls.NotAfter().UTC().Format(time.RFC3339), "client_certificates",
		a.gate.Certificates)
	warnExpiry(a.log, "server", a.opt.TLSCert, a.tls.NotAfter())
	warnExpiry(a.log, "client_ca", a.opt.TLSClientCA, a.tls.CANotAfter())
}

// expiry returns when the certificates of further uses expire.
func (s *server) expiry() map[string]time.Time {
	all := map[string]time.Time{"alertmanager_ca": s.alerts.caExpires, "postgres_ca": {}, "postgres_client": {}}
	if c := s.postgres.Load(); c != nil {
		all["postgres_ca"], all["postgres_client"] = c.CA, c.Client
	}
	return all
}

// postgresCertificates notes the certificates of connections to the database.
func (s *server) postgresCertificates(c pgstore.Certificates) {
	s.postgres.Store(&c)
	warnExpiry(s.log.Logger, "postgres_ca", "sslrootcert", c.CA)
	warnExpiry(s.log.Logger, "postgres_client", "sslcert", c.Client)
}

// warnExpiry warns if a certificate in a file that was loaded expires soon. The zero time means that there is none.
func warnExpiry(log *slog.Logger, use, file string, at time.Time) {
	const soon = 30 * 24 * time.Hour // time to give all gateways other ones
	if !at.IsZero() && time.Until(at) < soon {
		log.Warn("a certificate expires soon, or has expired", "use", use, "file", file, "expires",
			at.UTC().Format(time.RFC3339))
	}
}

// warnCleartext warns if tokens are sent in cleartext to an address that other machines can
// reach.
func (a *access) warnCleartext(listener, addr string) {
	if addr != "" && !isLoopback(addr) {
		a.log.Warn("tokens and readings are sent in clear text to this address", "listener", listener, "addr", addr)
	}
}

func (a *access) tokensChanged(c token.Change) {
	r := audit.Record{Event: audit.TokensLoaded, Count: int64(c.Tokens)}
	if c.Err != nil {
		r.Event = audit.TokensRefused
		a.log.Error("the token file cannot be used; the previous tokens stay in force", "tokens", c.Tokens, "error", c.Err)
	} else {
		a.log.Info("tokens loaded", "tokens", c.Tokens, "added", len(c.Added), "removed", len(c.Removed))
	}
	if err := a.record(r); err != nil {
		a.log.Error("a change of tokens cannot be recorded", "error", err)
	}
}

func (a *access) rulesChanged(rules int, err error) {
	if err != nil {
		a.log.Error("the access rules cannot be used; the previous ones stay in force", "rules", rules, "error", err)
		return
	}
	a.log.Info("access rules loaded", "rules", rules)
}

// handshakeFailed logs a failed handshake, and records a client certificate that was rejected.
func (a *access) handshakeFailed(c net.Conn, err error) {
	a.log.Debug("TLS handshake failed", "peer", c.RemoteAddr().String(), "error", err)
	if tlsfiles.IsClientRefused(err) {
		a.gate.BadCertificate(gate.PeerOf(&http.Request{RemoteAddr: c.RemoteAddr().String()}))
	}
}

// closeExpired closes connections, after an answer, on which the client's certificate has
// expired. All further requests on them would be refused; on a new connection the client
// presents its new certificate.
func (a *access) closeExpired(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.gate.Outlived(r.TLS, time.Now()) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
