package gate_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/access/signin"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// A desk is the part of a provider where browsers sign in, and of which codes and refresh tokens are redeemed once.
type desk struct {
	*houseGate
	t    *testing.T
	page string

	mu       sync.Mutex
	codes    map[string]url.Values // guarded by mu; the requests that they answer
	group    string                // guarded by mu; of the person who signs in
	claims   oidctest.Object       // guarded by mu; in place of the right ones
	status   int                   // guarded by mu; of answers to refreshes; 0 is 200
	key      string                // guarded by mu; that signs
	once     bool                  // guarded by mu; there are no refresh tokens
	hold     chan struct{}         // guarded by mu; if not nil, requests wait for its end
	redeemed int                   // guarded by mu; requests
}

func newDesk(t *testing.T, page string) *desk {
	t.Helper()
	return newHouse(t).desk(t, page)
}

func (h *houseGate) desk(t *testing.T, page string) *desk {
	d := &desk{houseGate: h, t: t, page: page, codes: map[string]url.Values{}, group: "ward-3-nurses", key: "es"}
	d.SignIns = signin.New(signin.Options{Provider: d.OIDC, ClientID: oidctest.ClientID, Secret: "s", Page: page})
	t.Cleanup(d.SignIns.Close)
	answer := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			d.redeem(w, r)
		}
		return r.URL.Path == "/token"
	}
	d.house.Answer.Store(&answer)
	return d
}

func (d *desk) redeem(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.redeemed++
	if hold := d.hold; hold != nil {
		d.mu.Unlock()
		<-hold
		d.mu.Lock()
	}
	w.Header().Set("Content-Type", "application/json")
	code := r.FormValue("code") + r.FormValue("refresh_token")
	asked, ok := d.codes[code]
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	id, secret, _ := r.BasicAuth()
	refresh := r.FormValue("grant_type") == "refresh_token"
	if !ok || id != oidctest.ClientID || secret != "s" ||
		!refresh && asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	if refresh && d.status != 0 {
		w.WriteHeader(d.status)
		return
	}
	delete(d.codes, code)
	d.codes["r"+code] = asked
	claims := oidctest.Object{"groups": []string{d.group}, "nonce": asked.Get("nonce"), "typ": "ID"}
	for name, v := range d.claims {
		claims[name] = v
	}
	answer := oidctest.Object{"access_token": "a", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r" + code,
		"id_token": d.house.Sign(d.key, nil, d.house.Claims(claims))}
	if d.once {
		delete(answer, "refresh_token")
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		d.t.Error(err)
	}
}

// set changes what the desk does.
func (d *desk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// begin begins a sign-in, and returns the browser's cookie and the answer of the provider.
func (d *desk) begin(code string) (*http.Cookie, url.Values) {
	d.t.Helper()
	w := httptest.NewRecorder()
	address, err := gate.BeginSignIn(d.Gate, w)
	try(d.t, err)
	u, err := url.Parse(address)
	try(d.t, err)
	d.set(func() { d.codes[code] = u.Query() })
	return w.Result().Cookies()[0], url.Values{"code": {code}, "state": {u.Query().Get("state")}}
}

// finish finishes it, and returns the cookie of the session.
func (d *desk) finish(answer url.Values, cookies ...*http.Cookie) (gate.Verdict, *http.Cookie) {
	d.t.Helper()
	r := httptest.NewRequest(http.MethodGet, d.page+signin.CallbackPath+"?"+answer.Encode(), nil)
	for _, c := range cookies {
		if c != nil {
			r.AddCookie(c)
		}
	}
	w := httptest.NewRecorder()
	v := gate.FinishSignIn(d.Gate, w, r, time.Now())
	for _, c := range w.Result().Cookies() {
		if c.MaxAge > 0 {
			return v, c
		}
	}
	return v, nil
}

// signIn signs somebody in, and returns the cookie of the session.
func (d *desk) signIn(code string) *http.Cookie {
	d.t.Helper()
	begun, answer := d.begin(code)
	v, session := d.finish(answer, begun)
	if v != gate.Allowed {
		d.t.Fatalf("verdict %v", v)
	}
	return session
}

// pass lets time pass, and returns the number of requests for tokens in it.
func (d *desk) pass(duration time.Duration) int {
	before := d.count()
	time.Sleep(duration)
	synctest.Wait()
	return d.count() - before
}

// count returns the number of requests for tokens.
func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.redeemed
}

// reads returns the verdict about a read with a session.
func (d *desk) reads(c *http.Cookie) (gate.Access, gate.Verdict) {
	r := httptest.NewRequest(http.MethodGet, d.page, nil)
	r.AddCookie(c)
	a, v, _ := d.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	return a, v
}

const securePage = "https://pulsegate.example/"

// A session of a person who has signed in at the provider allows what the rules say, and reads only. The cookie of
// either is the host's own.
func TestSignInAtProvider(t *testing.T) {
	d := newDesk(t, securePage)
	begun, answer := d.begin("c")
	if begun.Name != "__Host-pulsegate-begin" || !begun.Secure || !begun.HttpOnly ||
		begun.SameSite != http.SameSiteLaxMode || begun.Path != "/" {
		t.Errorf("the sign-in has the cookie %v", begun)
	}
	planted := &http.Cookie{Name: "__Host-pulsegate", Value: "planted"}
	v, session := d.finish(answer, begun, planted)
	if v != gate.Allowed || session == nil || session.Name != "__Host-pulsegate" || !session.Secure || !session.HttpOnly ||
		session.SameSite != http.SameSiteStrictMode {
		t.Fatalf("verdict %v, cookie %v", v, session)
	}
	access, v := d.reads(session)
	if v != gate.Allowed || access.CoversAll() || access.Actor() != "oidc:nurse-1 "+d.house.URL {
		t.Errorf("a read: verdict %v, all devices %v, actor %s", v, access.CoversAll(), access.Actor())
	}
	if _, v := d.reads(planted); session.Value == planted.Value || v != gate.NoCredentials {
		t.Errorf("a session that was there before signs in: verdict %v", v)
	}
	r := httptest.NewRequest(http.MethodPost, d.page, nil)
	r.AddCookie(session)
	if _, v, _ := d.Authorize(gate.CredentialsOf(r), token.Write, time.Now()); v != gate.NoCredentials {
		t.Errorf("a write: verdict %v", v)
	}
}

// What an attacker, or a provider that is one, may send back signs nobody in.
func TestSignInAttacks(t *testing.T) {
	d := newDesk(t, securePage)
	other, _ := d.begin("other")
	for _, tt := range []struct {
		name   string
		edit   func(answer url.Values) *http.Cookie // returns a cookie in place of the browser's
		claims oidctest.Object
		want   gate.Verdict
	}{
		{"login CSRF: another browser", func(url.Values) *http.Cookie { return other }, nil, gate.BadCredentials},
		{"login CSRF: no cookie", func(url.Values) *http.Cookie { return &http.Cookie{Name: "other", Value: "v"} }, nil,
			gate.BadCredentials},
		{"an empty cookie", func(url.Values) *http.Cookie { return &http.Cookie{Name: "__Host-pulsegate-begin"} }, nil,
			gate.BadCredentials},
		{"a cookie in clear text", func(url.Values) *http.Cookie { return &http.Cookie{Name: "pulsegate-begin", Value: "v"} },
			nil, gate.BadCredentials},
		{"no state", func(a url.Values) *http.Cookie { a.Del("state"); return nil }, nil, gate.BadCredentials},
		{"another state", func(a url.Values) *http.Cookie { a.Set("state", "s"); return nil }, nil, gate.BadCredentials},
		{"another issuer", func(a url.Values) *http.Cookie { a.Set("iss", "https://evil.example"); return nil }, nil,
			gate.BadCredentials},
		{"no code", func(a url.Values) *http.Cookie { a.Del("code"); return nil }, nil, gate.BadCredentials},
		{"an unknown code", func(a url.Values) *http.Cookie { a.Set("code", "x"); return nil }, nil, gate.BadCredentials},
		{"code of another browser (PKCE)", func(a url.Values) *http.Cookie { a.Set("code", "other"); return nil }, nil,
			gate.BadCredentials},
		{"another nonce", nil, oidctest.Object{"nonce": "n"}, gate.BadCredentials},
		{"no nonce", nil, oidctest.Object{"nonce": nil}, gate.BadCredentials},
		{"another audience", nil, oidctest.Object{"aud": "other", "azp": "other"}, gate.BadCredentials},
		{"issued by another", nil, oidctest.Object{"iss": "https://evil.example"}, gate.BadCredentials},
		{"expired", nil, oidctest.Object{"exp": time.Now().Add(-2 * time.Minute).Unix()}, gate.BadCredentials},
		{"no rule", nil, oidctest.Object{"groups": []string{"visitors"}}, gate.Forbidden},
		{"a rule for subjects", nil, oidctest.Object{"groups": []string{"relatives"}}, gate.Forbidden},
		{"a rule for writing", nil, oidctest.Object{"groups": []string{"bed-7"}}, gate.Forbidden},
		{"nothing wrong", nil, nil, gate.Allowed},
	} {
		begun, answer := d.begin(tt.name)
		if tt.edit != nil {
			if c := tt.edit(answer); c != nil {
				begun = c
			}
		}
		d.set(func() { d.claims = tt.claims })
		v, session := d.finish(answer, begun)
		if v != tt.want || (session != nil) != (v == gate.Allowed) {
			t.Errorf("%s: verdict %v, want %v; cookie %v", tt.name, v, tt.want, session)
		}
		if v, session := d.finish(answer, begun); tt.want == gate.Allowed && (v != gate.BadCredentials || session != nil) {
			t.Errorf("%s, replayed: verdict %v, cookie %v", tt.name, v, session)
		}
	}
	d.set(func() {
		if d.codes["other"] == nil {
			t.Error("the code of another browser was redeemed, and only the nonce has failed")
		}
	})
	before := d.redeemed
	for range 1000 {
		d.finish(url.Values{"code": {"c"}, "state": {"s"}}, other)
	}
	if d.redeemed != before {
		t.Errorf("answers without a state made %d requests to the provider", d.redeemed-before)
	}
}

// A login follows the provider: changed groups apply, and the session ends within ten minutes after the account is
// disabled. An answer that says nothing about the account changes nothing for nine minutes.
func TestSignInRefreshed(t *testing.T) {
	inBubble(t, func(t *testing.T, h *houseGate) {
		d := h.desk(t, securePage)
		session := d.signIn("first")
		check := func(what string, want gate.Verdict) {
			t.Helper()
			if _, v := d.reads(session); v != want {
				t.Errorf("%s: verdict %v, want %v", what, v, want)
			}
		}
		d.set(func() { d.group = "chiefs" })
		if n := d.pass(signin.RefreshEvery); n != 1 {
			t.Errorf("%d refreshes in the first interval", n)
		}
		if a, v := d.reads(session); v != gate.Allowed || !a.CoversAll() {
			t.Errorf("another group: verdict %v, all devices %v", v, a.CoversAll())
		}
		d.set(func() { d.group = "visitors" })
		d.pass(signin.RefreshEvery)
		check("no right", gate.Forbidden)
		d.set(func() { d.group = "chiefs" })
		d.pass(signin.RefreshEvery)
		check("the right again", gate.Allowed)
		d.set(func() { d.status = http.StatusServiceUnavailable })
		if n := d.pass(signin.EndAfter - signin.RefreshEvery - time.Second); n < 2 {
			t.Errorf("%d refreshes while the provider is away", n)
		}
		check("while the provider is away", gate.Allowed)
		d.set(func() { d.status = 0 })
		d.pass(signin.RefreshEvery)
		d.set(func() { d.status = http.StatusTooManyRequests })
		d.pass(signin.EndAfter - signin.RefreshEvery - time.Second)
		check("the provider was back in time", gate.Allowed)
		d.pass(signin.RefreshEvery + 2*time.Second)
		check("no answer for nine minutes", gate.NoCredentials)
		if n := d.pass(time.Hour); n != 0 {
			t.Errorf("%d refreshes after the end", n)
		}

		d.set(func() { d.status = 0 })
		session = d.signIn("second")
		d.set(func() { d.status = http.StatusBadRequest })
		d.pass(10 * time.Minute)
		check("ten minutes after the account was disabled", gate.NoCredentials)
		d.set(func() { d.status, d.claims = 0, oidctest.Object{"sub": "nurse-2"} })
		session = d.signIn("third")
		d.set(func() { d.claims = oidctest.Object{"sub": "nurse-3"} })
		d.pass(10 * time.Minute)
		check("a refresh that confirms somebody else", gate.NoCredentials)

		d.set(func() { d.once, d.claims = true, nil })
		session = d.signIn("fourth")
		d.pass(signin.EndAfter - 2*time.Second)
		check("without a refresh token", gate.Allowed)
		d.pass(2 * time.Second)
		check("nine minutes after that", gate.NoCredentials)

		d.set(func() { d.once = false })
		session = d.signIn("fifth")
		d.pass(12*time.Hour - time.Second)
		check("for nearly twelve hours", gate.Allowed)
		d.pass(time.Second)
		check("after twelve hours", gate.NoCredentials)
		if n := d.pass(time.Hour); n != 0 {
			t.Errorf("%d refreshes after twelve hours", n)
		}
	})
}

// Sixteen sign-ins are finished at a time; the provider is not asked for more.
func TestSignInsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, h *houseGate) {
		d := h.desk(t, securePage)
		hold := make(chan struct{})
		d.set(func() { d.hold = hold })
		var done sync.WaitGroup
		for i := range signin.MaxFinishing {
			begun, answer := d.begin(fmt.Sprint(i))
			done.Go(func() {
				if v, _ := d.finish(answer, begun); v != gate.Allowed {
					t.Errorf("one of %d sign-ins: verdict %v", signin.MaxFinishing, v)
				}
			})
		}
		synctest.Wait()
		begun, answer := d.begin("one too many")
		if v, _ := d.finish(answer, begun); v != gate.Unavailable || d.count() != signin.MaxFinishing {
			t.Errorf("another one: verdict %v, %d requests", v, d.count())
		}
		close(hold)
		done.Wait()
		d.set(func() { d.hold = nil })
		d.signIn("later")
	})
}

// There are 1,024 logins at most, and none without a session is refreshed.
func TestSignInBound(t *testing.T) {
	inBubble(t, func(t *testing.T, h *houseGate) {
		d := h.desk(t, securePage)
		var sessions []*http.Cookie
		for i := range 1030 {
			d.set(func() { d.claims = oidctest.Object{"sub": fmt.Sprint("nurse-", i)} })
			sessions = append(sessions, d.signIn(fmt.Sprint(i)))
		}
		for i, session := range sessions {
			want := gate.Allowed
			if i < 6 {
				want = gate.NoCredentials
			}
			if _, v := d.reads(session); v != want {
				t.Errorf("session %d: verdict %v, want %v", i, v, want)
			}
		}
		d.set(func() { d.status = http.StatusBadRequest })
		if n := d.pass(time.Hour); n != 1024 {
			t.Errorf("%d logins were refreshed", n)
		}
	})
}

// An address that sends wrong codes makes a hundred requests to the provider, and ten more each second.
func TestWrongCodes(t *testing.T) {
	inBubble(t, func(t *testing.T, h *houseGate) {
		d := h.desk(t, securePage)
		begun, answer := d.begin("c")
		answer.Set("code", "wrong")
		counts := map[gate.Verdict]int{}
		for range 1000 {
			v, _ := d.finish(answer, begun)
			counts[v]++
		}
		if d.count() != 100 || counts[gate.BadCredentials] != 100 || counts[gate.Unavailable] != 900 {
			t.Errorf("%d requests, verdicts %v", d.count(), counts)
		}
		d.pass(time.Second)
		d.signIn("another")
	})
}

// The provider's addresses are asked for nothing but what a sign-in needs, and nobody can be led elsewhere.
func TestSignInAddresses(t *testing.T) {
	d := newDesk(t, "http://127.0.0.1:8080/below/")
	w := httptest.NewRecorder()
	address, err := gate.BeginSignIn(d.Gate, w)
	try(t, err)
	u, err := url.Parse(address)
	try(t, err)
	q, names := u.Query(), []string{}
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	if got, want := strings.Join(names, " "),
		"client_id code_challenge code_challenge_method nonce redirect_uri response_type scope state"; got != want {
		t.Errorf("the parameters are %s, want %s", got, want)
	}
	secret := w.Result().Cookies()[0].Value
	if !strings.HasPrefix(address, d.house.URL+"/authorize?") ||
		q.Get("redirect_uri") != "http://127.0.0.1:8080/below/v1/session/callback" ||
		q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" || strings.Contains(address, secret) {
		t.Errorf("the address is %s", address)
	}
	for _, page := range []string{"http://pulsegate.example/", "https://pulsegate.example", "https://pulsegate.example/?q",
		"https://u@pulsegate.example/", "//pulsegate.example/"} {
		if signin.CheckPage(page) == nil {
			t.Errorf("the page may be %s", page)
		}
	}
	try(t, signin.CheckPage(securePage))
}

// Whatever the provider answers to a code, nobody waits for longer than ten seconds, and nobody is signed in. One that
// has replaced its keys signs in.
func TestSignInAway(t *testing.T) {
	answer := func(status int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "https://evil.example/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // to a recorder
			return true
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
		want   gate.Verdict
	}{
		{"away", func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, gate.Unavailable},
		{"error", answer(http.StatusBadGateway, ""), gate.Unavailable},
		{"too many requests", answer(http.StatusTooManyRequests, ""), gate.Unavailable},
		{"slow", func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, gate.Unavailable},
		{"garbage", answer(http.StatusOK, "<html>"), gate.Unavailable},
		{"10 MB", answer(http.StatusOK, `{"access_token":"`+strings.Repeat("a", 10<<20)+`"}`), gate.Unavailable},
		{"redirection", answer(http.StatusTemporaryRedirect, ""), gate.BadCredentials},
		{"refused", answer(http.StatusUnauthorized, `{"error":"invalid_client"}`), gate.BadCredentials},
		{"no ID token", answer(http.StatusOK, `{"access_token":"a","token_type":"Bearer"}`), gate.BadCredentials},
		{"huge ID token", answer(http.StatusOK, `{"access_token":"a","id_token":"`+strings.Repeat("a", 500<<10)+`"}`),
			gate.BadCredentials},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h *houseGate) {
				d := h.desk(t, securePage)
				begun, answer := d.begin("c")
				d.house.Answer.Store(&tt.answer)
				began := time.Now()
				if v, session := d.finish(answer, begun); v != tt.want || session != nil || time.Since(began) > 10*time.Second {
					t.Errorf("verdict %v after %v, cookie %v", v, time.Since(began), session)
				}
			})
		})
	}
	inBubble(t, func(t *testing.T, h *houseGate) {
		d := h.desk(t, securePage)
		d.house.Rotate("-2")
		d.set(func() { d.key = "es-2" })
		d.signIn("with a new key")
	})
}

// No number of sessions of a person keeps more logins than sessions, and signing out ends one.
func TestSignOutAtProvider(t *testing.T) {
	d := newDesk(t, securePage)
	var first, last *http.Cookie
	for i := range 33 {
		begun, answer := d.begin(string(rune('A' + i)))
		if _, last = d.finish(answer, begun); last == nil {
			t.Fatal("nobody has signed in")
		}
		if first == nil {
			first = last
		}
	}
	if _, v := d.reads(first); v != gate.NoCredentials {
		t.Errorf("the oldest of 33 sessions: verdict %v", v)
	}
	r := httptest.NewRequest(http.MethodDelete, d.page+"v1/session", nil)
	r.AddCookie(last)
	d.SignOut(httptest.NewRecorder(), r, time.Now())
	if _, v := d.reads(last); v != gate.NoCredentials {
		t.Errorf("after the end: verdict %v", v)
	}
}
