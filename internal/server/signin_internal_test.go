package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/oidctest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
)

// A person with the admin right administers, and the audit log names the person; nobody else does, also from this
// machine.
func TestAdminJWT(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "access.toml")
	try(t, os.WriteFile(rules, []byte("[[rule]]\nclaim = \"groups\"\nvalue = \"chiefs\"\nrights = [\"admin\"]\n"), 0o600))
	house := oidctest.New(t)
	a := &access{gate: &gate.Gate{OIDC: house.Open(rules)}}
	actor := ""
	h := a.adminOnly(func(_ http.ResponseWriter, r *http.Request) { actor = adminActor(r.Context()) }, problem.New())
	for _, tt := range []struct {
		name, auth string
		status     int
		actor      string
	}{
		{"chief", "Bearer " + house.Token(oidctest.Object{"groups": "chiefs", "sub": "chief-1"}), 200,
			"oidc:chief-1 " + house.URL},
		{"nurse", "Bearer " + house.Token(nil), 403, ""},
		{"nobody", "", 401, ""},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/", nil)
		r.RemoteAddr = "127.0.0.1:4711"
		if tt.auth != "" {
			r.Header.Set("Authorization", tt.auth)
		}
		w := httptest.NewRecorder()
		actor = ""
		if h.ServeHTTP(w, r); w.Code != tt.status || actor != tt.actor {
			t.Errorf("%s: status %d, actor %q, want %d, %q", tt.name, w.Code, actor, tt.status, tt.actor)
		}
	}
}
