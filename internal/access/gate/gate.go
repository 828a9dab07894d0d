// Package gate decides which requests are allowed. It combines tokens, client
// certificates, rate limits and the audit log, for every listener, for reads and for
// writes.
//
// # Promise
//
//   - Every request that [Gate.Authorize] allows has a valid token or a verified client
//     certificate, unless the gate is open, that is, configured with neither.
//   - Authorize neither allocates nor takes a lock, except for an unknown token.
//   - A token is valid once it has been in the token file for a moment: Authorize checks the
//     file before it rejects an unknown token, but not more often than
//     [filewatch.RefreshInterval].
//   - Each rejection is counted and noted in the audit log, which no number of
//     rejections can flood.
//
// # Use
//
// Before reading the body of a request, call [Gate.Authorize] with the right that the
// request needs. Once the readings are known, call [token.Principal.Covers] with the device of
// each, and [token.Principal.Allow] with their number.
//
// # Not here
//
// No responses: the caller turns a [Verdict] into a problem.
package gate

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Gate authorizes requests. The zero Gate is open: it allows every request and
// identifies no client. After first use, its fields must not change and it must not be
// copied. It is safe for concurrent use.
type Gate struct {
	Tokens       *token.Set // nil means no tokens
	Certificates bool       // clients may present certificates
	Audit        *audit.Log // what clients cause; nil means no audit log
	Operators    *audit.Log // what operators do; nil means no audit log. Only the metrics read it.

	// OIDC verifies the tokens of an OpenID Connect provider. nil means none are accepted.
	OIDC *oidc.Provider

	// SignIns let people sign in at the provider in a browser. nil means they cannot.
	SignIns *signin.Flow

	// Trusted reports whether the CA of a client's certificate is still in use. If nil,
	// every certificate that passed the handshake is trusted.
	Trusted func(*tls.ConnectionState) bool

	// Hourly applies to clients with a certificate and no token, and to all clients if
	// the gate is open. Tokens have the Hourly of their Set.
	Hourly token.Hourly

	refused  [audit.NumReasons]atomic.Uint64 // by audit.Reason
	named    namedBudgets
	attempts attempts
	sessions sessions
}

// Open reports whether g allows every request.
func (g *Gate) Open() bool { return g.Tokens == nil && !g.Certificates && g.OIDC == nil }

// A Verdict is the decision about a request.
type Verdict uint8

// The verdicts, with the HTTP status of the response.
const (
	NoCredentials  Verdict = iota // 401: no credentials
	BadCredentials                // 401: invalid credentials; only the audit log has the reason
	Forbidden                     // 403: valid credentials without the required right
	Limited                       // 429 with Retry-After
	Unavailable                   // 503: the key of a token is not known yet
	Undecided                     // only with Credentials.Quick: the token is being verified
	Allowed
)

// Credentials are what a request presents to identify its sender. [CredentialsOf]
// returns those of an http.Request.
type Credentials struct {
	Authorization string               // value of the header; "" if there is none
	Bytes         []byte               // the same, for a caller that has bytes; not retained
	Digest        *token.Digest        // of the token, for a caller that has kept no text; nil means none
	Several       bool                 // there is more than one Authorization header
	Cookies       []string             // that may name a session; nil means none
	TLS           *tls.ConnectionState // nil means none
	Peer          Peer                 // nil means unknown
	Claimed       string               // gateway that the client names itself, valid or not; "" means none

	// SubjectsInSession is set by a caller that lets sessions use [token.ReadSubjects].
	SubjectsInSession bool

	// Quick is set by a caller that must not spend the time to verify a token that was not verified before. It
	// asks again in a moment, or without Quick.
	Quick bool
}

// bare reports whether there is no token.
func (v *Credentials) bare() bool {
	return v.Authorization == "" && len(v.Bytes) == 0 && !v.Several && v.Digest == nil
}

// Authorize decides whether a request that needs right is allowed. It sets retryAfter
// only with Limited; only writes are rate limited. A token that is bound to subjects is allowed
// nothing but [token.ReadSubjects].
func (g *Gate) Authorize(v Credentials, right token.Rights, now time.Time) (access Access, verdict Verdict,
	retryAfter time.Duration) {
	if g.Open() {
		return Access{Principal: anything}, Allowed, 0
	}
	_, inSession, signedIn := g.inSession(&v, right, now)
	named, certErr := vitals.Name{}, tlsfiles.ErrNoCertificate
	if g.Certificates {
		named, certErr = g.certified(v.TLS, now)
	}
	switch {
	case certErr != nil && !errors.Is(certErr, tlsfiles.ErrNoCertificate):
		g.note(audit.Refusal{Reason: audit.BadCertificate}, v.Peer)
		return Access{}, BadCredentials, 0
	case signedIn:
	case certErr == nil && v.bare():
		if right != token.Write {
			g.note(audit.Refusal{Reason: audit.NoRight}, v.Peer)
			return Access{}, Forbidden, 0
		}
		return asClaimed(g, Access{Principal: writing, gateway: named}, &v)
	case v.bare():
		g.note(audit.Refusal{Reason: audit.NoCredentials}, v.Peer)
		return Access{}, NoCredentials, 0
	}
	verified := inSession
	if !signedIn {
		var why audit.Refusal
		switch verified, why, verdict = g.look(&v, now); verdict {
		case Allowed:
		case Undecided:
			return Access{}, Undecided, 0
		default:
			g.note(why, v.Peer)
			return Access{}, verdict, 0
		}
	}
	switch {
	case certErr == nil && verified.Gateway() != named:
		g.note(refusal(audit.BadCertificate, verified), v.Peer)
		return Access{}, Forbidden, 0
	case !verified.Has(right):
		g.note(refusal(audit.NoRight, verified), v.Peer)
		return Access{bound: verified.Bound()}, Forbidden, 0
	}
	if ok, wait := verified.Allow(0, now); right == token.Write && !ok {
		return Access{}, Limited, wait
	}
	return asClaimed(g, accessOf(verified), &v)
}

// Holds reports whether a request has a token with a right, without noting a refusal. [Gate.Authorize] decides.
func Holds(g *Gate, v Credentials, right token.Rights, now time.Time) bool {
	if g.Open() || v.bare() {
		return false
	}
	verified, _, verdict := g.look(&v, now)
	return verdict == Allowed && verified.Has(right)
}

// asClaimed allows a request, unless the client claims to be another gateway than its credentials name.
func asClaimed(g *Gate, a Access, v *Credentials) (Access, Verdict, time.Duration) {
	if v.Claimed != "" && !a.gateway.IsZero() && v.Claimed != a.gateway.String() {
		OtherGateway(g, &a, v.Peer)
		return Access{}, Forbidden, 0
	}
	return a, Allowed, 0
}

// accessOf returns the Access of the holder of a valid token.
func accessOf(p *token.Principal) Access { return Access{p, p.Gateway(), p.Bound()} }

// certified returns the gateway named in the client's certificate.
func (g *Gate) certified(cs *tls.ConnectionState, now time.Time) (vitals.Name, error) {
	name, err := tlsfiles.Gateway(cs, now)
	if err == nil && g.Trusted != nil && !g.Trusted(cs) {
		return vitals.Name{}, tlsfiles.ErrUntrusted
	}
	return name, err
}

// Outlived reports whether a connection has outlived its client's certificate: the
// certificate has expired, or its CA was removed. No further request on the connection
// is allowed; the client must reconnect with another certificate.
func (g *Gate) Outlived(cs *tls.ConnectionState, now time.Time) bool {
	if !g.Certificates || cs == nil {
		return false
	}
	_, err := g.certified(cs, now)
	return errors.Is(err, tlsfiles.ErrExpired) || errors.Is(err, tlsfiles.ErrUntrusted)
}

// look looks up the token in v. If it is rejected, look returns the reason. It sets verified only with Allowed.
func (g *Gate) look(v *Credentials, now time.Time) (verified *token.Principal, why audit.Refusal, verdict Verdict) {
	if v.Several {
		return nil, audit.Refusal{Reason: audit.Malformed}, BadCredentials
	}
	if g.OIDC != nil && v.Digest == nil {
		if text := token.TextOf(v.Bytes); oidc.IsJWT(text) {
			return lookJWT(g, text, v, now)
		}
		if text := token.TextOf(v.Authorization); oidc.IsJWT(text) {
			return lookJWT(g, text, v, now)
		}
	}
	if g.Tokens == nil {
		return nil, audit.Refusal{Reason: audit.Unknown}, BadCredentials
	}
	digest, err := v.digest()
	if err != nil {
		return nil, audit.Refusal{Reason: audit.Malformed}, BadCredentials
	}
	verified, err = g.Tokens.Lookup(&digest, now.UnixMilli())
	if errors.Is(err, token.ErrUnknown) {
		// The token may have been created after the last check of the file.
		g.Tokens.Refresh()
		verified, err = g.Tokens.Lookup(&digest, now.UnixMilli())
	}
	switch {
	case err == nil:
		return verified, audit.Refusal{}, Allowed
	case errors.Is(err, token.ErrExpired):
		return nil, audit.Refusal{Reason: audit.Expired, Token: digest.ID()}, BadCredentials
	}
	return nil, audit.Refusal{Reason: audit.Unknown, Token: digest.ID()}, BadCredentials
}

// lookJWT is look for a token of an OpenID Connect provider.
func lookJWT[T string | []byte](g *Gate, text T, v *Credentials, now time.Time) (*token.Principal,
	audit.Refusal, Verdict) {
	if p, ok := oidc.Cached(g.OIDC, text, now.UnixMilli()); ok {
		return p, audit.Refusal{}, Allowed
	}
	from, jwt := share.Network(addrOf(v.Peer)), string(text)
	if v.Quick {
		g.OIDC.Begin(func() { _, _ = verify(g, jwt, from) }) // rejected when it is presented again
		return nil, audit.Refusal{}, Undecided
	}
	p, err := verify(g, jwt, from)
	switch err {
	case nil:
		return p, audit.Refusal{}, Allowed
	case oidc.ErrUnavailable:
		return nil, audit.Refusal{Reason: audit.Undecided}, Unavailable
	case oidc.ErrExpired:
		return nil, audit.Refusal{Reason: audit.Expired}, BadCredentials
	case oidc.ErrMalformed:
		return nil, audit.Refusal{Reason: audit.Malformed}, BadCredentials
	}
	return nil, audit.Refusal{Reason: audit.Unknown}, BadCredentials
}

// verify verifies a JWT, unless the network that it comes from has sent too many wrong ones: this one may be right.
func verify(g *Gate, jwt string, from netip.Prefix) (*token.Principal, error) {
	attempt := g.attempts.begin(from)
	if attempt == nil {
		return nil, oidc.ErrUnavailable
	}
	p, err := g.OIDC.Verify(jwt)
	if err == nil || err == oidc.ErrUnavailable || err == oidc.ErrExpired {
		attempt.Return(1) // no signature was verified in vain
	}
	return p, err
}

// refusal returns a refusal of a request with valid credentials.
func refusal(why audit.Reason, p *token.Principal) audit.Refusal {
	if actor := p.Actor(); actor != "" {
		return audit.Refusal{Reason: why, Actor: actor}
	}
	return audit.Refusal{Reason: why, Token: p.ID()}
}

// digest returns the digest of the token in v.
func (v *Credentials) digest() (token.Digest, error) {
	if v.Digest != nil {
		return *v.Digest, nil
	}
	if len(v.Bytes) > 0 {
		return token.DigestOfHeader(v.Bytes)
	}
	return token.DigestOfHeader(v.Authorization)
}
