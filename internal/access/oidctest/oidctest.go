// Package oidctest is an OpenID Connect provider that publishes keys and signs tokens, for tests.
//
// # Promise
//
// A token is signed as the test says, also if nobody should accept it.
//
// # Not here
//
// No sign-in: there are only the provider's configuration and its keys. No errors: they fail the test.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
)

// ClientID is the audience of the provider's tokens.
const ClientID = "pulsegate"

// Object is an object in JSON.
type Object = map[string]any

// A Provider serves its configuration and its keys on a loopback address.
type Provider struct {
	URL      string // the issuer
	Requests atomic.Int64

	// Answer, if not nil, answers requests in place of the provider if it returns true.
	Answer atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]

	tb testing.TB

	mu   sync.Mutex
	keys map[string]crypto.Signer // guarded by mu; by key ID
}

// firstKey returns the first RSA key of every provider: to make one takes a tenth of a second.
var firstKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// New starts a provider with the keys "es", "ed" and "rs", which are of the algorithms ES256, EdDSA and RS256.
// Providers share "rs" until they are rotated. It is closed at the end of the test.
func New(tb testing.TB) *Provider {
	p := &Provider{tb: tb}
	p.Rotate("")
	srv := httptest.NewServer(p)
	p.URL = srv.URL
	tb.Cleanup(srv.Close)
	return p
}

// Rotate replaces the keys by others, whose IDs end in suffix.
func (p *Provider) Rotate(suffix string) {
	p.tb.Helper()
	_, ed, errEd := ed25519.GenerateKey(rand.Reader)
	es, errES := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p.mu.Lock()
	defer p.mu.Unlock()
	newKey := firstKey
	if p.keys != nil {
		newKey = func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }
	}
	rs, errRS := newKey()
	if errEd != nil || errES != nil || errRS != nil {
		p.tb.Fatal(errEd, errES, errRS)
	}
	p.keys = map[string]crypto.Signer{"es" + suffix: es, "ed" + suffix: ed, "rs" + suffix: rs}
}

// Key returns a key by its ID.
func (p *Provider) Key(id string) crypto.Signer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[id]
}

// ServeHTTP serves the configuration and the keys.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.Requests.Add(1)
	if answer := p.Answer.Load(); answer != nil && (*answer)(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/.well-known/openid-configuration" {
		p.write(w, Object{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize",
			"token_endpoint":       p.URL + "/token",
			"end_session_endpoint": p.URL + "/end",
			// As a hostile or careless provider states them.
			"id_token_signing_alg_values_supported": []string{"none", "HS256", "RS256", "ES256", "EdDSA"},
		})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := []Object{{"kty": "future", "kid": "unsupported"}}
	for id, key := range p.keys {
		keys = append(keys, JWK(id, key.Public()))
	}
	p.write(w, Object{"keys": keys})
}

// RoundTrip serves a request in this process, so that a test can run in a bubble of synctest. It returns an error if an
// Answer panics.
func (p *Provider) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			resp, err = nil, errors.New("connection refused")
		}
	}()
	if p.ServeHTTP(w, r); r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

func (p *Provider) write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.tb.Error(err)
	}
}

// JWK returns a public key as a JSON Web Key.
func JWK(id string, key crypto.PublicKey) Object {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return Object{"kty": "RSA", "kid": id, "use": "sig", "alg": "RS256", "n": encode(key.N.Bytes()),
			"e": encode(big.NewInt(int64(key.E)).Bytes())}
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			panic(err)
		}
		return Object{"kty": "EC", "kid": id, "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])}
	case ed25519.PublicKey:
		return Object{"kty": "OKP", "kid": id, "crv": "Ed25519", "x": encode(key)}
	}
	panic(fmt.Sprintf("oidctest: key %T", key))
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Claims returns the claims of a token that is valid for five minutes, with others in place of them or beside them. A
// claim that is nil is left out.
func (p *Provider) Claims(others Object) Object {
	now := time.Now().Unix()
	claims := Object{
		"iss": p.URL, "sub": "nurse-1", "aud": ClientID, "azp": ClientID, "iat": now, "exp": now + 300, "typ": "Bearer",
		"groups": []string{"staff", "ward-3-nurses"},
	}
	maps.Copy(claims, others)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Token returns a token of Claims, signed with the key "es".
func (p *Provider) Token(others Object) string { return p.Sign("es", nil, p.Claims(others)) }

// Sign returns a token with claims, which are JSON already if they are a string, signed with a key. Of the header,
// others replace or complete alg and kid.
func (p *Provider) Sign(keyID string, others Object, claims any) string {
	p.tb.Helper()
	key := p.Key(keyID)
	header := Object{"alg": map[string]string{"es": "ES256", "ed": "EdDSA", "rs": "RS256"}[keyID[:2]], "kid": keyID,
		"typ": "JWT"}
	maps.Copy(header, others)
	maps.DeleteFunc(header, func(_ string, v any) bool { return v == nil })
	text := Part(header) + "." + Part(claims)
	return text + "." + encode(p.signature(key, text))
}

func (p *Provider) signature(key crypto.Signer, text string) []byte {
	p.tb.Helper()
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	var err error
	switch key := key.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(key, []byte(text))
	case *ecdsa.PrivateKey:
		r, s, signErr := ecdsa.Sign(rand.Reader, key, sum[:])
		if err = signErr; err == nil {
			signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
	default:
		signature, err = key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	if err != nil {
		p.tb.Fatal(err)
	}
	return signature
}

// HMAC returns a token that is signed with HS256 and a secret.
func HMAC(header Object, claims any, secret []byte) string {
	text := Part(header) + "." + Part(claims)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text)) // a hash.Hash never returns an error
	return text + "." + encode(mac.Sum(nil))
}

// Part returns an object, or JSON in a string, as a part of a token.
func Part(v any) string {
	if text, ok := v.(string); ok {
		return encode([]byte(text))
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return encode(text)
}

// Open opens a provider's tokens with a file of rules, and waits until the keys are known. It is closed at the end of
// the test.
func (p *Provider) Open(rules string) *oidc.Provider {
	p.tb.Helper()
	opened, err := oidc.Open(oidc.Options{Issuer: p.URL, ClientID: ClientID, Rules: rules, Every: -1})
	if err != nil {
		p.tb.Fatal(err)
	}
	p.tb.Cleanup(opened.Close)
	for range 60_000 { // a minute; far more than this takes
		if _, err = opened.Discovered(); err == nil {
			return opened
		}
		time.Sleep(time.Millisecond)
	}
	p.tb.Fatal("the keys were not fetched: ", err)
	return nil
}
