package oidc_test

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

type object = oidctest.Object

func decode(t *testing.T, part string) []byte {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(part)
	try(t, err)
	return text
}

// The tokens that an attacker could make, steal or get issued, and what they are answered.
func TestAttacks(t *testing.T) {
	other := oidctest.New(t)
	begin(t, nil, func(tr *trial) { testAttacks(tr.t, tr, other) })
}

func testAttacks(t *testing.T, house *trial, other *oidctest.Provider) {
	requests, p, now := house.Requests.Load(), house.tokens, time.Now()
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	claims := house.Claims(nil)
	good := house.Token(nil)
	parts := strings.Split(good, ".")
	rs := house.Key("rs").Public().(*rsa.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(rs)
	try(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	stranger := other.Key("es").Public().(*ecdsa.PublicKey)
	raw := func(extra string) string {
		text := oidctest.Part(claims)
		return house.Sign("es", nil, `{`+extra+`,`+string(decode(t, text))[1:])
	}
	with := func(others object) string { return house.Token(others) }

	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"good", good, nil},
		{"good, EdDSA", house.Sign("ed", nil, claims), nil},
		{"good, RS256", house.Sign("rs", nil, claims), nil},
		{"good, type of RFC 9068", house.Sign("es", object{"typ": "application/at+JWT"}, claims), nil},
		{"good, list of audiences", with(object{"aud": []string{"account", "pulsegate"}}), nil},
		{"good, no client named", with(object{"azp": nil}), nil},

		{"alg none", oidctest.Part(object{"alg": "none"}) + "." + parts[1] + ".", oidc.ErrInvalid},
		{"alg none with a signature", oidctest.Part(object{"alg": "none", "kid": "es"}) + "." + parts[1] + "." + parts[2],
			oidc.ErrInvalid},
		{"alg None", oidctest.Part(object{"alg": "None", "kid": "es"}) + "." + parts[1] + ".", oidc.ErrInvalid},
		{"no signature", parts[0] + "." + parts[1] + ".", oidc.ErrInvalid},
		{"HS256 with the public key in PEM", oidctest.HMAC(object{"alg": "HS256", "kid": "rs"}, claims, publicPEM),
			oidc.ErrInvalid},
		{"HS256 with the public key in DER", oidctest.HMAC(object{"alg": "HS256", "kid": "rs"}, claims, der),
			oidc.ErrInvalid},
		{"HS256 with an empty secret", oidctest.HMAC(object{"alg": "HS256"}, claims, nil), oidc.ErrInvalid},
		{"RS256 in the header, signed by ECDSA", house.Sign("es", object{"alg": "RS256"}, claims), oidc.ErrInvalid},
		{"ES256 in the header, with the ID of the RSA key", house.Sign("es", object{"kid": "rs"}, claims), oidc.ErrInvalid},
		{"RS512", house.Sign("rs", object{"alg": "RS512"}, claims), oidc.ErrInvalid},
		{"key in the header", other.Sign("es", object{"jwk": oidctest.JWK("es", stranger)}, claims), oidc.ErrInvalid},
		{"address of keys in the header", other.Sign("es", object{"jku": other.URL + "/keys"}, claims), oidc.ErrInvalid},
		{"certificates in the header", other.Sign("es", object{"x5u": other.URL + "/keys"}, claims), oidc.ErrInvalid},
		{"critical extension", house.Sign("es", object{"crit": []string{"x"}, "x": 1}, claims), oidc.ErrInvalid},
		{"key of another provider", other.Sign("es", nil, claims), oidc.ErrInvalid},
		{"no key named", house.Sign("es", object{"kid": nil}, claims), oidc.ErrInvalid},
		{"changed claims", parts[0] + "." + oidctest.Part(house.Claims(object{"sub": "chief"})) + "." + parts[2],
			oidc.ErrInvalid},
		{"zero signature", parts[0] + "." + parts[1] + "." + strings.Repeat("A", 86), oidc.ErrInvalid},

		{"other issuer", with(object{"iss": other.URL}), oidc.ErrInvalid},
		{"issuer with a slash", with(object{"iss": house.URL + "/"}), oidc.ErrInvalid},
		{"list of issuers", with(object{"iss": []string{house.URL}}), oidc.ErrInvalid},
		{"no issuer", with(object{"iss": nil}), oidc.ErrInvalid},
		{"other audience", with(object{"aud": "account"}), oidc.ErrInvalid},
		{"beginning of the audience", with(object{"aud": "pulsegate2"}), oidc.ErrInvalid},
		{"no audience", with(object{"aud": nil}), oidc.ErrInvalid},
		{"several audiences, no client named", with(object{"aud": []string{"account", "pulsegate"}, "azp": nil}),
			oidc.ErrInvalid},
		{"other client", with(object{"azp": "shop"}), oidc.ErrInvalid},
		{"other client_id", with(object{"client_id": "shop"}), oidc.ErrInvalid},
		{"other appid", with(object{"appid": "shop"}), oidc.ErrInvalid},
		{"list of clients", with(object{"azp": []string{"pulsegate"}}), oidc.ErrInvalid},

		{"expired, within the skew", with(object{"exp": at(-50 * time.Second)}), nil},
		{"expired", with(object{"exp": at(-70 * time.Second)}), oidc.ErrExpired},
		{"expired, and changed", with(object{"exp": at(-70 * time.Second)})[1:], oidc.ErrInvalid},
		{"no expiry", with(object{"exp": nil}), oidc.ErrExpired},
		{"expiry as text", with(object{"exp": "4102444800"}), oidc.ErrInvalid},
		{"expiry beyond all times", with(object{"exp": 1e13}), oidc.ErrInvalid},
		{"expiry in a fraction of a second", with(object{"exp": float64(at(time.Minute)) + 0.5}), nil},
		{"future, within the skew", with(object{"nbf": at(50 * time.Second)}), nil},
		{"future", with(object{"nbf": at(70 * time.Second)}), oidc.ErrInvalid},
		{"issued in the future", with(object{"iat": at(70 * time.Second)}), oidc.ErrInvalid},
		{"nbf as text", with(object{"nbf": "1"}), oidc.ErrInvalid},

		{"subject twice", raw(`"sub":"chief"`), oidc.ErrInvalid},
		{"issuer twice", raw(`"iss":"https://else.example"`), oidc.ErrInvalid},
		{"groups twice", raw(`"groups":"admins"`), oidc.ErrInvalid},
		{"twice in an object", raw(`"realm_access":{"roles":[],"roles":["admin"]}`), oidc.ErrInvalid},
		{"twice, but for the case", raw(`"Exp":4102444800`), oidc.ErrInvalid},
		{"twice, but for the case of Unicode", raw(`"iſs":"https://else.example"`), oidc.ErrInvalid},
		{"algorithm twice", oidctest.Part(`{"alg":"none","alg":"ES256","kid":"es"}`) + "." + parts[1] + "." + parts[2],
			oidc.ErrInvalid},
		{"invalid UTF-8", raw("\"x\":\"\xff\""), oidc.ErrInvalid},
		{"not an object", house.Sign("es", nil, `[]`), oidc.ErrInvalid},
		{"not JSON", house.Sign("es", nil, `{`), oidc.ErrInvalid},

		{"no subject", with(object{"sub": nil}), oidc.ErrInvalid},
		{"long subject", with(object{"sub": strings.Repeat("a", 256)}), oidc.ErrInvalid},
		{"longest subject", with(object{"sub": strings.Repeat("a", 255)}), nil},
		{"subject that breaks a line of the log", with(object{"sub": "a\n{}"}), oidc.ErrInvalid},
		{"subject with a quote", with(object{"sub": `a","event":"x`}), oidc.ErrInvalid},
		{"subject beyond ASCII", with(object{"sub": "ä"}), oidc.ErrInvalid},

		{"ID token", with(object{"nonce": "n"}), oidc.ErrInvalid},
		{"ID token without a nonce", with(object{"at_hash": "x", "typ": nil}), oidc.ErrInvalid},
		{"ID token of Keycloak", with(object{"typ": "ID"}), oidc.ErrInvalid},
		{"refresh token of Keycloak", with(object{"typ": "Refresh"}), oidc.ErrInvalid},
		{"logout token", house.Sign("es", object{"typ": "logout+jwt"}, claims), oidc.ErrInvalid},
		{"logout token, by its claim",
			with(object{"events": object{"http://schemas.openid.net/event/backchannel-logout": object{}}}), oidc.ErrInvalid},
		{"token bound to a key", with(object{"cnf": object{"jkt": "x"}}), oidc.ErrInvalid},

		{"empty", "", oidc.ErrMalformed},
		{"one part", parts[0], oidc.ErrMalformed},
		{"four parts", good + "." + parts[2], oidc.ErrMalformed},
		{"encrypted", strings.Repeat("eyJh.", 4) + "e", oidc.ErrMalformed},
		{"space", good + " ", oidc.ErrMalformed},
		{"line break in a part", strings.Replace(good, ".", "\n.", 1), oidc.ErrMalformed},
		{"padding", good + "==", oidc.ErrMalformed},
		{"signature in JSON", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
			oidc.ErrMalformed},
		{"largest", with(object{"x": strings.Repeat("x", 5_500)}), nil},
		{"huge", with(object{"x": strings.Repeat("x", 6_100)}), oidc.ErrMalformed},
		{"10 MB", strings.Repeat("a", 10<<20), oidc.ErrMalformed},
	} {
		principal, err := p.Verify(tt.text)
		if err != tt.want || (principal != nil) != (err == nil) {
			t.Errorf("%s: principal %v, error %v, want %v", tt.name, principal, err, tt.want)
		}
		if err != nil && len(tt.text) > 20 && strings.Contains(err.Error(), tt.text[:20]) {
			t.Errorf("%s: the error has the token", tt.name)
		}
		if _, ok := oidc.Cached(p, tt.text, now.UnixMilli()); ok != (tt.want == nil) {
			t.Errorf("%s: cached: %v", tt.name, ok)
		}
	}
	if house.Requests.Load() != requests {
		t.Error("a token has made the server ask a provider")
	}
}

// What the rules allow.
func TestRules(t *testing.T) {
	house := oidctest.New(t)
	p := house.Open(write(t, "", nurses+`
[[rule]]
claim = ["realm_access", "roles"]
value = "chief"
rights = ["read", "admin"]
[[rule]]
claim = "realm_access.roles"
value = "dotted"
rights = ["admin"]
[[rule]]
claim = "azp"
value = "pulsegate"
rights = ["write"]
gateway = "bed-7"
[[rule]]
claim = "role"
value = "relative"
rights = ["read"]
subjects = ["p-1"]
[[rule]]
claim = "email_verified"
value = "true"
rights = ["admin"]
`))
	const none = token.Rights(0)
	read := token.Read | token.ReadSubjects
	for _, tt := range []struct {
		name             string
		claims           object
		rights           token.Rights
		gateway, devices string
	}{
		{"group", nil, read, "", "ward3-"},
		{"first of two", object{"realm_access": object{"roles": []string{"chief"}}}, read, "", "ward3-"},
		{"path", object{"groups": nil, "realm_access": object{"roles": []string{"x", "chief"}}}, read | token.Admin, "", ""},
		{"name with a dot is no path", object{"groups": nil, "azp": nil, "realm_access": object{"roles": "dotted"}},
			none, "", ""},
		{"name with a dot", object{"groups": nil, "azp": nil, "realm_access.roles": "dotted"}, token.Admin, "", ""},
		{"client", object{"groups": "other"}, token.Write, "bed-7", ""},
		{"subjects", object{"groups": nil, "azp": nil, "role": "relative"}, token.ReadSubjects, "", ""},
		{"text is not part of a text", object{"groups": "ward-3-nurses-former", "azp": nil}, none, "", ""},
		{"case", object{"groups": "Ward-3-nurses", "azp": nil}, none, "", ""},
		{"not a text", object{"groups": nil, "azp": nil, "email_verified": true}, none, "", ""},
		{"path through a list", object{"groups": nil, "azp": nil, "realm_access": []object{{"roles": "chief"}}},
			none, "", ""},
		{"nothing", object{"groups": nil, "azp": nil}, none, "", ""},
	} {
		principal, err := p.Verify(house.Token(tt.claims))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		rights := none
		for _, right := range []token.Rights{token.Read, token.Write, token.Admin, token.ReadSubjects} {
			if principal.Has(right) {
				rights |= right
			}
		}
		gateway := principal.Gateway()
		if rights != tt.rights || gateway.String() != tt.gateway {
			t.Errorf("%s: rights %v of %q, want %v of %q", tt.name, rights, gateway, tt.rights, tt.gateway)
		}
		device, err := vitals.ParseName([]byte(tt.devices + "x"))
		if err != nil || principal.CoversAll() != (tt.devices == "" && tt.name != "subjects") ||
			principal.Covers(&device) != (tt.name != "subjects") {
			t.Errorf("%s: covers all: %v, %s: %v", tt.name, principal.CoversAll(), device, principal.Covers(&device))
		}
		if got, want := principal.Actor(), "oidc:nurse-1 "+house.URL; got != want {
			t.Errorf("%s: actor %q, want %q", tt.name, got, want)
		}
	}
}

// A file that is wrong leaves the rules in force, a better one applies to tokens that were used before, and the cache
// keeps nothing of the former.
func TestRulesReload(t *testing.T) {
	house := oidctest.New(t)
	path := write(t, "", nurses)
	p := house.Open(path)
	text := house.Token(nil)
	covers := func() bool {
		principal, err := p.Verify(text)
		try(t, err)
		return principal.CoversAll()
	}
	if covers() {
		t.Fatal("the rule is for a ward, and the token covers all devices")
	}
	for _, wrong := range []string{"", "[[rule]]\n", nurses + nurses} {
		write(t, path, wrong)
		if err := p.Reload(); err == nil || p.Rules() != 1 || covers() {
			t.Errorf("%q: error %v, %d rules", wrong, err, p.Rules())
		}
	}
	write(t, path, strings.Replace(nurses, `devices = "ward3-"`, "", 1))
	try(t, p.Reload())
	if _, ok := oidc.Cached(p, text, time.Now().UnixMilli()); ok || !covers() {
		t.Errorf("cached %v, covers all %v after the change", ok, covers())
	}
}

// A person has one rate, however many tokens.
func TestPersonRate(t *testing.T) {
	house := oidctest.New(t)
	p, err := oidc.Open(oidc.Options{
		Issuer: house.URL, ClientID: oidctest.ClientID, Rules: write(t, "", nurses), Every: -1,
		Limits: token.Options{DefaultLimit: token.LimitOf(1, 2)},
	})
	try(t, err)
	defer p.Close()
	principal := func(claims object) (principal *token.Principal) {
		polltest.Until(t, "the keys are known",
			func() bool { principal, err = p.Verify(house.Token(claims)); return err == nil })
		return principal
	}
	now := time.Now()
	if ok, _ := principal(nil).Allow(2, now); !ok {
		t.Error("the first readings were not allowed")
	}
	if ok, _ := principal(object{"jti": "another token"}).Allow(1, now); ok {
		t.Error("another token has a rate of its own")
	}
	if ok, _ := principal(object{"sub": "nurse-2"}).Allow(1, now); !ok {
		t.Error("another person has no rate of its own")
	}
	a, b := principal(nil), principal(object{"sub": "nurse-2"})
	if a.ID() == b.ID() || a.ID() != principal(object{"jti": "x"}).ID() {
		t.Error("IDs are not those of persons")
	}
}

var try = polltest.Try
