package gate_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/vitals"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// peer is where every request of these tests comes from.
type peer struct{}

func (peer) PeerAddr() netip.Addr { return netip.MustParseAddr("192.0.2.7") }

func name(t testing.TB, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// showing is a connection whose client showed a verified certificate.
func showing(commonName string) *tls.ConnectionState {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}, NotAfter: now.Add(time.Hour)}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

// A fixture is an audit log and a token file, with a header value for each token.
type fixture struct {
	set  *token.Set
	log  *audit.Log
	path string // of the log

	tokens string // path of the token file

	write, read, short, slow string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{path: filepath.Join(dir, "audit")}
	tokens := filepath.Join(dir, "tokens")
	f.tokens = tokens
	create := func(spec token.Spec) string {
		text, _, err := token.Create(t.Context(), tokens, spec, now)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text
	}
	f.write = create(token.Spec{Gateway: name(t, "bed-7"), Rights: token.Write})
	f.read = create(token.Spec{Gateway: name(t, "ward"), Rights: token.Read, Devices: name(t, "ppg-")})
	f.short = create(token.Spec{Gateway: name(t, "bed-8"), Rights: token.Write, Expires: now.Add(time.Second)})
	f.slow = create(token.Spec{Gateway: name(t, "bed-9"), Rights: token.Write | token.Read, Limit: token.Limit{PerSecond: 1, Burst: 1}})
	var err error
	if f.set, err = token.Open(tokens, token.Options{Every: -1}); err != nil {
		t.Fatal(err)
	}
	if f.log, err = audit.Open(t.Context(), f.path, audit.Options{RefusedPerMinute: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.set.Close()
		_ = f.log.Close() // it may be closed already
	})
	return f
}

// A visit is one row of the table of verdicts.
type visit struct {
	name    string
	gate    *gate.Gate
	auth    string
	tls     *tls.ConnectionState
	right   token.Rights
	want    gate.Verdict
	gateway string
}

func visits(t testing.TB, f *fixture) []visit {
	grant, err := f.set.LookupString(f.slow, now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	grant.Allow(1, now)
	open := &gate.Gate{}
	tokens := &gate.Gate{Tokens: f.set, Audit: f.log}
	both := &gate.Gate{Tokens: f.set, Certificates: true, Audit: f.log}
	certs := &gate.Gate{Certificates: true, Audit: f.log}
	trusting := &gate.Gate{Tokens: f.set, Certificates: true, Audit: f.log, Trusted: func(*tls.ConnectionState) bool { return true }}
	distrusting := &gate.Gate{Tokens: f.set, Certificates: true, Audit: f.log, Trusted: func(*tls.ConnectionState) bool { return false }}
	return []visit{
		{"an open gate", open, "", nil, token.Admin, gate.Passed, ""},
		{"an open gate and a token", open, f.write, nil, token.Write, gate.Passed, ""},
		{"no token", tokens, "", nil, token.Write, gate.NoCredentials, ""},
		{"a writer writes", tokens, f.write, nil, token.Write, gate.Passed, "bed-7"},
		{"a writer reads", tokens, f.write, nil, token.Read, gate.Forbidden, ""},
		{"a writer administers", tokens, f.write, nil, token.Admin, gate.Forbidden, ""},
		{"a reader reads", tokens, f.read, nil, token.Read, gate.Passed, "ward"},
		{"a reader writes", tokens, f.read, nil, token.Write, gate.Forbidden, ""},
		{"expired", tokens, f.short, nil, token.Write, gate.BadCredentials, ""},
		{"nonsense", tokens, "Bearer x", nil, token.Write, gate.BadCredentials, ""},
		{"another scheme", tokens, "Basic " + strings.TrimPrefix(f.write, "Bearer "), nil, token.Write, gate.BadCredentials, ""},
		{"one digit altered", tokens, f.write[:20] + string(f.write[20]^1) + f.write[21:], nil, token.Write, gate.BadCredentials, ""},
		{"too many", tokens, f.slow, nil, token.Write, gate.Limited, ""},
		{"too many, reading", tokens, f.slow, nil, token.Read, gate.Passed, "bed-9"},
		{"a certificate that nobody asked for", tokens, "", showing("bed-7"), token.Write, gate.NoCredentials, ""},
		{"a certificate", both, "", showing("bed-1"), token.Write, gate.Passed, "bed-1"},
		{"a certificate reads", both, "", showing("bed-1"), token.Read, gate.Forbidden, ""},
		{"a certificate administers", both, "", showing("bed-1"), token.Admin, gate.Forbidden, ""},
		{"a certificate without a name", both, "", showing("bed 1"), token.Write, gate.BadCredentials, ""},
		{"a certificate without a name, and a token", both, f.write, showing("bed 1"), token.Write, gate.BadCredentials, ""},
		{"certificate and token agree", both, f.write, showing("bed-7"), token.Write, gate.Passed, "bed-7"},
		{"certificate and token disagree", both, f.write, showing("bed-1"), token.Write, gate.Forbidden, ""},
		{"a bad token beside a good certificate", both, "Bearer x", showing("bed-7"), token.Write, gate.BadCredentials, ""},
		{"a certificate of a CA in use", trusting, "", showing("bed-1"), token.Write, gate.Passed, "bed-1"},
		{"a certificate of a CA that was taken out", distrusting, "", showing("bed-1"), token.Write, gate.BadCredentials, ""},
		{"a certificate of a CA that was taken out, and a token", distrusting, f.write, showing("bed-7"), token.Write, gate.BadCredentials, ""},
		{"a token where no CA is in use", distrusting, f.write, nil, token.Write, gate.Passed, "bed-7"},
		{"neither", both, "", nil, token.Write, gate.NoCredentials, ""},
		{"certificates only", certs, "", showing("bed-1"), token.Write, gate.Passed, "bed-1"},
		{"certificates only, and none", certs, "", nil, token.Write, gate.NoCredentials, ""},
		{"certificates only, and a token", certs, f.write, showing("bed-7"), token.Write, gate.BadCredentials, ""},
	}
}

// at is when a visit takes place.
func (v *visit) at(f *fixture) time.Time {
	if v.auth == f.short {
		return now.Add(time.Second)
	}
	return now
}

// Every verdict, for a header that comes as a string and as bytes.
func TestEnter(t *testing.T) {
	f := newFixture(t)
	for _, tt := range visits(t, f) {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range []gate.Visitor{
				{Authorization: tt.auth, TLS: tt.tls, Peer: peer{}},
				{Bytes: []byte(tt.auth), TLS: tt.tls},
			} {
				pass, verdict, wait := tt.gate.Enter(v, tt.right, tt.at(f))
				if verdict != tt.want || pass.Gateway().String() != tt.gateway || (wait > 0) != (tt.want == gate.Limited) {
					t.Errorf("got %v, %q, %v; want %v, %q", verdict, pass.Gateway(), wait, tt.want, tt.gateway)
				}
				passed, limited := verdict == gate.Passed, tt.auth == f.read
				ours, other := name(t, "ppg-1"), name(t, "bed-1")
				if got := pass.Covers(&ours); got != passed {
					t.Errorf("covers: %v, want %v", got, passed)
				}
				if got, want := pass.Covers(&other), passed && !limited; got != want {
					t.Errorf("covers another: %v, want %v", got, want)
				}
				if got, want := pass.CoversAll(), passed && !limited; got != want {
					t.Errorf("covers all: %v, want %v", got, want)
				}
				if ok, _ := pass.Charge(1, tt.at(f)); ok != (passed && tt.auth != f.slow) {
					t.Errorf("charged: %v", ok)
				}
			}
			several := gate.Visitor{Several: true, TLS: tt.tls}
			if _, verdict, _ := tt.gate.Enter(several, tt.right, tt.at(f)); verdict != gate.BadCredentials && !tt.gate.Open() {
				t.Errorf("several Authorization headers: %v", verdict)
			}
		})
	}
}

// A connection has outlived a certificate that has expired or whose CA was taken out,
// and no other.
func TestOutlived(t *testing.T) {
	distrusted := func(*tls.ConnectionState) bool { return false }
	for _, tt := range []struct {
		name string
		gate *gate.Gate
		tls  *tls.ConnectionState
		at   time.Time
		want bool
	}{
		{"valid", &gate.Gate{Certificates: true}, showing("bed-1"), now, false},
		{"expired", &gate.Gate{Certificates: true}, showing("bed-1"), now.Add(2 * time.Hour), true},
		{"its CA was taken out", &gate.Gate{Certificates: true, Trusted: distrusted}, showing("bed-1"), now, true},
		{"without a name, which a new connection would not mend", &gate.Gate{Certificates: true}, showing("bed 1"), now, false},
		{"no certificate", &gate.Gate{Certificates: true, Trusted: distrusted}, &tls.ConnectionState{}, now, false},
		{"no TLS", &gate.Gate{Certificates: true, Trusted: distrusted}, nil, now, false},
		{"a certificate that nobody asked for", &gate.Gate{}, showing("bed-1"), now.Add(2 * time.Hour), false},
	} {
		if got := tt.gate.Outlived(tt.tls, tt.at); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Refusals are counted, all of them, and recorded, the first ones; exports are
// recorded before they begin. Nothing of a token but its ID is in the log.
func TestNotes(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	for range 10 {
		g.Enter(gate.Visitor{Peer: peer{}}, token.Write, now)
		g.Enter(gate.Visitor{Authorization: f.read, Peer: peer{}}, token.Write, now)
	}
	pass, verdict, _ := g.Enter(gate.Visitor{Authorization: f.read}, token.Read, now)
	if verdict != gate.Passed {
		t.Fatal(verdict)
	}
	g.NotCovered(&pass, nil)
	device := name(t, "ppg-1")
	if err := g.Exporting(t.Context(), &pass, peer{}, gate.Export{Device: device, From: now}); err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[audit.Reason]uint64{
		audit.NoCredentials: 10, audit.NoRight: 10, audit.NotCovered: 1, audit.Expired: 0, audit.Contradictions + 1: 0,
	} {
		if got := g.Refused(reason); got != want {
			t.Errorf("refused for %v: %d, want %d", reason, got, want)
		}
	}
	rec := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, gate.Collector{Gate: g}).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`pulsegate_auth_refused_total{reason="bad_certificate"} 0`, `pulsegate_auth_refused_total{reason="no_credentials"} 10`,
		`pulsegate_auth_refused_total{reason="no_right"} 10`, `pulsegate_auth_refused_total{reason="not_covered"} 1`,
		"pulsegate_tokens 4", "pulsegate_tokens_stale 0", "pulsegate_certificate_expiry_timestamp_seconds 0", "pulsegate_certificates_stale 0",
	} {
		if !strings.Contains(rec.Body.String(), "\n"+want+"\n") {
			t.Errorf("a scrape does not show %s:\n%s", want, rec.Body)
		}
	}
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"event":"auth.refused","reason":"no-credentials","peer":"192.0.2.7"`,
		`"reason":"no-right"`, `"event":"auth.refused-more","count":17`,
		`"gateway":"ward","device":"ppg-1","from":"2026-11-21T10:00:00.000Z","peer":"192.0.2.7"`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the log does not hold %s:\n%s", want, text)
		}
	}
	if bytes.Contains(text, []byte(token.Prefix)) {
		t.Errorf("the log holds a token:\n%s", text)
	}
	if err := g.Exporting(t.Context(), &pass, nil, gate.Export{Device: device}); err == nil {
		t.Error("an export that cannot be recorded was let go on")
	}
	g.Audit = nil
	if err := g.Exporting(t.Context(), &pass, nil, gate.Export{Device: device}); err != nil {
		t.Errorf("without an audit log: %v", err)
	}
}

// Contradictions are counted for each token, and for each name that a certificate
// bears. Whoever has the right to read is known.
func TestContradictions(t *testing.T) {
	f := newFixture(t)
	hourly := token.Hourly{Contradictions: 2}
	set, err := token.Open(f.tokens, token.Options{Every: -1, Hourly: hourly})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	g := &gate.Gate{Tokens: set, Certificates: true, Audit: f.log, Hourly: hourly}
	enter := func(auth string, cs *tls.ConnectionState, right token.Rights) *gate.Pass {
		t.Helper()
		pass, verdict, _ := g.Enter(gate.Visitor{Authorization: auth, TLS: cs}, right, now)
		if verdict != gate.Passed {
			t.Fatal(verdict)
		}
		return &pass
	}
	for _, again := range []bool{false, true} { // a reload and another request change nothing
		for i, tt := range []struct {
			pass  *gate.Pass
			reads bool
		}{
			{enter(f.write, nil, token.Write), false},
			{enter("", showing("bed-1"), token.Write), false},
			{enter("", showing("bed-2"), token.Write), false},
			{enter(f.slow, nil, token.Write), true},
		} {
			if got := tt.pass.MayRead(); got != tt.reads {
				t.Errorf("%d: may read: %v, want %v", i, got, tt.reads)
			}
			if tt.reads {
				continue
			}
			if !again {
				for n, want := range []bool{true, true, false} {
					if got := g.Contradict(tt.pass, now); got != want {
						t.Errorf("%d: contradiction %d of a budget of two: %v, want %v", i, n+1, got, want)
					}
				}
				g.Agreed(tt.pass, now)
				if !g.Contradict(tt.pass, now) {
					t.Errorf("%d: what was given back cannot be taken", i)
				}
			}
			if g.Contradict(tt.pass, now) {
				t.Errorf("%d: more than the budget", i)
			}
			if wait := g.Withheld(tt.pass, peer{}, now); wait != 30*time.Minute {
				t.Errorf("%d: wait %v, want 30m", i, wait)
			}
			if later := now.Add(30 * time.Minute); again && !g.Contradict(tt.pass, later) {
				t.Errorf("%d: nothing left after half an hour", i)
			}
		}
		if _, _, err := token.Create(t.Context(), f.tokens, token.Spec{Gateway: name(t, "new"), Rights: token.Write}, now); err != nil {
			t.Fatal(err)
		}
		if err := set.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.Refused(audit.Contradictions); n != 6 {
		t.Errorf("%d noted, want 6", n)
	}
	pass, _, _ := (&gate.Gate{}).Enter(gate.Visitor{}, token.Write, now)
	if !pass.MayRead() {
		t.Error("whoever comes to an open gate may not read")
	}
}

// Readings in pages are counted for each token, and together where there are none; where
// there is no audit log they are not.
func TestReads(t *testing.T) {
	f := newFixture(t)
	set, err := token.Open(f.tokens, token.Options{Every: -1, Hourly: token.Hourly{Reads: 100}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	for _, g := range []*gate.Gate{
		{Tokens: set, Audit: f.log},
		{Audit: f.log, Hourly: token.Hourly{Reads: 100}},
	} {
		read := func(n int, at time.Time) bool {
			t.Helper()
			pass, verdict, _ := g.Enter(gate.Visitor{Authorization: f.read}, token.Read, at)
			if verdict != gate.Passed {
				t.Fatal(verdict)
			}
			ok := g.Reading(&pass, n, at)
			if ok && n == 1000 { // a page of which nothing is there
				g.Unread(&pass, n, at)
			}
			return ok
		}
		for range 5 {
			if !read(1000, now) {
				t.Fatal("what was given back counts")
			}
		}
		if !read(60, now) || !read(100, now) || read(1, now) {
			t.Error("the budget is not of 100 readings, of which the last may be exceeded")
		}
		if later := now.Add(36 * time.Minute); read(1, later) || !read(1, later.Add(time.Minute)) {
			t.Error("the debt of 60 is not paid after 37 minutes")
		}
	}
	g := &gate.Gate{Tokens: set}
	pass, _, _ := g.Enter(gate.Visitor{Authorization: f.read}, token.Read, now)
	for range 3 {
		if !g.Reading(&pass, 100, now) {
			t.Error("counted without an audit log")
		}
	}
}

func TestVisitorOf(t *testing.T) {
	state := showing("bed-7")
	r := &http.Request{Header: http.Header{}, RemoteAddr: "[::ffff:192.0.2.7]:4711", TLS: state}
	v := gate.VisitorOf(r)
	if v.Authorization != "" || v.Several || v.TLS != state || v.Peer.PeerAddr().Unmap() != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("got %+v from %v", v, v.Peer.PeerAddr())
	}
	r.Header.Add("Authorization", "Bearer x")
	if v := gate.VisitorOf(r); v.Authorization != "Bearer x" || v.Several {
		t.Errorf("with one header: %+v", v)
	}
	r.Header.Add("Authorization", "Bearer x")
	if v := gate.VisitorOf(r); !v.Several {
		t.Errorf("with two headers: %+v", v)
	}
	r.RemoteAddr = "pipe"
	if addr := gate.PeerOf(r).PeerAddr(); addr.IsValid() {
		t.Errorf("address of a pipe: %v", addr)
	}
}
