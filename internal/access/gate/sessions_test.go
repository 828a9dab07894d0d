package gate_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
)

// signIn signs in with the value of an Authorization header and returns the cookie, if any.
func signIn(g *gate.Gate, authorization, origin string) (*http.Cookie, gate.Verdict) {
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/session", nil)
	r.Header.Set("Origin", origin)
	verdict := g.SignIn(w, r, strings.TrimPrefix(authorization, "Bearer "), now)
	for _, c := range w.Result().Cookies() {
		return c, verdict
	}
	return nil, verdict
}

// use returns the verdict about a request with a cookie.
func use(g *gate.Gate, c *http.Cookie, right token.Rights, at time.Time, header ...string) gate.Verdict {
	r := httptest.NewRequest("GET", "http://ward.example/", nil)
	r.AddCookie(c)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	_, verdict, _ := g.Authorize(gate.CredentialsOf(r), right, at)
	return verdict
}

// A session allows reads only, from pages of the same origin only, for 12 hours, as long as
// its token is valid.
//
// Seen to fail without the conditions on rights, the origin and the end.
func TestSession(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	c, verdict := signIn(g, f.read, "http://ward.example")
	if verdict != gate.Allowed || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteStrictMode ||
		c.MaxAge != 12*3600 || c.Path != "/" {
		t.Fatalf("sign-in: %v, %+v", verdict, c)
	}
	if strings.Contains(f.read, c.Value) {
		t.Error("the cookie has the token")
	}
	for _, tt := range []struct {
		name   string
		right  token.Rights
		at     time.Time
		header []string
		want   gate.Verdict
	}{
		{"read", token.Read, now, nil, gate.Allowed},
		{"write", token.Write, now, nil, gate.NoCredentials},
		{"admin", token.Admin, now, nil, gate.NoCredentials},
		{"both rights", token.Read | token.Write, now, nil, gate.NoCredentials},
		{"same origin", token.Read, now, []string{"Sec-Fetch-Site", "same-origin"}, gate.Allowed},
		{"typed address", token.Read, now, []string{"Sec-Fetch-Site", "none"}, gate.Allowed},
		{"another port", token.Read, now, []string{"Sec-Fetch-Site", "same-site"}, gate.NoCredentials},
		{"another site", token.Read, now, []string{"Sec-Fetch-Site", "cross-site"}, gate.NoCredentials},
		{"same origin, by Origin", token.Read, now, []string{"Origin", "http://ward.example"}, gate.Allowed},
		{"same origin, default port", token.Read, now, []string{"Origin", "http://ward.example:80"}, gate.Allowed},
		{"another scheme", token.Read, now, []string{"Origin", "https://ward.example"}, gate.NoCredentials},
		{"another host", token.Read, now, []string{"Origin", "http://other.ward.example"}, gate.NoCredentials},
		{"another port, by Origin", token.Read, now, []string{"Origin", "http://ward.example:8080"}, gate.NoCredentials},
		{"an opaque origin", token.Read, now, []string{"Origin", "null"}, gate.NoCredentials},
		{"two origins", token.Read, now, []string{"Origin", "http://ward.example", "Origin", "http://x"}, gate.NoCredentials},
		{"a proxy rewrote the host", token.Read, now, []string{"Origin", "https://a", "Sec-Fetch-Site", "same-origin"},
			gate.Allowed},
		{"with a bad token", token.Read, now, []string{"Authorization", "Bearer x"}, gate.BadCredentials},
		{"at its end", token.Read, now.Add(12*time.Hour - time.Millisecond), nil, gate.Allowed},
		{"after its end", token.Read, now.Add(12 * time.Hour), nil, gate.NoCredentials},
	} {
		if got := use(g, c, tt.right, tt.at, tt.header...); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	ofSubject := httptest.NewRequest("POST", "http://ward.example/", nil)
	ofSubject.AddCookie(c)
	for _, may := range []bool{false, true} {
		v := gate.CredentialsOf(ofSubject)
		v.SubjectsInSession = may
		if _, got, _ := g.Authorize(v, token.ReadSubjects, now); (got == gate.Allowed) != may {
			t.Errorf("readings of subjects, which the caller lets a session read: %t: %v", may, got)
		}
		if _, got, _ := g.Authorize(v, token.Write, now); got != gate.NoCredentials {
			t.Errorf("write, where a session may read subjects: %v", got)
		}
	}
	if got := use(g, &http.Cookie{Name: c.Name, Value: c.Value + "x"}, token.Read, now); got != gate.NoCredentials {
		t.Errorf("made-up session: %v", got)
	}

	r := httptest.NewRequest("DELETE", "/v1/session", nil)
	r.AddCookie(c)
	g.SignOut(httptest.NewRecorder(), r, now)
	if got := use(g, c, token.Read, now); got != gate.NoCredentials {
		t.Errorf("after sign-out: %v", got)
	}
}

// A rejected sign-in sets no cookie, and is counted as every other use of that token.
func TestSignInRejected(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	for _, tt := range []struct {
		text   string
		want   gate.Verdict
		reason audit.Reason
	}{
		{f.write, gate.Forbidden, audit.NoRight},
		{"", gate.BadCredentials, audit.Malformed},
		{"Bearer  " + strings.TrimPrefix(f.read, "Bearer "), gate.BadCredentials, 0},
		{strings.ToUpper(f.read), gate.BadCredentials, audit.Malformed},
	} {
		before := g.Refused(tt.reason)
		c, got := signIn(g, tt.text, "")
		if got != tt.want || c != nil {
			t.Errorf("%q: %v and cookie %v, want %v", tt.text, got, c, tt.want)
		}
		if tt.reason != 0 && g.Refused(tt.reason) != before+1 {
			t.Errorf("%q: not counted as %v", tt.text, tt.reason)
		}
	}
}

// Over TLS, or a proxy that has TLS, the cookie is for TLS only, and its name shows that no
// page without TLS has set it.
func TestSecureCookie(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	c, _ := signIn(g, f.read, "https://ward.example")
	if c == nil || !c.Secure || c.Name != "__Host-pulsegate" || c.Domain != "" || c.Path != "/" {
		t.Errorf("cookie over TLS: %+v", c)
	}
	if got := use(g, c, token.Read, now); got != gate.Allowed {
		t.Errorf("with the secure cookie: %v", got)
	}
}

// The number of sessions is bounded, for each token as well: its oldest session ends.
func TestSessionBound(t *testing.T) {
	f := newFixture(t)
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	other, _ := signIn(g, f.slow, "")
	first, _ := signIn(g, f.read, "")
	for range 32 {
		signIn(g, f.read, "")
	}
	if got := use(g, first, token.Read, now); got != gate.NoCredentials {
		t.Errorf("the oldest session of 33: %v", got)
	}
	if got := use(g, other, token.Read, now); got != gate.Allowed {
		t.Errorf("the session of another token: %v", got)
	}
}

// The session of a kiosk's token lasts as long as the token, at a server that has started since too. It allows what
// other sessions allow, and its cookie is renewed, as browsers keep none longer than 400 days.
func TestKioskSession(t *testing.T) {
	f := newFixture(t)
	expires := now.Add(1000 * 24 * time.Hour)
	wall := create(t, f.tokens, token.Token{Gateway: name(t, "wall"), Rights: token.Read, Expires: expires, Kiosk: true})
	always := create(t, f.tokens, token.Token{Gateway: name(t, "hall"), Rights: token.Read, Kiosk: true})
	try(t, f.set.Reload())
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	c, verdict := signIn(g, wall, "https://ward.example")
	if verdict != gate.Allowed || c == nil || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode ||
		c.MaxAge != 400*24*3600 || c.Name != "__Host-pulsegate" {
		t.Fatalf("sign-in: %v, %+v", verdict, c)
	}
	if strings.Contains(wall, c.Value) {
		t.Error("the cookie has the token")
	}
	restarted := &gate.Gate{Tokens: f.set, Audit: f.log}
	last := expires.Add(-100 * time.Second)
	for _, tt := range []struct {
		name   string
		right  token.Rights
		at     time.Time
		header []string
		want   gate.Verdict
	}{
		{"read", token.Read, now, nil, gate.Allowed},
		{"before the token expires", token.Read, last, nil, gate.Allowed},
		{"when the token expires", token.Read, expires, nil, gate.NoCredentials},
		{"write", token.Write, now, nil, gate.NoCredentials},
		{"admin", token.Admin, now, nil, gate.NoCredentials},
		{"another site", token.Read, now, []string{"Sec-Fetch-Site", "cross-site"}, gate.NoCredentials},
		{"as a token", token.Read, now, []string{"Authorization", "Bearer " + c.Value}, gate.BadCredentials},
	} {
		if got := use(restarted, c, tt.right, tt.at, tt.header...); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}

	asks := func(c *http.Cookie, at time.Time, header ...string) (renewed []*http.Cookie, ends time.Time, ok bool) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "http://ward.example/v1/session", nil)
		r.AddCookie(c)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		_, ends, ok = restarted.Session(r, at)
		gate.RenewKiosk(restarted, w, r, at)
		return w.Result().Cookies(), ends, ok
	}
	renewed, ends, ok := asks(c, last)
	if !ok || !ends.Equal(expires) || len(renewed) != 1 || renewed[0].Value != c.Value || renewed[0].MaxAge != 100 ||
		!renewed[0].Secure || renewed[0].Name != c.Name {
		t.Errorf("the session: %t until %v, cookies %+v", ok, ends, renewed)
	}
	if renewed, _, ok := asks(c, last, "Sec-Fetch-Site", "cross-site"); ok || len(renewed) != 0 {
		t.Errorf("for another site: %t, cookies %+v", ok, renewed)
	}
	unending, _ := signIn(g, always, "http://ward.example")
	renewed, ends, ok = asks(unending, now.Add(10000*24*time.Hour))
	if !ok || !ends.IsZero() || len(renewed) != 1 || renewed[0].MaxAge != 400*24*3600 || renewed[0].Secure {
		t.Errorf("the session of a token that does not expire: %t until %v, cookies %+v", ok, ends, renewed)
	}
	plain, _ := signIn(restarted, f.read, "http://ward.example")
	if renewed, ends, ok := asks(plain, now); !ok || !ends.Equal(now.Add(12*time.Hour)) || len(renewed) != 0 {
		t.Errorf("another session: %t until %v, cookies %+v", ok, ends, renewed)
	}

	keeper := token.Keeper{Path: f.tokens}
	_, err := keeper.Revoke(t.Context(), func(other *token.Token) bool { return other.Kiosk })
	try(t, err, f.set.Reload())
	if got := use(g, c, token.Read, now); got != gate.NoCredentials {
		t.Errorf("after the token was revoked: %v", got)
	}
}

// The session that /v1/session shows ends when its token expires, if that is before its 12 hours have passed.
func TestSessionExpires(t *testing.T) {
	f := newFixture(t)
	ends := now.Add(time.Hour)
	short := create(t, f.tokens, token.Token{Gateway: name(t, "ward"), Rights: token.Read, Expires: ends})
	try(t, f.set.Reload())
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	c, _ := signIn(g, short, "http://ward.example")
	r := httptest.NewRequest("GET", "/v1/session", nil)
	r.AddCookie(c)
	if _, got, ok := g.Session(r, now); !ok || !got.Equal(ends) {
		t.Errorf("it ends %v, %t; want %v", got, ok, ends)
	}
}

// Signing in and out leaves no cookie of the other name: a kiosk's would be found when the session has ended.
func TestSignOutOfBoth(t *testing.T) {
	f := newFixture(t)
	wall := create(t, f.tokens, token.Token{Gateway: name(t, "wall"), Rights: token.Read, Kiosk: true})
	try(t, f.set.Reload())
	g := &gate.Gate{Tokens: f.set, Audit: f.log}
	jar := map[string]string{} // of a browser, to which http and https are one
	request := func(method, scheme string) *http.Request {
		r := httptest.NewRequest(method, scheme+"://ward.example/v1/session", nil)
		r.TLS = nil // a proxy has it
		r.Header.Set("Origin", scheme+"://ward.example")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		for name, value := range jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		return r
	}
	keep := func(w *httptest.ResponseRecorder) {
		for _, c := range w.Result().Cookies() {
			if jar[c.Name] = c.Value; c.MaxAge < 0 {
				delete(jar, c.Name)
			}
		}
	}
	for _, tt := range []struct{ scheme, token string }{{"http", wall}, {"https", f.read}} {
		w := httptest.NewRecorder()
		g.SignIn(w, request("POST", tt.scheme), strings.TrimPrefix(tt.token, "Bearer "), now)
		if keep(w); len(jar) != 1 {
			t.Errorf("over %s the browser has %d cookies of sessions, want 1", tt.scheme, len(jar))
		}
	}
	jar["pulsegate"] = token.KioskCookie(strings.TrimPrefix(wall, "Bearer ")) // somebody on the network has set it
	w := httptest.NewRecorder()
	g.SignOut(w, request("DELETE", "https"), now)
	if keep(w); len(jar) != 0 {
		t.Errorf("after signing out the browser has %v", jar)
	}
	if _, _, ok := g.Session(request("GET", "https"), now); ok {
		t.Error("after signing out the browser is signed in")
	}
}
