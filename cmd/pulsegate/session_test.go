package main_test

import (
	"net/http"
	"path/filepath"
	"testing"
)

// A page of another origin can neither sign in, nor sign out, nor use a session, in both
// lanes, also if its origin may read with a token. A session never writes.
//
// Seen to fail without sameSiteOnly around sign-in, and when the gate did not compare
// Sec-Fetch-Site.
func TestSessionOtherOrigins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	reader := createToken(t, program(t), file, "--gateway=screen", "--rights=read,write")
	lanes(t, []string{"--tokens=" + file, "--audit=", "--cors-origin=*"}, func(t *testing.T, p *process) {
		own, evil := p.url(""), "https://evil.example"
		ask := func(method, path, body, cookie string, header ...string) *http.Response {
			t.Helper()
			if cookie != "" {
				header = append(header[:len(header):len(header)], "Cookie", cookie)
			}
			resp, _ := fetch(t, method, p.url(path), body, header...)
			return resp
		}
		signIn := `{"token":"` + reader + `"}`
		if resp := ask("POST", "/v1/session", signIn, "", "Origin", evil); resp.StatusCode != 403 || len(resp.Cookies()) > 0 {
			t.Errorf("sign-in by another origin: %s, cookies %v", resp.Status, resp.Cookies())
		}
		resp := ask("POST", "/v1/session", signIn, "", "Origin", own)
		if resp.StatusCode != 204 || len(resp.Cookies()) != 2 { // one removes the cookie of the other scheme
			t.Fatalf("sign-in: %s", resp.Status)
		}
		cookie := resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
		for _, tt := range []struct {
			method, path string
			header       []string
			want         int
		}{
			{"GET", "/v1/devices", nil, 200},
			{"GET", "/v1/devices", []string{"Sec-Fetch-Site", "same-origin"}, 200},
			{"GET", "/v1/devices", []string{"Sec-Fetch-Site", "cross-site", "Origin", evil}, 401},
			{"GET", "/v1/devices", []string{"Sec-Fetch-Site", "same-site"}, 401},
			{"HEAD", "/v1/live", []string{"Sec-Fetch-Site", "same-site"}, 401},
			{"GET", "/v1/system", []string{"Sec-Fetch-Site", "cross-site"}, 401},
			{"GET", "/v1/devices/d/readings", []string{"Sec-Fetch-Site", "cross-site"}, 401},
			{"POST", "/v1/readings", []string{"Sec-Fetch-Site", "same-origin"}, 401},
			{"DELETE", "/v1/session", []string{"Origin", evil}, 403},
			{"GET", "/v1/devices", nil, 200},
			{"DELETE", "/v1/session", []string{"Origin", own}, 204},
			{"GET", "/v1/devices", nil, 401},
		} {
			if resp := ask(tt.method, tt.path, `{"device":"d","time":1700000000000,"spo2_pct":97}`, cookie,
				tt.header...); resp.StatusCode != tt.want {
				t.Errorf("%s %s %q: %s, want %d", tt.method, tt.path, tt.header, resp.Status, tt.want)
			} else if resp.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s %s allows credentials", tt.method, tt.path)
			}
		}
	})
}
