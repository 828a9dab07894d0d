package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/problem"
)

// With tokens, only a token with the admin right may administer. Without them,
// only this machine may, but not pages in its browsers.
func TestAdminOnly(t *testing.T) {
	f := gatetest.New(t)
	admin, others := f.Token(t, "ops", "", token.Token{Rights: token.Admin}),
		f.Token(t, "ops", "", token.Token{Rights: token.Write | token.Read})
	tokens := f.Open(t)
	open, certs := &gate.Gate{}, &gate.Gate{Certificates: true}
	const local, remote = "127.0.0.1:4711", "192.0.2.7:4711"
	for _, tt := range []struct {
		name              string
		gate              *gate.Gate
		peer, host, auth  string
		fetchSite, origin string
		want              int
	}{
		{"this machine", open, local, "127.0.0.1:6060", "", "", "", 200},
		{"this machine, by name", open, "[::1]:4711", "localhost:6060", "", "", "", 200},
		{"this machine, by IPv6", open, "[::1]:4711", "[::1]", "", "", "", 200},
		{"this machine, an IPv4-mapped IPv6 address", open, "[::ffff:127.0.0.1]:4711", "127.0.0.1:6060", "", "", "", 200},
		{"another machine", open, remote, "127.0.0.1:6060", "", "", "", 403},
		{"another machine, with client certificates", certs, remote, "127.0.0.1:6060", "", "", "", 403},
		{"this machine, with client certificates", certs, local, "127.0.0.1:6060", "", "", "", 200},
		{"a rebound name", open, local, "attacker.example:6060", "", "", "", 403},
		{"a page of another site", open, local, "127.0.0.1:6060", "", "cross-site", "", 403},
		{"a page of another site, in an old browser", open, local, "127.0.0.1:6060", "", "", "https://attacker.example", 403},
		{"a page of another scheme, in an old browser", open, local, "127.0.0.1:6060", "", "", "https://127.0.0.1:6060", 403},
		{"a page of the listener's own", open, local, "127.0.0.1:6060", "", "", "http://127.0.0.1:6060", 200},
		{"no token", tokens, local, "127.0.0.1:6060", "", "", "", 401},
		{"an unknown token", tokens, local, "127.0.0.1:6060", "Bearer x", "", "", 401},
		{"a token without the admin right", tokens, local, "127.0.0.1:6060", others, "", "", 403},
		{"a token with the admin right", tokens, local, "127.0.0.1:6060", admin, "", "", 200},
		{"a token with the admin right, from another machine", tokens, remote, "pulsegate.example", admin, "", "", 200},
		{"a token with the admin right, in a page of another site", tokens, local, "127.0.0.1:6060", admin,
			"cross-site", "", 403},
	} {
		a := &access{gate: tt.gate}
		r := httptest.NewRequest(http.MethodPost, "http://"+tt.host+"/backup", nil)
		r.RemoteAddr = tt.peer
		for key, value := range map[string]string{"Authorization": tt.auth, "Sec-Fetch-Site": tt.fetchSite,
			"Origin": tt.origin} {
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		called, actor := false, ""
		w := httptest.NewRecorder()
		a.adminOnly(func(_ http.ResponseWriter, r *http.Request) {
			called, actor = true, adminActor(r.Context())
		}, problem.New()).ServeHTTP(w, r)
		if w.Code != tt.want || called != (tt.want == 200) {
			t.Errorf("%s: status %d, called %v; want %d", tt.name, w.Code, called, tt.want)
		}
		if byToken := strings.HasPrefix(actor, "token:"); called && byToken != (tt.gate == tokens) {
			t.Errorf("%s: the actor is %q", tt.name, actor)
		}
		if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", tt.name)
		}
	}
}
