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
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestMain(m *testing.M) { polltest.Main(m) }

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// peer is the peer of every request in these tests.
type peer struct{}

func (peer) PeerAddr() netip.Addr { return netip.MustParseAddr("192.0.2.7") }

func name(t testing.TB, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return n
}

// presenting returns the state of a connection whose client presented a verified
// certificate.
func presenting(commonName string) *tls.ConnectionState {
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
	create := func(spec token.Token) string { return create(t, tokens, spec) }
	f.write = create(token.Token{Gateway: name(t, "bed-7"), Rights: token.Write})
	f.read = create(token.Token{Gateway: name(t, "ward"), Rights: token.Read, Devices: name(t, "ppg-")})
	f.short = create(token.Token{Gateway: name(t, "bed-8"), Rights: token.Write, Expires: now.Add(time.Second)})
	f.slow = create(token.Token{Gateway: name(t, "bed-9"), Rights: token.Write | token.Read,
		Limit: token.Limit{PerSecond: 1, Burst: 1}})
	var err error
	f.set, err = token.Open(tokens, token.Options{Every: -1})
	try(t, err)
	f.log, err = audit.Open(t.Context(), f.path, audit.Options{})
	try(t, err)
	t.Cleanup(func() {
		f.set.Close()
		_ = f.log.Close() // a test may have closed it already
	})
	return f
}

// create adds a token to the file at path, and returns it as the value of a header.
func create(t testing.TB, path string, spec token.Token) (header string) {
	t.Helper()
	keeper := token.Keeper{Path: path}
	_, err := keeper.Create(t.Context(), spec, now, func(text string) error { header = "Bearer " + text; return nil })
	try(t, err)
	return header
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
	digest, err := token.DigestOfHeader(f.slow)
	try(t, err)
	verified, err := f.set.Lookup(&digest, now.UnixMilli())
	try(t, err)
	verified.Allow(1, now)
	open := &gate.Gate{}
	tokens := &gate.Gate{Tokens: f.set, Audit: f.log}
	both := &gate.Gate{Tokens: f.set, Certificates: true, Audit: f.log}
	certs := &gate.Gate{Certificates: true, Audit: f.log}
	trusting := &gate.Gate{Tokens: f.set, Certificates: true, Audit: f.log, Trusted: func(*tls.ConnectionState) bool {
		return true
	}}
	distrusting := &gate.Gate{Tokens: f.set, Certificates: true, Audit: f.log, Trusted: func(*tls.ConnectionState) bool {
		return false
	}}
	return []visit{
		{"an open gate", open, "", nil, token.Admin, gate.Allowed, ""},
		{"an open gate and a token", open, f.write, nil, token.Write, gate.Allowed, ""},
		{"no token", tokens, "", nil, token.Write, gate.NoCredentials, ""},
		{"a writer writes", tokens, f.write, nil, token.Write, gate.Allowed, "bed-7"},
		{"a writer reads", tokens, f.write, nil, token.Read, gate.Forbidden, ""},
		{"a writer administers", tokens, f.write, nil, token.Admin, gate.Forbidden, ""},
		{"a reader reads", tokens, f.read, nil, token.Read, gate.Allowed, "ward"},
		{"a reader writes", tokens, f.read, nil, token.Write, gate.Forbidden, ""},
		{"expired", tokens, f.short, nil, token.Write, gate.BadCredentials, ""},
		{"nonsense", tokens, "Bearer x", nil, token.Write, gate.BadCredentials, ""},
		{"another scheme", tokens, "Basic " + strings.TrimPrefix(f.write, "Bearer "), nil, token.Write,
			gate.BadCredentials, ""},
		{"one digit altered", tokens, f.write[:20] + string(f.write[20]^1) + f.write[21:], nil, token.Write,
			gate.BadCredentials, ""},
		{"too many", tokens, f.slow, nil, token.Write, gate.Limited, ""},
		{"too many, but a read", tokens, f.slow, nil, token.Read, gate.Allowed, "bed-9"},
		{"a certificate that was not requested", tokens, "", presenting("bed-7"), token.Write, gate.NoCredentials, ""},
		{"a certificate", both, "", presenting("bed-1"), token.Write, gate.Allowed, "bed-1"},
		{"a certificate reads", both, "", presenting("bed-1"), token.Read, gate.Forbidden, ""},
		{"a certificate administers", both, "", presenting("bed-1"), token.Admin, gate.Forbidden, ""},
		{"a certificate without a name", both, "", presenting("bed 1"), token.Write, gate.BadCredentials, ""},
		{"a certificate without a name, and a token", both, f.write, presenting("bed 1"), token.Write,
			gate.BadCredentials, ""},
		{"certificate and token agree", both, f.write, presenting("bed-7"), token.Write, gate.Allowed, "bed-7"},
		{"certificate and token disagree", both, f.write, presenting("bed-1"), token.Write, gate.Forbidden, ""},
		{"a bad token beside a good certificate", both, "Bearer x", presenting("bed-7"), token.Write,
			gate.BadCredentials, ""},
		{"a certificate of a CA in use", trusting, "", presenting("bed-1"), token.Write, gate.Allowed, "bed-1"},
		{"a certificate of a removed CA", distrusting, "", presenting("bed-1"), token.Write, gate.BadCredentials, ""},
		{"a certificate of a removed CA, and a token", distrusting, f.write, presenting("bed-7"), token.Write,
			gate.BadCredentials, ""},
		{"a token, and no CA in use", distrusting, f.write, nil, token.Write, gate.Allowed, "bed-7"},
		{"neither", both, "", nil, token.Write, gate.NoCredentials, ""},
		{"certificates only", certs, "", presenting("bed-1"), token.Write, gate.Allowed, "bed-1"},
		{"certificates only, and none", certs, "", nil, token.Write, gate.NoCredentials, ""},
		{"certificates only, and a token", certs, f.write, presenting("bed-7"), token.Write, gate.BadCredentials, ""},
	}
}

// at returns the time of the visit.
func (v *visit) at(f *fixture) time.Time {
	if v.auth == f.short {
		return now.Add(time.Second)
	}
	return now
}

// TestAuthorize checks every verdict, with the header as a string and as bytes.
func TestAuthorize(t *testing.T) {
	f := newFixture(t)
	for _, tt := range visits(t, f) {
		t.Run(tt.name, func(t *testing.T) {
			for _, v := range []gate.Credentials{
				{Authorization: tt.auth, TLS: tt.tls, Peer: peer{}},
				{Bytes: []byte(tt.auth), TLS: tt.tls},
			} {
				access, verdict, wait := tt.gate.Authorize(v, tt.right, tt.at(f))
				if verdict != tt.want || access.Gateway().String() != tt.gateway || (wait > 0) != (tt.want == gate.Limited) {
					t.Errorf("got %v, %q, %v; want %v, %q", verdict, access.Gateway(), wait, tt.want, tt.gateway)
				}
				allowed, limited := verdict == gate.Allowed, tt.auth == f.read
				ours, other := name(t, "ppg-1"), name(t, "bed-1")
				if got := access.Covers(&ours); got != allowed {
					t.Errorf("covers: %v, want %v", got, allowed)
				}
				if got, want := access.Covers(&other), allowed && !limited; got != want {
					t.Errorf("covers another: %v, want %v", got, want)
				}
				if got, want := access.CoversAll(), allowed && !limited; got != want {
					t.Errorf("covers all: %v, want %v", got, want)
				}
				if ok, _ := access.Allow(1, tt.at(f)); ok != (allowed && tt.auth != f.slow) {
					t.Errorf("charged: %v", ok)
				}
			}
			several := gate.Credentials{Several: true, TLS: tt.tls}
			if _, verdict, _ := tt.gate.Authorize(several, tt.right, tt.at(f)); verdict != gate.BadCredentials &&
				!tt.gate.Open() {
				t.Errorf("several Authorization headers: %v", verdict)
			}
		})
	}
}

// A connection has outlived its certificate only if that has expired or its CA was
// removed.
func TestOutlived(t *testing.T) {
	distrusted := func(*tls.ConnectionState) bool { return false }
	for _, tt := range []struct {
		name string
		gate *gate.Gate
		tls  *tls.ConnectionState
		at   time.Time
		want bool
	}{
		{"valid", &gate.Gate{Certificates: true}, presenting("bed-1"), now, false},
		{"expired", &gate.Gate{Certificates: true}, presenting("bed-1"), now.Add(2 * time.Hour), true},
		{"its CA was removed", &gate.Gate{Certificates: true, Trusted: distrusted}, presenting("bed-1"), now, true},
		{"without a name, which reconnecting would not fix", &gate.Gate{Certificates: true}, presenting("bed 1"), now, false},
		{"no certificate", &gate.Gate{Certificates: true, Trusted: distrusted}, &tls.ConnectionState{}, now, false},
		{"no TLS", &gate.Gate{Certificates: true, Trusted: distrusted}, nil, now, false},
		{"a certificate that was not requested", &gate.Gate{}, presenting("bed-1"), now.Add(2 * time.Hour), false},
	} {
		if got := tt.gate.Outlived(tt.tls, tt.at); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// All rejections are counted, and the first ones are recorded. Exports are recorded
// before they begin. The log has the IDs of tokens and nothing else of them.
func TestNotes(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	for range 16 {
		g.Authorize(gate.Credentials{Peer: peer{}}, token.Write, now)
		g.Authorize(gate.Credentials{Authorization: f.read, Peer: peer{}}, token.Write, now)
	}
	access, verdict, _ := g.Authorize(gate.Credentials{Authorization: f.read}, token.Read, now)
	if verdict != gate.Allowed {
		t.Fatal(verdict)
	}
	g.NotCovered(&access, nil)
	device := name(t, "ppg-1")
	try(t, g.Exporting(t.Context(), &access, peer{}, gate.Export{Device: device, From: now}))
	for reason, want := range map[audit.Reason]uint64{
		audit.NoCredentials: 16, audit.NoRight: 16, audit.NotCovered: 1, audit.Expired: 0, audit.Contradictions + 1: 0,
		audit.OtherGateway: 0,
	} {
		if got := g.Refused(reason); got != want {
			t.Errorf("rejected for %v: %d, want %d", reason, got, want)
		}
	}
	rec := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, gate.Collector{Gate: g}).ServeHTTP(rec,
		httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`pulsegate_auth_refused_total{reason="bad_certificate"} 0`,
		`pulsegate_auth_refused_total{reason="no_credentials"} 16`,
		`pulsegate_auth_refused_total{reason="no_right"} 16`, `pulsegate_auth_refused_total{reason="not_covered"} 1`,
		"pulsegate_tokens 4", "pulsegate_tokens_stale 0", `pulsegate_certificate_expiry_timestamp_seconds{use="client_ca"} 0`,
		"pulsegate_certificates_stale 0",
	} {
		if !strings.Contains(rec.Body.String(), "\n"+want+"\n") {
			t.Errorf("a scrape does not show %s:\n%s", want, rec.Body)
		}
	}
	try(t, f.log.Close())
	text, err := os.ReadFile(f.path)
	try(t, err)
	for _, want := range []string{
		`"event":"auth.refused","reason":"no-credentials","peer":"192.0.2.7"`,
		`"reason":"no-right"`, `"event":"auth.refused-more","count":13`,
		`"gateway":"ward","device":"ppg-1","from":"2026-11-21T10:00:00.000Z","peer":"192.0.2.7"`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the log does not contain %s:\n%s", want, text)
		}
	}
	if bytes.Contains(text, []byte(token.Prefix)) {
		t.Errorf("the log contains a token:\n%s", text)
	}
	if err := g.Exporting(t.Context(), &access, nil, gate.Export{Device: device}); err == nil {
		t.Error("Exporting returned nil although the log is closed")
	}
	g.Audit = nil
	if err := g.Exporting(t.Context(), &access, nil, gate.Export{Device: device}); err != nil {
		t.Errorf("without an audit log: %v", err)
	}
}

// Contradictions are counted per token, or per name in a certificate. MayRead is true
// with the read right only.
func TestContradictions(t *testing.T) {
	f := newFixture(t)
	hourly := token.Hourly{Contradictions: 2}
	set, err := token.Open(f.tokens, token.Options{Every: -1, Hourly: hourly})
	try(t, err)
	t.Cleanup(set.Close)
	g := &gate.Gate{Tokens: set, Certificates: true, Audit: f.log, Hourly: hourly}
	authorize := func(auth string, cs *tls.ConnectionState, right token.Rights) *gate.Access {
		t.Helper()
		access, verdict, _ := g.Authorize(gate.Credentials{Authorization: auth, TLS: cs}, right, now)
		if verdict != gate.Allowed {
			t.Fatal(verdict)
		}
		return &access
	}
	for _, again := range []bool{false, true} { // a reload and another request refill no budget
		for i, tt := range []struct {
			access *gate.Access
			reads  bool
		}{
			{authorize(f.write, nil, token.Write), false},
			{authorize("", presenting("bed-1"), token.Write), false},
			{authorize("", presenting("bed-2"), token.Write), false},
			{authorize(f.slow, nil, token.Write), true},
		} {
			if got := tt.access.MayRead(); got != tt.reads {
				t.Errorf("%d: may read: %v, want %v", i, got, tt.reads)
			}
			if tt.reads {
				continue
			}
			if !again {
				for n, want := range []bool{true, true, false} {
					if got := g.TakeContradiction(tt.access, now); got != want {
						t.Errorf("%d: contradiction %d of a budget of two: %v, want %v", i, n+1, got, want)
					}
				}
				g.ReturnContradiction(tt.access, now)
				if !g.TakeContradiction(tt.access, now) {
					t.Errorf("%d: a returned contradiction cannot be taken again", i)
				}
			}
			if g.TakeContradiction(tt.access, now) {
				t.Errorf("%d: took more than the budget", i)
			}
			if wait := g.Withheld(tt.access, peer{}, now); wait != 30*time.Minute {
				t.Errorf("%d: wait %v, want 30m", i, wait)
			}
			if later := now.Add(30 * time.Minute); again && !g.TakeContradiction(tt.access, later) {
				t.Errorf("%d: nothing to take after half an hour", i)
			}
		}
		create(t, f.tokens, token.Token{Gateway: name(t, "new"), Rights: token.Write})
		try(t, set.Reload())
	}
	if n := g.Refused(audit.Contradictions); n != 6 {
		t.Errorf("%d rejections were counted, want 6", n)
	}
	access, _, _ := (&gate.Gate{}).Authorize(gate.Credentials{}, token.Write, now)
	if !access.MayRead() {
		t.Error("an open gate does not allow reads")
	}
}

// Readings read in pages are counted per token, or together if there are no tokens.
// Without an audit log they are not counted.
func TestReads(t *testing.T) {
	f := newFixture(t)
	set, err := token.Open(f.tokens, token.Options{Every: -1, Hourly: token.Hourly{Reads: 100}})
	try(t, err)
	t.Cleanup(set.Close)
	for _, g := range []*gate.Gate{
		{Tokens: set, Audit: f.log},
		{Audit: f.log, Hourly: token.Hourly{Reads: 100}},
	} {
		read := func(n int, at time.Time) bool {
			t.Helper()
			access, verdict, _ := g.Authorize(gate.Credentials{Authorization: f.read}, token.Read, at)
			if verdict != gate.Allowed {
				t.Fatal(verdict)
			}
			ok := g.TakeReads(&access, n, at)
			if ok && n == 1000 { // an empty page
				g.ReturnReads(&access, n, at)
			}
			return ok
		}
		for range 5 {
			if !read(1000, now) {
				t.Fatal("returned readings still count")
			}
		}
		if !read(60, now) || !read(100, now) || read(1, now) {
			t.Error("the budget is not 100 readings with a last page that may exceed it")
		}
		if later := now.Add(36 * time.Minute); read(1, later) || !read(1, later.Add(time.Minute)) {
			t.Error("the debt of 60 is not paid after 37 minutes")
		}
	}
	g := &gate.Gate{Tokens: set}
	access, _, _ := g.Authorize(gate.Credentials{Authorization: f.read}, token.Read, now)
	for range 3 {
		if !g.TakeReads(&access, 100, now) {
			t.Error("readings were counted without an audit log")
		}
	}
}

func TestCredentialsOf(t *testing.T) {
	state := presenting("bed-7")
	r := &http.Request{Header: http.Header{}, RemoteAddr: "[::ffff:192.0.2.7]:4711", TLS: state}
	v := gate.CredentialsOf(r)
	if v.Authorization != "" || v.Several || v.TLS != state ||
		v.Peer.PeerAddr().Unmap() != netip.MustParseAddr("192.0.2.7") {
		t.Errorf("got %+v from %v", v, v.Peer.PeerAddr())
	}
	r.Header.Add("Authorization", "Bearer x")
	if v := gate.CredentialsOf(r); v.Authorization != "Bearer x" || v.Several {
		t.Errorf("with one header: %+v", v)
	}
	r.Header.Add("Authorization", "Bearer x")
	if v := gate.CredentialsOf(r); !v.Several {
		t.Errorf("with two headers: %+v", v)
	}
	r.RemoteAddr = "pipe"
	if addr := gate.PeerOf(r).PeerAddr(); addr.IsValid() {
		t.Errorf("address of a pipe: %v", addr)
	}
}

// A token is in force when it is handed out, although the Set does not look at the file by
// itself, and a file that cannot be used changes nothing.
func TestNewToken(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	for _, credentials := range []func(string) gate.Credentials{
		func(auth string) gate.Credentials { return gate.Credentials{Authorization: auth} },
		func(auth string) gate.Credentials { return gate.Credentials{Bytes: []byte(auth)} },
	} {
		keeper := token.Keeper{Path: f.tokens}
		_, err := keeper.Create(t.Context(), token.Token{Gateway: name(t, "new"), Rights: token.Write}, now,
			func(text string) error {
				if access, verdict, _ := g.Authorize(credentials("Bearer "+text), token.Write, now); verdict != gate.Allowed ||
					access.Gateway().String() != "new" {
					t.Errorf("a new token: verdict %v, gateway %q; want %v", verdict, access.Gateway().String(), gate.Allowed)
				}
				return nil
			})
		try(t, err)
	}
	try(t, os.WriteFile(f.tokens, []byte("damaged"), 0o600))
	unknown := "Bearer pgt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8vnZKd"
	if _, verdict, _ := g.Authorize(gate.Credentials{Authorization: unknown}, token.Write,
		now); verdict != gate.BadCredentials {
		t.Errorf("an unknown token: verdict %v, want %v", verdict, gate.BadCredentials)
	}
	if _, verdict, _ := g.Authorize(gate.Credentials{Authorization: f.write}, token.Write, now); verdict != gate.Allowed {
		t.Errorf("a known token after the file was damaged: verdict %v, want %v", verdict, gate.Allowed)
	}
}

// TestBoundToSubjects checks that a token which is bound to subjects is allowed nothing but to read
// by subject, and begins no session.
func TestBoundToSubjects(t *testing.T) {
	f := newFixture(t)
	auth := create(t, f.tokens, token.Token{Gateway: name(t, "ehr"), Rights: token.Read, Subjects: "P-1"})
	set, err := token.Open(f.tokens, token.Options{Every: -1})
	try(t, err)
	defer set.Close()
	g := &gate.Gate{Tokens: set, Audit: f.log}
	device := name(t, "ppg-1")
	for _, right := range []token.Rights{token.Read, token.Write, token.Admin, token.Read | token.ReadSubjects} {
		a, verdict, _ := g.Authorize(gate.Credentials{Authorization: auth}, right, now)
		if verdict != gate.Forbidden || a.CoversAll() || a.Covers(&device) || a.CoversSubject("P-1") || a.MayRead() {
			t.Errorf("right %v: verdict %v, access %+v", right, verdict, a)
		}
		if !a.BoundToSubjects() || !strings.Contains(a.WhyNotRead(), "bound to subjects") {
			t.Errorf("right %v: not bound, %q", right, a.WhyNotRead())
		}
	}
	a, verdict, _ := g.Authorize(gate.Credentials{Authorization: auth}, token.ReadSubjects, now)
	if verdict != gate.Allowed || !a.BoundToSubjects() || !a.CoversSubject("P-1") || a.CoversSubject("P-2") ||
		a.Covers(&device) || a.CoversAll() || a.MayRead() {
		t.Errorf("verdict %v, access %+v", verdict, a)
	}
	if v := g.SignIn(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil),
		strings.TrimPrefix(auth, "Bearer "), now); v != gate.Forbidden {
		t.Errorf("SignIn returns %v", v)
	}
	a, verdict, _ = g.Authorize(gate.Credentials{Authorization: f.read}, token.ReadSubjects, now)
	if verdict != gate.Allowed || a.BoundToSubjects() || !a.CoversSubject("P-2") || !a.Covers(&device) {
		t.Errorf("not bound: verdict %v, access %+v", verdict, a)
	}
	if _, verdict, _ = g.Authorize(gate.Credentials{Authorization: f.write}, token.ReadSubjects,
		now); verdict != gate.Forbidden {
		t.Errorf("without the read right: verdict %v", verdict)
	}
	var open gate.Gate
	if a, _, _ := open.Authorize(gate.Credentials{}, token.ReadSubjects, now); a.BoundToSubjects() ||
		!a.CoversSubject("P-1") {
		t.Errorf("open: %+v", a)
	}
}

var try = polltest.Try

// What a reader must not see: a token that is bound to subjects reads its own and nothing else. A token for some
// devices reads a subject only if it covers all devices that the subject ever wore, and does not learn whether there
// are others.
func TestMayReadSubject(t *testing.T) {
	f := gatetest.New(t)
	all := f.Token(t, "archive", "", token.Token{Rights: token.Read})
	ward := f.Token(t, "ward", "a-", token.Token{Rights: token.Read})
	bound := f.Token(t, "study", "", token.Token{Rights: token.Read, Subjects: "P-1"})
	g := f.Open(t)
	names := func(texts ...string) (all []vitals.Name) {
		for _, text := range texts {
			n, err := vitals.ParseName(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
		return all
	}
	for _, tt := range []struct {
		name, token, subject string
		devices              []vitals.Name
		want                 bool
	}{
		{"all devices", all, "P-1", names("a-1", "b-1"), true},
		{"all devices, nobody's subject", all, "P-9", nil, true},
		{"its devices", ward, "P-1", names("a-1", "a-2"), true},
		{"another device among them", ward, "P-1", names("a-1", "b-1"), false},
		{"another device", ward, "P-1", names("b-1"), false},
		{"some devices, nobody's subject", ward, "P-9", nil, false},
		{"its subject", bound, "P-1", names("a-1", "b-1"), true},
		{"its subject, without devices", bound, "P-1", nil, true},
		{"another subject", bound, "P-2", names("a-1"), false},
		{"another subject, without devices", bound, "P-2", nil, false},
	} {
		access, verdict, _ := g.Authorize(gate.Credentials{Authorization: tt.token}, token.ReadSubjects, time.Now())
		if got := access.MayReadSubject(tt.subject, tt.devices); verdict != gate.Allowed || got != tt.want {
			t.Errorf("%s: %v, %t, want %t", tt.name, verdict, got, tt.want)
		}
	}
	if nothing := (gate.Access{}); nothing.MayReadSubject("P-1", names("a-1")) {
		t.Error("the zero Access may read a subject")
	}
}
