package gate_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A houseGate is a gate with a provider.
type houseGate struct {
	*gate.Gate
	house *oidctest.Provider
}

// The rules of a houseGate: nurses of ward 3 read there, chiefs administer, and a service writes for a gateway.
const rules = `
[[rule]]
claim = "groups"
value = "ward-3-nurses"
rights = ["read"]
devices = "ward3-"
[[rule]]
claim = "groups"
value = "chiefs"
rights = ["read", "admin"]
[[rule]]
claim = "groups"
value = "relatives"
rights = ["read"]
subjects = ["p-1"]
[[rule]]
claim = "groups"
value = "bed-7"
rights = ["write"]
gateway = "bed-7"
`

func newHouse(t testing.TB) *houseGate {
	t.Helper()
	house := oidctest.New(t)
	return &houseGate{&gate.Gate{OIDC: house.Open(rulesFile(t))}, house}
}

func rulesFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules")
	try(t, os.WriteFile(path, []byte(rules), 0o600))
	return path
}

// inBubble runs a test with a houseGate in a bubble, where time passes at once.
func inBubble(t *testing.T, test func(*testing.T, *houseGate)) {
	t.Helper()
	path, house := rulesFile(t), oidctest.New(t)
	synctest.Test(t, func(t *testing.T) {
		provider, err := oidc.Open(oidc.Options{Issuer: house.URL, ClientID: oidctest.ClientID, Rules: path, Every: -1,
			Transport: house})
		try(t, err)
		t.Cleanup(provider.Close)
		synctest.Wait()
		test(t, &houseGate{&gate.Gate{OIDC: provider}, house})
	})
}

// of returns the header value of somebody in a group.
func (h *houseGate) of(group string, others oidctest.Object) string {
	claims := oidctest.Object{"groups": []string{group}}
	for name, v := range others {
		claims[name] = v
	}
	return "Bearer " + h.house.Token(claims)
}

// Every verdict about a JWT, with the header as a string and as bytes, for a caller that may wait and for one that may
// not.
func TestAuthorizeJWT(t *testing.T) {
	f := newFixture(t)
	h := newHouse(t)
	both := &gate.Gate{OIDC: h.OIDC, Tokens: f.set, Certificates: true, Audit: f.log}
	unknown := "Bearer " + h.house.Sign("es", oidctest.Object{"kid": "unknown"}, h.house.Claims(nil))
	nurse := h.of("ward-3-nurses", nil)
	for _, tt := range []visit{
		{"a nurse reads", h.Gate, nurse, nil, token.Read, gate.Allowed, ""},
		{"a nurse writes", h.Gate, nurse, nil, token.Write, gate.Forbidden, ""},
		{"a nurse administers", h.Gate, nurse, nil, token.Admin, gate.Forbidden, ""},
		{"a chief administers", h.Gate, h.of("chiefs", nil), nil, token.Admin, gate.Allowed, ""},
		{"a relative reads", h.Gate, h.of("relatives", nil), nil, token.Read, gate.Forbidden, ""},
		{"a relative reads by subject", h.Gate, h.of("relatives", nil), nil, token.ReadSubjects, gate.Allowed, ""},
		{"a service writes", h.Gate, h.of("bed-7", nil), nil, token.Write, gate.Allowed, "bed-7"},
		{"a stranger reads", h.Gate, h.of("staff", nil), nil, token.Read, gate.Forbidden, ""},
		{"lower-case scheme", h.Gate, "bearer" + nurse[6:], nil, token.Read, gate.Allowed, ""},
		{"several spaces", h.Gate, "Bearer   " + nurse[7:], nil, token.Read, gate.Allowed, ""},
		{"space after it", h.Gate, nurse + " ", nil, token.Read, gate.BadCredentials, ""},
		{"no scheme", h.Gate, nurse[7:], nil, token.Read, gate.BadCredentials, ""},
		{"other scheme", h.Gate, "DPoP" + nurse[6:], nil, token.Read, gate.BadCredentials, ""},
		{"two tokens", h.Gate, nurse + "," + nurse, nil, token.Read, gate.BadCredentials, ""},
		{"expired", h.Gate, h.of("ward-3-nurses", oidctest.Object{"exp": 1}), nil, token.Read, gate.BadCredentials, ""},
		{"other audience", h.Gate, h.of("ward-3-nurses", oidctest.Object{"aud": "x"}), nil, token.Read,
			gate.BadCredentials, ""},
		{"not a JWT", h.Gate, "Bearer eyJ", nil, token.Read, gate.BadCredentials, ""},
		{"token of a file, and none is given", h.Gate, f.read, nil, token.Read, gate.BadCredentials, ""},
		{"nothing", h.Gate, "", nil, token.Read, gate.NoCredentials, ""},
		{"token of a file", both, f.read, nil, token.Read, gate.Allowed, "ward"},
		{"a nurse, beside tokens", both, nurse, nil, token.Read, gate.Allowed, ""},
		{"a service with a certificate that names it", both, h.of("bed-7", nil), presenting("bed-7"), token.Write,
			gate.Allowed, "bed-7"},
		{"a service with a certificate of another", both, h.of("bed-7", nil), presenting("bed-1"), token.Write,
			gate.Forbidden, ""},
		{"a JWT without provider", &gate.Gate{Tokens: f.set}, nurse, nil, token.Read, gate.BadCredentials, ""},
	} {
		at := time.Now()
		if tt.tls != nil {
			at = now // the certificates are valid then
		}
		quick := func() (gate.Access, gate.Verdict) {
			access, verdict, _ := tt.gate.Authorize(gate.Credentials{Bytes: []byte(tt.auth), TLS: tt.tls, Quick: true},
				tt.right, at)
			return access, verdict
		}
		access, verdict := quick()
		if fresh := verdict == gate.Undecided; fresh && tt.want != gate.BadCredentials {
			polltest.Until(t, tt.name+": the token is verified",
				func() bool { access, verdict = quick(); return verdict != gate.Undecided })
		}
		if verdict != tt.want && (verdict != gate.Undecided || tt.want != gate.BadCredentials) ||
			access.Gateway().String() != tt.gateway {
			t.Errorf("%s: verdict %v of %q, want %v of %q", tt.name, verdict, access.Gateway(), tt.want, tt.gateway)
		}
		access, verdict, _ = tt.gate.Authorize(gate.Credentials{Authorization: tt.auth, TLS: tt.tls}, tt.right, at)
		if verdict != tt.want || access.Gateway().String() != tt.gateway {
			t.Errorf("%s: verdict %v of %q, want %v of %q", tt.name, verdict, access.Gateway(), tt.want, tt.gateway)
		}
	}
	if _, verdict, _ := h.Authorize(gate.Credentials{Authorization: nurse, Several: true}, token.Read,
		time.Now()); verdict != gate.BadCredentials {
		t.Errorf("two headers: verdict %v", verdict)
	}
	if _, verdict, _ := h.Authorize(gate.Credentials{Authorization: unknown}, token.Read,
		time.Now()); verdict != gate.BadCredentials && verdict != gate.Unavailable {
		t.Errorf("unknown key: verdict %v", verdict)
	}
	if h.Open() {
		t.Error("a gate with a provider is open")
	}
}

// A from is a peer with an address.
type from string

func (f from) PeerAddr() netip.Addr { return netip.MustParseAddr(string(f)) }

// An address that sends wrong JWTs makes the server verify a hundred, and ten more each second. Those that were
// verified before are accepted from there nevertheless, and other addresses are not concerned.
func TestWrongJWTs(t *testing.T) {
	inBubble(t, func(t *testing.T, h *houseGate) {
		authorize := func(auth string, peer from, quick bool) gate.Verdict {
			_, verdict, _ := h.Authorize(gate.Credentials{Authorization: auth, Peer: peer, Quick: quick}, token.Read, time.Now())
			return verdict
		}
		const attacker, neighbor = from("2001:db8::1"), from("2001:db8::2")
		// flood sends wrong JWTs, of which it wants some verified. The signature is that of another token.
		flood := func(verified int) {
			t.Helper()
			counts := map[gate.Verdict]int{}
			signature := h.of("chiefs", nil)
			signature = signature[strings.LastIndex(signature, "."):]
			for i := range 1000 {
				wrong := h.of("ward-3-nurses", oidctest.Object{"jti": i})
				counts[authorize(wrong[:strings.LastIndex(wrong, ".")]+signature, []from{attacker, neighbor}[i%2], false)]++
			}
			if counts[gate.BadCredentials] != verified || counts[gate.Unavailable] != 1000-verified {
				t.Errorf("verdicts %v, want %d verified", counts, verified)
			}
		}
		known, next := h.of("ward-3-nurses", nil), h.of("ward-3-nurses", oidctest.Object{"jti": "next"})
		expired := h.of("ward-3-nurses", oidctest.Object{"exp": 1})
		for i := range 200 { // these are not counted
			right := h.of("ward-3-nurses", oidctest.Object{"jti": fmt.Sprint("right-", i)})
			if v, w := authorize(right, attacker, false), authorize(expired, attacker, false); v != gate.Allowed ||
				w != gate.BadCredentials {
				t.Fatal(v, w)
			}
		}
		authorize(known, attacker, false)
		flood(100)
		if v := authorize(known, attacker, false); v != gate.Allowed {
			t.Errorf("a JWT that was verified before: verdict %v", v)
		}
		for range 3 {
			if v := authorize(next, attacker, true); v != gate.Undecided {
				t.Errorf("in the fast lane: verdict %v", v)
			}
			synctest.Wait()
		}
		if v := authorize(next, attacker, false); v != gate.Unavailable {
			t.Errorf("a right JWT from the address: verdict %v", v)
		}
		elsewhere := false // addresses may share a bucket by chance
		for _, peer := range []from{"2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"} {
			elsewhere = elsewhere || authorize(h.of("ward-3-nurses", oidctest.Object{"jti": string(peer)}), peer,
				false) == gate.Allowed
		}
		if !elsewhere {
			t.Error("other addresses are concerned")
		}
		time.Sleep(time.Second)
		if v := authorize(next, attacker, false); v != gate.Allowed {
			t.Errorf("a second later: verdict %v", v)
		}
		flood(10)
	})
}

// The audit log names a person by subject and issuer, and shares, budgets and rates are those of the person.
func TestPersonIsPrincipal(t *testing.T) {
	f := newFixture(t)
	h := newHouse(t)
	h.Audit, h.Tokens = f.log, f.set
	authorize := func(auth string, right token.Rights) gate.Access {
		access, _, _ := h.Authorize(gate.Credentials{Authorization: auth, Peer: peer{}}, right, time.Now())
		return access
	}
	first, again, other := h.of("ward-3-nurses", nil), h.of("ward-3-nurses", oidctest.Object{"jti": "2"}),
		h.of("ward-3-nurses", oidctest.Object{"sub": "nurse-2"})
	a, b, c := authorize(first, token.Read), authorize(again, token.Read), authorize(other, token.Read)
	var holders share.Holders
	holds := func(a *gate.Access) *share.Holder { holder := a.Holder(&holders, peer{}); return holder }
	ha, hb, hc := holds(&a), holds(&b), holds(&c)
	if ha != hb || ha == hc {
		t.Error("shares are not those of persons")
	}
	for _, holder := range []*share.Holder{ha, hb, hc} {
		holders.Put(holder)
	}
	if !h.TakeReads(&a, token.DefaultReads, time.Now()) || h.TakeReads(&b, 1, time.Now()) ||
		!h.TakeReads(&c, 1, time.Now()) {
		t.Error("allowances for reading are not those of persons")
	}
	authorize(first, token.Write)
	authorize("Bearer "+h.house.Token(oidctest.Object{"exp": 1}), token.Read)
	h.NotCovered(&a, peer{})
	try(t, h.Exporting(t.Context(), &a, peer{}, gate.Export{Device: name(t, "ward3-1")}))
	for reason, want := range map[audit.Reason]uint64{audit.NoRight: 1, audit.NotCovered: 1, audit.Expired: 1} {
		if got := h.Refused(reason); got != want {
			t.Errorf("rejected for %v: %d, want %d", reason, got, want)
		}
	}
	try(t, f.log.Close())
	text, err := os.ReadFile(f.path)
	try(t, err)
	actor := `"actor":"oidc:nurse-1 ` + h.house.URL + `"`
	for _, want := range []string{
		`"event":"auth.refused","reason":"no-right","peer":"192.0.2.7",` + actor,
		`"event":"auth.refused","reason":"not-covered","peer":"192.0.2.7",` + actor,
		`"event":"auth.refused","reason":"expired","peer":"192.0.2.7"`,
		`"event":"exported","device":"ward3-1","peer":"192.0.2.7",` + actor,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the log does not contain %s:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "eyJ") {
		t.Errorf("the log contains a token:\n%s", text)
	}
	if _, err := audit.VerifyLog(f.path, nil); err != nil {
		t.Error(err)
	}
}
