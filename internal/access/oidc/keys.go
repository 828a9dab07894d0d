package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// maxKeys bounds the keys of a provider.
const maxKeys = 64

// algorithms are those that a token may be signed with.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// fetchKeys gets a JSON Web Key Set (RFC 7517), as it is and without the keys that cannot have signed a token.
func (p *Provider) fetchKeys(ctx context.Context, url string) (text []byte, keys []jose.JSONWebKey, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	if text, err = io.ReadAll(resp.Body); err != nil {
		return nil, nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(text, &set) != nil || len(set.Keys) > maxKeys {
		return nil, nil, fmt.Errorf("not a set of at most %d keys", maxKeys)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey // others must be ignored (RFC 7517, section 5)
		if key.UnmarshalJSON(raw) == nil && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, nil, errors.New("no usable key")
	}
	return text, keys, nil
}

// A signature is a goidc.KeySet for one token.
type signature struct {
	keys    []jose.JSONWebKey
	earlier time.Time // of now and the provider's clock
	expired bool      // the token says that it has expired; its signature is not worth the time then
	unknown bool      // the token names a key that is not known
}

var errSignature = errors.New("no key has signed this")

// VerifySignature returns the payload of a token that one of the keys has signed. A token names its
// key, unless there is only one.
//
// It also returns the payload of a token whose key is unknown, because no key makes a token valid whose claims are not.
//
// Invariant: a token is only accepted if unknown is false; TestUnknownKeys checks it.
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
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &claims) == nil &&
		claims.Expires < float64(s.earlier.Unix()) {
		s.expired = true
		return nil, errSignature
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
	if s.unknown {
		return jws.UnsafePayloadWithoutVerification(), nil
	}
	return nil, errSignature
}
