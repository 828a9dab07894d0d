package oidc_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
)

// A trial is a provider that may misbehave, in a bubble.
type trial struct {
	*oidctest.Provider
	t      *testing.T
	tokens *oidc.Provider
	states []error // that OnProvider was called with
}

// begin runs a test in a bubble with a provider that answers as answer says; nil means normally.
func begin(t *testing.T, answer func(w http.ResponseWriter, r *http.Request) bool, test func(*trial)) {
	house := oidctest.New(t)
	rules := write(t, "", nurses)
	synctest.Test(t, func(t *testing.T) {
		tr := &trial{Provider: house, t: t}
		tr.answer(answer)
		var err error
		tr.tokens, err = oidc.Open(oidc.Options{
			Issuer: house.URL, ClientID: oidctest.ClientID, Rules: rules, Every: -1, Transport: house,
			OnProvider: func(err error) { tr.states = append(tr.states, err) },
		})
		try(t, err)
		defer tr.tokens.Close()
		synctest.Wait()
		test(tr)
	})
}

func (tr *trial) answer(answer func(w http.ResponseWriter, r *http.Request) bool) {
	if answer == nil {
		tr.Answer.Store(nil)
		return
	}
	tr.Answer.Store(&answer)
}

// want verifies a token.
func (tr *trial) want(what, text string, want error) {
	tr.t.Helper()
	if _, err := tr.tokens.Verify(text); err != want {
		tr.t.Errorf("%s: error %v, want %v", what, err, want)
	}
	synctest.Wait()
}

// pass lets time pass, and returns the number of requests to the provider in it.
func (tr *trial) pass(d time.Duration) int {
	before := tr.Requests.Load()
	time.Sleep(d)
	synctest.Wait()
	return int(tr.Requests.Load() - before)
}

func broken(status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // to a recorder
		return true
	}
}

// Whatever a provider does at the start, tokens are answered at once that they cannot be checked yet, the server asks
// again with back-off, and accepts them soon after the provider works.
func TestProviderAtStart(t *testing.T) {
	configuration := func(members string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/keys" {
				return false
			}
			return broken(http.StatusOK, "{"+strings.ReplaceAll(members, "HOUSE", "http://"+r.Host)+"}")(w, r)
		}
	}
	keys := func(body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/keys" && broken(http.StatusOK, body)(w, r)
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
		want   string // in the error
	}{
		{"away", func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, "connection refused"},
		{"slow", func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
			"deadline exceeded"},
		{"error", broken(http.StatusInternalServerError, "secret\nof the provider"), "500"},
		{"redirection", broken(http.StatusFound, ""), "302"},
		{"garbage", broken(http.StatusOK, "\x00\xff<html>"), "invalid character"},
		{"empty", broken(http.StatusOK, ""), "unexpected end"},
		{"10 MB", broken(http.StatusOK, `{"issuer":"`+strings.Repeat("x", 10<<20)+`"}`), "unexpected end of JSON"},
		{"other issuer", configuration(`"issuer":"https://else.example","jwks_uri":"HOUSE/keys"`), "did not match"},
		{"no address of keys", configuration(`"issuer":"HOUSE"`), "jwks_uri is not a URL"},
		{"keys in clear text", configuration(`"issuer":"HOUSE","jwks_uri":"http://else.example/keys"`),
			"jwks_uri is not an https URL"},
		{"keys in a file", configuration(`"issuer":"HOUSE","jwks_uri":"file:///etc/passwd"`), "jwks_uri is not a URL"},
		{"garbage for keys", keys("]"), "not a set of at most 64 keys"},
		{"10 MB of keys", keys(`{"keys":[` + strings.Repeat(" ", 10<<20) + `]}`), "not a set of at most 64 keys"},
		{"many keys", keys(manyKeys(65)), "not a set of at most 64 keys"},
		{"no keys", keys(`{"keys":[]}`), "no usable key"},
		{"symmetric key", keys(`{"keys":[{"kty":"oct","kid":"es","k":"c2VjcmV0"}]}`), "no usable key"},
		{"key for encryption", keys(strings.ReplaceAll(manyKeys(1), `"kty"`, `"use":"enc","kty"`)), "no usable key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begin(t, tt.answer, func(tr *trial) {
				for range 10 {
					tr.want("unusable provider", tr.Token(nil), oidc.ErrUnavailable)
				}
				if n := tr.pass(10 * time.Minute); n < 10 || n > 30 {
					t.Errorf("%d requests in ten minutes", n)
				}
				if len(tr.states) != 1 || tr.states[0] == nil || !strings.Contains(tr.states[0].Error(), tt.want) {
					t.Errorf("reported %q, want %q once", tr.states, tt.want)
				} else if text := tr.states[0].Error(); len(text) > 400 || strings.ContainsAny(text, "\n\x00") {
					t.Errorf("the error has %d bytes, or control characters: %q", len(text), text)
				}
				tr.answer(nil)
				tr.pass(time.Minute + 10*time.Second)
				tr.want("usable provider", tr.Token(nil), nil)
				if len(tr.states) != 2 || tr.states[1] != nil {
					t.Errorf("reported %q, want nil at the end", tr.states)
				}
			})
		})
	}
}

func manyKeys(n int) string {
	var keys []string
	for i := range n {
		keys = append(keys,
			fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":"%d","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`, i))
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
}

// While the provider is away, slow, or answers nonsense, tokens with known keys are accepted, others cannot be checked.
func TestProviderAwayLater(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"away":  broken(http.StatusServiceUnavailable, ""),
		"slow":  func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
		"junk":  broken(http.StatusOK, "<html>"),
		"10 MB": broken(http.StatusOK, strings.Repeat("[", 10<<20)),
		"no keys any more": func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Path == "/keys" && broken(http.StatusOK, `{"keys":[]}`)(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t, nil, func(tr *trial) {
				tr.want("known key", tr.Token(nil), nil)
				old := tr.Token(object{"exp": time.Now().Add(time.Hour).Unix()})
				tr.answer(answer)
				tr.pass(30 * time.Minute)
				tr.want("known key, new token", tr.Token(nil), nil)
				tr.want("known key, older token", old, nil)
				for i := range 100 {
					tr.want("unknown key", tr.Sign("es", object{"kid": fmt.Sprint(i)}, tr.Claims(nil)), oidc.ErrUnavailable)
				}
				if len(tr.states) != 1 || tr.states[0] == nil {
					t.Errorf("reported %q, want one error", tr.states)
				}
				tr.answer(nil)
				tr.pass(80 * time.Second)
				if len(tr.states) != 2 || tr.states[1] != nil {
					t.Errorf("reported %q, want nil at the end", tr.states)
				}
			})
		})
	}
}

// A provider that replaces all its keys at once: new tokens are accepted after one more request, old ones no longer.
func TestRotation(t *testing.T) {
	begin(t, nil, func(tr *trial) {
		old := tr.Token(nil)
		tr.want("old key", old, nil)
		tr.pass(time.Minute)
		tr.Rotate("-2")
		fresh := func() string { return tr.Sign("es-2", nil, tr.Claims(nil)) }
		tr.want("new key, first", fresh(), oidc.ErrUnavailable)
		tr.want("new key, then", fresh(), nil)
		tr.want("old key, cached", old, oidc.ErrInvalid)
		if _, ok := oidc.Cached(tr.tokens, old, time.Now().UnixMilli()); ok {
			t.Error("a token with a withdrawn key is cached")
		}
		if n := tr.pass(0); n != 0 || tr.Requests.Load() != 4 {
			t.Errorf("%d requests, want 4", tr.Requests.Load())
		}
		// Without a token with a new key, the withdrawal is noticed within RenewEvery.
		withdrawn := tr.Sign("es-2", nil, tr.Claims(object{"exp": time.Now().Add(time.Hour).Unix()}))
		tr.Rotate("-3")
		tr.want("withdrawn key", withdrawn, nil)
		tr.pass(oidc.RenewEvery + time.Second)
		tr.want("withdrawn key, first", withdrawn, oidc.ErrUnavailable)
		tr.want("withdrawn key, then", withdrawn, oidc.ErrInvalid)
		tr.want("newest key", tr.Sign("es-3", nil, tr.Claims(nil)), nil)
	})
}

// Tokens with a thousand unknown keys a second make at most one pair of requests in MinFetch.
func TestUnknownKeys(t *testing.T) {
	begin(t, nil, func(tr *trial) {
		tr.pass(time.Minute)
		for name, tt := range map[string]struct {
			claim object
			want  error
		}{
			"other issuer":   {object{"iss": "https://else.example"}, oidc.ErrInvalid},
			"other audience": {object{"aud": "account"}, oidc.ErrInvalid},
			"expired":        {object{"exp": 1}, oidc.ErrExpired},
		} {
			tr.want("unknown key, "+name,
				oidctest.Part(object{"alg": "ES256", "kid": "x"})+"."+oidctest.Part(tr.Claims(tt.claim))+".AAAA", tt.want)
		}
		const seconds = 12
		rest := "." + oidctest.Part(tr.Claims(nil)) + ".AAAA" // the key is looked up first
		before := tr.Requests.Load()
		counts := map[error]int{}
		for i := range seconds * 1000 {
			_, err := tr.tokens.Verify(oidctest.Part(object{"alg": "ES256", "kid": fmt.Sprint(i)}) + rest)
			counts[err]++
			time.Sleep(time.Millisecond)
		}
		if n, most := tr.Requests.Load()-before, int64(2*(seconds*time.Second/oidc.MinFetch+1)); n < 4 || n > most {
			t.Errorf("%d requests, want at most %d", n, most)
		}
		// The first cannot be decided; once the provider has said that there is no such key, the others can.
		if counts[oidc.ErrUnavailable] != 1 || counts[oidc.ErrInvalid] != seconds*1000-1 {
			t.Errorf("answers %v", counts)
		}
		tr.want("known key, meanwhile", tr.Token(nil), nil)
	})
}

// The clock is checked again with a cached token.
func TestCachedExpires(t *testing.T) {
	begin(t, nil, func(tr *trial) {
		text := tr.Token(object{"exp": time.Now().Add(time.Minute).Unix()})
		tr.want("valid", text, nil)
		tr.pass(2*time.Minute - time.Second)
		if _, ok := oidc.Cached(tr.tokens, text, time.Now().UnixMilli()); !ok {
			t.Error("not cached within the skew")
		}
		tr.pass(2 * time.Second)
		if _, ok := oidc.Cached(tr.tokens, text, time.Now().UnixMilli()); ok {
			t.Error("cached after it has expired")
		}
		tr.want("expired", text, oidc.ErrExpired)
	})
}

// An issuer that anybody on the network could impersonate is rejected.
func TestCheckIssuer(t *testing.T) {
	for issuer, want := range map[string]bool{
		"https://login.example/realms/house": true, "https://login.example": true, "http://127.0.0.1:8080": true,
		"http://[::1]:1/x": true, "http://localhost:9": true,
		"": false, "login.example": false, "http://login.example": false, "http://localhost.example": false,
		"http://127.0.0.1.example": false,
		"https://":                 false, "https://a@b": false, "https://a?b": false, "https://a#b": false,
		"https://a?": false, "https://a/\"": false, "https://a/ b": false, "https://ä": false, "https://a/" +
			strings.Repeat("a", 250): false, "ftp://a": false, "file:///x": false,
	} {
		if err := oidc.CheckIssuer(issuer); (err == nil) != want {
			t.Errorf("%q: %v", issuer, err)
		}
	}
	if _, err := oidc.Open(oidc.Options{Issuer: "http://login.example"}); err == nil || errors.Is(err, oidc.ErrInvalid) {
		t.Errorf("opened: %v", err)
	}
}
