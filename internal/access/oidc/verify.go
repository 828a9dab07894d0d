package oidc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	goidc "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/pulsegate/pulsegate/internal/access/token"
)

// Errors of tokens. They are not wrapped.
var (
	ErrMalformed   = errors.New("not a JWT")
	ErrInvalid     = errors.New("the token is not valid here")
	ErrExpired     = errors.New("the token has expired")
	ErrUnavailable = errors.New("the provider's keys are not known yet")
)

// Skew is how far the clocks of the provider and of this server may differ.
const Skew = time.Minute

// MaxTokenBytes bounds a token.
const MaxTokenBytes = 8 << 10

// maxUnix bounds the time at which a token expires: the year 36812.
const maxUnix = 1 << 40

// maxSubjectBytes bounds the claim sub (OpenID Connect Core, section 2).
const maxSubjectBytes = 255

// IsJWT reports whether text can only be a JWT: it begins as an object in JSON does in base64url. A token of
// package token does not.
func IsJWT[T string | []byte](text T) bool { return len(text) > 1 && text[0] == 'e' && text[1] == 'y' }

// isCompact reports whether text consists of three parts of base64url, and is not too long.
func isCompact(text string) bool {
	dots := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '.':
			dots++
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return dots == 2 && len(text) <= MaxTokenBytes
}

// Cached returns whom a token identifies, if the token was verified before and still holds. It neither
// allocates nor locks, and does not retain text.
func Cached[T string | []byte](p *Provider, text T, nowUnixMs int64) (*token.Principal, bool) {
	v := cached(p.cache, text)
	if v == nil || nowUnixMs >= v.untilUnixMs || v.generation != p.generation.Load() {
		return nil, false
	}
	return v.principal, true
}

// Begin calls verify on another goroutine, if not too many are running. It calls Verify, and then Cached returns the
// result, unless the token is rejected.
func (p *Provider) Begin(verify func()) {
	select {
	case p.verifying <- struct{}{}:
	default:
		return
	}
	p.done.Go(func() {
		defer func() { <-p.verifying }()
		verify()
	})
}

// Verify returns whom a token identifies, and what the rules allow: no right if no rule matches. It
// does not wait for the provider.
func (p *Provider) Verify(text string) (*token.Principal, error) {
	now := p.opt.Now()
	if principal, ok := Cached(p, text, now.UnixMilli()); ok {
		return principal, nil
	}
	generation := p.generation.Load()
	person, err := p.verify(text, false)
	switch err {
	case nil:
		p.checked.WithLabelValues("accepted").Inc()
	case ErrUnavailable:
		p.checked.WithLabelValues("undecided").Inc()
		return nil, err
	default:
		p.checked.WithLabelValues("rejected").Inc()
		return nil, err
	}
	principal := person.Principal()
	p.cache.put(&verified{strings.Clone(text), principal, person.Expires.Add(Skew).UnixMilli(), generation})
	return principal, nil
}

// VerifyIDToken returns whom an ID token identifies that the provider has issued to this server for a nonce. If its key
// is not known, it waits for the provider until ctx ends.
func (p *Provider) VerifyIDToken(ctx context.Context, text, nonce string) (*Person, error) {
	return p.wait(ctx, text, func(w *Person) bool { return nonce != "" && w.nonce == nonce })
}

// VerifyRefreshed is VerifyIDToken for the ID token that a refresh of person has returned, which may have no nonce
// (OpenID Connect Core, section 12.2).
func (p *Provider) VerifyRefreshed(ctx context.Context, text string, person *Person) (*Person, error) {
	return p.wait(ctx, text, func(w *Person) bool {
		return w.Identity == person.Identity && (w.nonce == "" || w.nonce == person.nonce)
	})
}

func (p *Provider) wait(ctx context.Context, text string, holds func(*Person) bool) (*Person, error) {
	for {
		person, err := p.verify(text, true)
		switch {
		case err == ErrUnavailable && sleep(ctx, 100*time.Millisecond, nil):
		case err == nil && !holds(person):
			return nil, ErrInvalid
		default:
			return person, err
		}
	}
}

// A Person is whom an accepted token identifies.
type Person struct {
	token.Identity
	Expires time.Time // of the token, without Skew

	provider *Provider
	claims   map[string]any
	nonce    string
}

// Principal returns what the rules in force allow the person: no right if no rule matches.
func (w *Person) Principal() *token.Principal {
	return w.provider.people.principal(w.Identity, w.provider.current.Load().match(w.claims), w.provider.opt.Now())
}

// verify verifies a token of a request, or an ID token for this server.
func (p *Provider) verify(text string, idToken bool) (*Person, error) {
	if !isCompact(text) {
		return nil, ErrMalformed
	}
	found := p.found.Load()
	if found == nil {
		return nil, ErrUnavailable
	}
	now := p.opt.Now()
	signed := signature{keys: found.keys, earlier: now.Add(-Skew)}
	verifier := goidc.NewVerifier(p.opt.Issuer, &signed, &goidc.Config{
		ClientID: p.opt.ClientID, SupportedSigningAlgs: []string{goidc.RS256, goidc.ES256, goidc.EdDSA},
		Now: func() time.Time { return signed.earlier },
	})
	t, err := verifier.Verify(context.Background(), text)
	expired := (*goidc.TokenExpiredError)(nil)
	switch {
	case signed.expired, errors.As(err, &expired):
		return nil, ErrExpired
	case err != nil:
		return nil, ErrInvalid
	case signed.unknown:
		select {
		case p.kick <- struct{}{}:
		default:
		}
		if !idToken && now.Sub(found.at) < 2*MinFetch {
			return nil, ErrInvalid // a moment ago, the provider had no such key
		}
		return nil, ErrUnavailable
	}
	person := &Person{Identity: token.Identity{Issuer: p.opt.Issuer, Subject: t.Subject}, Expires: t.Expiry, provider: p,
		nonce: t.Nonce}
	var payload jsontext.Value
	if t.Claims(&payload) != nil || json.Unmarshal(payload, &person.claims) != nil { // rejects names that are there twice
		return nil, ErrInvalid
	}
	clients := []string{p.opt.ClientID}
	if !idToken {
		clients = append(clients, p.opt.Clients...)
	}
	if !check(person, now, idToken, clients, len(t.Audience)) {
		return nil, ErrInvalid
	}
	return person, nil
}

// known lists the claims that the library or this package interprets.
var known = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "nonce", "azp", "client_id", "appid", "typ", "events",
	"cnf", "at_hash"}

// check checks what the library does not: that a token is an ID token, or none as far as that shows, that one of
// clients has got it, and that it is not of the future.
func check(w *Person, now time.Time, idToken bool, clients []string, audiences int) bool {
	for name := range w.claims {
		// The library ignores the case of names, and takes the last.
		if slices.ContainsFunc(known, func(k string) bool { return name != k && strings.EqualFold(name, k) }) {
			return false
		}
	}
	for name, latest := range map[string]int64{"nbf": now.Add(Skew).Unix(), "iat": now.Add(Skew).Unix(), "exp": maxUnix} {
		claim, given := w.claims[name]
		if at, ok := claim.(float64); given && (!ok || at > float64(latest)) {
			return false
		}
	}
	named := false
	for _, name := range []string{"azp", "client_id", "appid"} {
		if claim, given := w.claims[name]; given {
			client, _ := claim.(string)
			if !slices.Contains(clients, client) {
				return false
			}
			named = true
		}
	}
	kind, typed := w.claims["typ"] // Keycloak names the kind of its tokens
	_, event := w.claims["events"] // a logout token
	_, bound := w.claims["cnf"]    // to a key that the client would have to prove (RFC 7800)
	_, hash := w.claims["at_hash"] // of an access token, beside which it was issued
	switch {
	case w.Subject == "" || len(w.Subject) > maxSubjectBytes ||
		strings.ContainsFunc(w.Subject, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }),
		audiences > 1 && !named, event,
		!idToken && (bound || hash || w.nonce != "" || typed && kind != "Bearer"):
		return false
	}
	return true
}
