package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// maxKeys bounds the keys of a provider.
const maxKeys = 64

const minRSABits = 2048

// algorithms are those that a token may be signed with.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// keys are public keys of a provider.
type keys []jose.JSONWebKey

// fetchKeys gets a JSON Web Key Set (RFC 7517), without the keys that cannot have signed a token.
func (p *Provider) fetchKeys(ctx context.Context, url string) (keys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("not a key set")
	}
	var found keys
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || !usable(&key) {
			continue // others must be ignored (RFC 7517, section 5)
		}
		if found = append(found, key); len(found) > maxKeys {
			return nil, fmt.Errorf("more than %d keys", maxKeys)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no key for RS256, ES256 or EdDSA")
	}
	return found, nil
}

// usable reports whether a key is for one of the algorithms.
func usable(key *jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || key.Algorithm != "" && !slices.Contains(algorithms, jose.SignatureAlgorithm(key.Algorithm)) {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey:
		return public.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return true
	}
	return false
}

func (k keys) equal(other keys) bool {
	return slices.EqualFunc(k, other, func(a, b jose.JSONWebKey) bool {
		x, errX := a.MarshalJSON()
		y, errY := b.MarshalJSON()
		return errX == nil && errY == nil && string(x) == string(y)
	})
}

// A signature is a goidc.KeySet for one token.
type signature struct {
	keys    keys
	unknown bool // the token names a key that is not known
}

var errSignature = errors.New("oidc: no key has signed this")

// VerifySignature returns the payload of a token that one of the keys has signed. A token names its
// key, unless there is only one.
func (s *signature) VerifySignature(_ context.Context, text string) ([]byte, error) {
	jws, err := jose.ParseSigned(text, algorithms)
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errSignature
	}
	header := &jws.Signatures[0].Protected
	if kind, given := header.ExtraHeaders["typ"]; given {
		// Others, such as logout+jwt, are not for signing in.
		name, _ := kind.(string)
		if name = strings.TrimPrefix(strings.ToLower(name), "application/"); name != "jwt" && name != "at+jwt" {
			return nil, errSignature
		}
	}
	s.unknown = header.KeyID != ""
	for i := range s.keys {
		key := &s.keys[i]
		if header.KeyID != key.KeyID && (header.KeyID != "" || len(s.keys) != 1) {
			continue
		}
		s.unknown = false
		if key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, errSignature
}
