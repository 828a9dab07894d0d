// Package gate decides who may pass: it puts tokens, client certificates, rates
// and the audit log together, for every front and both directions.
//
// # Promise
//
//   - Whoever [Gate.Enter] lets in is named by a token that is in force, by a
//     verified client certificate, or by neither because the gate is open: it was
//     made without both.
//   - Enter neither allocates nor takes a lock, whatever it decides.
//   - What it refuses is counted, and noted in the audit log, which no number of
//     refusals can flood.
//
// # How it is asked
//
// Before the body of a request is read: [Gate.Enter], for the right that the
// request needs. Once the readings are known: [Pass.Covers] for the device of
// each, and [Pass.Charge] for how many they are.
//
// # Not here
//
// No answers: who asks turns a [Verdict] into a problem.
package gate

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/tlsfiles"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Gate lets requests in. The zero Gate is open: it lets everybody do everything,
// and names nobody. Its fields must not change, and it must not be copied, once it
// is in use. Its methods may be called from many goroutines.
type Gate struct {
	Tokens       *token.Set // nil: no tokens
	Certificates bool       // clients may show certificates
	Audit        *audit.Log // nil: none

	// Trusted reports whether the CA that let a client's certificate in is still in
	// use. Nil: the handshake decides.
	Trusted func(*tls.ConnectionState) bool

	// Hourly is that of certificates, and of those who read where the gate is open.
	// Tokens have that of their Set.
	Hourly token.Hourly

	refused [numReasons]atomic.Uint64 // by audit.Reason
	named   namedBudgets
}

// Open reports whether g lets everybody in.
func (g *Gate) Open() bool { return g.Tokens == nil && !g.Certificates }

// A Verdict tells what becomes of a request.
type Verdict uint8

// The verdicts, with the status of the answer.
const (
	NoCredentials  Verdict = iota // 401: none were given
	BadCredentials                // 401: those that were given are not valid; why is in the audit log alone
	Forbidden                     // 403: valid, without the right that is needed
	Limited                       // 429 with Retry-After
	Passed
)

// A Visitor says who sent a request, and with what. [VisitorOf] returns that of an
// http.Request.
type Visitor struct {
	Authorization string               // of the header; "" if there is none
	Bytes         []byte               // the same, for a front that has bytes; not retained
	Several       bool                 // there is more than one Authorization header
	TLS           *tls.ConnectionState // nil: none
	Peer          Peer                 // nil: not known
}

// bare reports whether there is no Authorization header.
func (v *Visitor) bare() bool { return v.Authorization == "" && len(v.Bytes) == 0 && !v.Several }

// Enter decides about a request that needs a right. retryAfter is set with Limited
// only, and only a request that is to write is limited.
func (g *Gate) Enter(v Visitor, right token.Rights, now time.Time) (pass Pass, verdict Verdict, retryAfter time.Duration) {
	if g.Open() {
		return Pass{all: true, reads: true}, Passed, 0
	}
	named, certErr := vitals.Name{}, tlsfiles.ErrNoCertificate
	if g.Certificates {
		named, certErr = g.certified(v.TLS, now)
	}
	switch {
	case certErr != nil && !errors.Is(certErr, tlsfiles.ErrNoCertificate):
		g.note(audit.Refusal{Reason: audit.BadCertificate}, v.Peer)
		return Pass{}, BadCredentials, 0
	case certErr == nil && v.bare():
		if right != token.Write {
			g.note(audit.Refusal{Reason: audit.NoRight}, v.Peer)
			return Pass{}, Forbidden, 0
		}
		return Pass{gateway: named, all: true}, Passed, 0
	case v.bare():
		g.note(audit.Refusal{Reason: audit.NoCredentials}, v.Peer)
		return Pass{}, NoCredentials, 0
	}
	grant, reason := g.look(&v, now)
	switch {
	case reason != 0:
		g.note(audit.Refusal{Reason: reason, Token: grant.ID()}, v.Peer)
		return Pass{}, BadCredentials, 0
	case certErr == nil && grant.Gateway() != named:
		g.note(audit.Refusal{Reason: audit.BadCertificate, Token: grant.ID()}, v.Peer)
		return Pass{}, Forbidden, 0
	case !grant.Has(right):
		g.note(audit.Refusal{Reason: audit.NoRight, Token: grant.ID()}, v.Peer)
		return Pass{}, Forbidden, 0
	}
	if ok, wait := grant.Allow(0, now); right == token.Write && !ok {
		return Pass{}, Limited, wait
	}
	return Pass{gateway: grant.Gateway(), grant: grant, reads: grant.Has(token.Read)}, Passed, 0
}

// certified returns the gateway that the client's certificate names.
func (g *Gate) certified(cs *tls.ConnectionState, now time.Time) (vitals.Name, error) {
	name, err := tlsfiles.Gateway(cs, now)
	if err == nil && g.Trusted != nil && !g.Trusted(cs) {
		return vitals.Name{}, tlsfiles.ErrUntrusted
	}
	return name, err
}

// Outlived reports whether a connection has outlived its client's certificate, which
// has expired, or whose CA was taken out. Nothing is let in there any more: the client
// must connect again, with another one.
func (g *Gate) Outlived(cs *tls.ConnectionState, now time.Time) bool {
	if !g.Certificates || cs == nil {
		return false
	}
	_, err := g.certified(cs, now)
	return errors.Is(err, tlsfiles.ErrExpired) || errors.Is(err, tlsfiles.ErrUntrusted)
}

// look finds the token that v shows, or says why there is none.
func (g *Gate) look(v *Visitor, now time.Time) (grant token.Grant, reason audit.Reason) {
	var err error
	switch {
	case v.Several:
		return grant, audit.Malformed
	case g.Tokens == nil:
		return grant, audit.Unknown
	case len(v.Bytes) > 0:
		grant, err = g.Tokens.Lookup(v.Bytes, now.UnixMilli())
	default:
		grant, err = g.Tokens.LookupString(v.Authorization, now.UnixMilli())
	}
	switch {
	case err == nil:
		return grant, 0
	case errors.Is(err, token.ErrUnknown):
		return grant, audit.Unknown
	case errors.Is(err, token.ErrExpired):
		return grant, audit.Expired
	}
	return grant, audit.Malformed
}
