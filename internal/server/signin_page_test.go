package server_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/oidc"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/polltest"
)

// A visit is a server whose page, below a path of a proxy, signs people in at a provider, and a browser without its
// rules for cookies.
type visit struct {
	t      *testing.T
	house  *oidctest.Provider
	page   string
	nonces sync.Map // by code, which is redeemed once; people whose code is "visitor" are in no group
	client http.Client
}

// visitPage runs a test with a visit.
func visitPage(t *testing.T, test func(*visit)) {
	t.Helper()
	v := &visit{t: t, house: oidctest.New(t)}
	answer := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/token" {
			return false
		}
		code := r.FormValue("code")
		nonce, ok := v.nonces.LoadAndDelete(code)
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		claims := oidctest.Object{"nonce": nonce, "typ": "ID"}
		if code == "visitor" {
			claims["groups"] = nil
		}
		if err := json.NewEncoder(w).Encode(oidctest.Object{"access_token": "a", "token_type": "Bearer",
			"id_token": v.house.Token(claims)}); err != nil {
			t.Error(err)
		}
		return true
	}
	v.house.Answer.Store(&answer)
	var target atomic.Pointer[url.URL]
	proxy := httptest.NewServer(http.StripPrefix("/house/pulsegate", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) },
	}))
	defer proxy.Close()
	v.page = proxy.URL + "/house/pulsegate/"
	v.client = http.Client{
		Transport:     new(http.Transport),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer v.client.CloseIdleConnections()
	opt := houseOptions(t, v.house.URL)
	opt.PublicURL = []string{v.page}
	_, err := run(t, opt, func(base string) error {
		u, err := url.Parse(base)
		if err != nil {
			return err
		}
		target.Store(u)
		polltest.Until(t, "the keys are known", func() bool {
			resp, _ := v.do("GET", "v1/devices", v.bearer(nil))
			return resp.StatusCode == http.StatusOK
		})
		test(v)
		return nil
	})
	try(t, err)
}

// do sends a request to an address below the page, and returns its answer and the text of it.
func (v *visit) do(method, path string, edits ...func(*http.Request)) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequest(method, v.page+path, nil)
	try(v.t, err)
	for _, edit := range edits {
		edit(req)
	}
	resp, err := v.client.Do(req)
	try(v.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	try(v.t, err)
	return resp, string(text)
}

func field(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func (v *visit) bearer(claims oidctest.Object) func(*http.Request) {
	return field("Authorization", "Bearer "+v.house.Token(claims))
}

// signedIn reports whether the value of a Cookie header signs in.
func (v *visit) signedIn(cookies string) bool {
	v.t.Helper()
	_, text := v.do("GET", "v1/session", field("Cookie", cookies))
	return strings.Contains(text, `"signed_in":true`)
}

// begin begins a sign-in, and returns the cookie of the browser and the answer that the provider gives once.
func (v *visit) begin(code string) (cookie string, answer url.Values) {
	v.t.Helper()
	resp, _ := v.do("GET", "v1/session/begin")
	at, err := resp.Location()
	try(v.t, err)
	v.nonces.Store(code, at.Query().Get("nonce"))
	return newCookies(resp), url.Values{"code": {code}, "state": {at.Query().Get("state")}}
}

// newCookies returns the value of a Cookie header with the cookies that an answer sets.
func newCookies(resp *http.Response) string {
	var all []string
	for _, c := range resp.Cookies() {
		if c.MaxAge > 0 {
			all = append(all, c.Name+"="+c.Value)
		}
	}
	return strings.Join(all, "; ")
}

// The list of attacks in the order of the design, each with the exact answer. TestAttacks and TestSignInAttacks have
// the many forms of each.
func TestAttackers(t *testing.T) {
	visitPage(t, func(v *visit) {
		house, other := v.house, oidctest.New(t)
		claims := house.Claims(nil)
		der, err := x509.MarshalPKIXPublicKey(house.Key("rs").Public())
		try(t, err)
		in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
		for _, tt := range []struct {
			name, jwt string
			status    int
			want      string
		}{
			{"nobody", house.Token(nil), 200, "devices"},
			{"alg none", oidctest.Part(oidctest.Object{"alg": "none"}) + "." + oidctest.Part(claims) + ".", 401,
				"invalid-credentials"},
			{"key confusion", oidctest.HMAC(oidctest.Object{"alg": "HS256", "kid": "rs"}, claims, der), 401,
				"invalid-credentials"},
			{"other audience", house.Token(oidctest.Object{"aud": "shop"}), 401, "invalid-credentials"},
			{"other issuer", house.Token(oidctest.Object{"iss": other.URL}), 401, "invalid-credentials"},
			{"key of another issuer", other.Sign("es", nil, claims), 401, "invalid-credentials"},
			{"expired", house.Token(oidctest.Object{"exp": in(-oidc.Skew - 10*time.Second)}), 401, "invalid-credentials"},
			{"expired, but for the skew", house.Token(oidctest.Object{"exp": in(-oidc.Skew + 50*time.Second)}), 200, "devices"},
			{"future", house.Token(oidctest.Object{"nbf": in(oidc.Skew + 2*time.Minute)}), 401, "invalid-credentials"},
			{"future, but for the skew", house.Token(oidctest.Object{"nbf": in(oidc.Skew - 20*time.Second)}), 200, "devices"},
			{"no rule", house.Token(oidctest.Object{"groups": "visitors"}), 403, "forbidden"},
		} {
			resp, text := v.do("GET", "v1/devices", field("Authorization", "Bearer "+tt.jwt))
			if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
				t.Errorf("%s: %d %s, want %d %s", tt.name, resp.StatusCode, text, tt.status, tt.want)
			}
		}

		const planted = "pulsegate=planted"
		again := "You are not signed in. Begin again."
		for _, tt := range []struct {
			name   string
			edit   func(answer url.Values) (cookie string) // "" means that of the browser
			status int
			want   string // in the page
		}{
			{"nobody", func(url.Values) string { return "" }, 200, "You are signed in"},
			{"replayed code", func(a url.Values) string {
				a.Set("code", "nobody") // of the row above
				return ""
			}, 401, again},
			{"mixed-up issuer", func(a url.Values) string { a.Set("iss", other.URL); return "" }, 401, again},
			{"the right issuer", func(a url.Values) string { a.Set("iss", house.URL); return "" }, 200, "You are signed in"},
			{"login CSRF", func(url.Values) string { cookie, _ := v.begin("attacker's"); return cookie }, 401, again},
			{"state", func(a url.Values) string { a.Set("state", "s"); return "" }, 401, again},
			{"open redirect", func(a url.Values) string {
				for _, name := range []string{"next", "return_to", "redirect_uri", "post_logout_redirect_uri"} {
					a.Set(name, "https://evil.example/")
				}
				return ""
			}, 200, "You are signed in"},
			{"visitor", func(url.Values) string { return "" }, 403, "Your account may not read here."},
			{"markup of the provider", func(a url.Values) string {
				a.Del("code")
				a.Set("error", "<script>evil</script>")
				a.Set("error_description", "<script>evil</script>")
				return ""
			}, 401, again},
		} {
			cookie, answer := v.begin(tt.name)
			if edited := tt.edit(answer); edited != "" {
				cookie = edited
			}
			resp, text := v.do("GET", "v1/session/callback?"+answer.Encode(), field("Cookie", cookie+"; "+planted))
			if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) || strings.Contains(text, "evil") ||
				resp.Header.Get("Location") != "" {
				t.Errorf("%s: %d, Location %q, want %d\n%s", tt.name, resp.StatusCode, resp.Header.Get("Location"), tt.status, text)
			}
			if got := v.signedIn(newCookies(resp)); got != (tt.status == 200) {
				t.Errorf("%s: signed in: %v", tt.name, got)
			}
			if v.signedIn(planted) {
				t.Errorf("%s: session fixation: a session that was there before is signed in", tt.name)
			}
		}

		began, before := time.Now(), house.Requests.Load()
		for i := range 1000 {
			jwt := house.Sign("ed", oidctest.Object{"kid": fmt.Sprint("unknown-", i)}, claims)
			resp, text := v.do("GET", "v1/devices", field("Authorization", "Bearer "+jwt))
			if unauthorized := resp.StatusCode == 401 && strings.Contains(text, "invalid-credentials"); !unauthorized &&
				(resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(text, "keys-unknown")) {
				t.Fatalf("unknown key: %d %s", resp.StatusCode, text)
			}
		}
		if n, most := house.Requests.Load()-before, 2*(int64(time.Since(began)/oidc.MinFetch)+2); n > most {
			t.Errorf("1,000 unknown keys made %d requests to the provider, want at most %d", n, most)
		}
	})
}

// Below a path of a proxy, the page, the sign-in and the sign-out lead to addresses below it, whatever a request says.
func TestSignInBelowPath(t *testing.T) {
	visitPage(t, func(v *visit) {
		_, text := v.do("GET", "")
		_, script, found := strings.Cut(text, `src="`)
		script, _, _ = strings.Cut(script, `"`)
		if resp, _ := v.do("GET", script); !found || resp.StatusCode != http.StatusOK {
			t.Errorf("the page's script %q: %d", script, resp.StatusCode)
		}
		resp, _ := v.do("GET", "v1/session/begin?redirect_uri=https://evil.example/", func(r *http.Request) {
			r.Host = "evil.example"
			r.Header.Set("X-Forwarded-Host", "evil.example")
		})
		if at, err := resp.Location(); err != nil || !strings.HasPrefix(at.String(), v.house.URL+"/authorize?") ||
			at.Query().Get("redirect_uri") != v.page+"v1/session/callback" {
			t.Errorf("the sign-in leads to %v, %v", at, err)
		}
		cookie, answer := v.begin("code")
		resp, text = v.do("GET", "v1/session/callback?"+answer.Encode(), field("Cookie", cookie))
		_, style, _ := strings.Cut(text, `href="`+v.page)
		style, _, _ = strings.Cut(style, `"`)
		if styled, _ := v.do("GET", style); styled.StatusCode != http.StatusOK || strings.Count(text, v.page) != 4 ||
			strings.Count(text, "://") != 4 {
			t.Errorf("the page after the sign-in, whose style %q is %d:\n%s", style, styled.StatusCode, text)
		}
		session := newCookies(resp)
		resp, text = v.do("DELETE", "v1/session", field("Cookie", session))
		var next struct{ Continue string }
		if err := json.Unmarshal([]byte(text), &next); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("sign-out: %d %s", resp.StatusCode, text)
		}
		u, err := url.Parse(next.Continue)
		try(t, err)
		if q := u.Query(); !strings.HasPrefix(next.Continue, v.house.URL+"/end?") ||
			q.Get("post_logout_redirect_uri") != v.page || q.Get("client_id") != oidctest.ClientID ||
			q.Get("id_token_hint") == "" {
			t.Errorf("the sign-out leads to %s", next.Continue)
		}
		if v.signedIn(session) {
			t.Error("the session has not ended")
		}
		if resp, _ := v.do("GET", "v1/devices",
			field("Authorization", "Bearer "+u.Query().Get("id_token_hint"))); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("the ID token in that address is a token: %d", resp.StatusCode)
		}
	})
}

// Pages of other sites, and requests that are no visit, begin no sign-in: it would end the session that there is. A
// server whose people sign in at a provider says so to somebody who has a token.
func TestSignInBegins(t *testing.T) {
	visitPage(t, func(v *visit) {
		for _, tt := range []struct {
			method, site string
			begins       bool
		}{
			{"GET", "", true}, {"GET", "none", true}, {"GET", "same-origin", true},
			{"GET", "same-site", false}, {"GET", "cross-site", false}, {"GET", "nonsense", false},
			{"HEAD", "same-origin", false},
		} {
			resp, _ := v.do(tt.method, "v1/session/begin", field("Sec-Fetch-Site", tt.site))
			at := resp.Header.Get("Location")
			if begins := strings.HasPrefix(at, v.house.URL+"/authorize?"); resp.StatusCode != http.StatusSeeOther ||
				begins != tt.begins || !begins && at != v.page || (newCookies(resp) != "") != tt.begins {
				t.Errorf("%s, %s: %d, Location %s, cookies %q", tt.method, tt.site, resp.StatusCode, at, newCookies(resp))
			}
		}
		if resp, text := v.do("POST", "v1/session", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"token":"t"}`)), 13
		}); resp.StatusCode != http.StatusNotFound ||
			!strings.Contains(text, "This server has no tokens of its own. Sign in with your account.") {
			t.Errorf("a token: %d %s", resp.StatusCode, text)
		}
	})
}
