package main_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A token that is bound to subjects is refused at every address below /v1 that needs a right, in
// both lanes. The addresses are those of the server's own description, so that a new one is tested,
// too.
//
// Seen to fail when Authorize compared the rights of the token file.
func TestBoundTokenEverywhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	bound := createToken(t, program(t), file, "--gateway=ehr", "--rights=read", "--subject=P-1")
	writer := createToken(t, program(t), file, "--gateway=bed-7")
	mapping, err := filepath.Abs("../../examples/mappings/sim.toml")
	try(t, err)
	// They show nothing that was stored, and need no token; changes show what the subject wore, which is nothing here.
	public := []string{"GET /v1/changes", "POST /v1/changes", "GET /v1/session", "GET /v1/session/begin",
		"GET /v1/session/callback", "HEAD /v1/session", "DELETE /v1/session"}
	lanes(t, []string{"--tokens=" + file, "--audit=", "--mapping=" + mapping}, func(t *testing.T, p *process) {
		ask := func(method, path, token, body string) (int, string) {
			t.Helper()
			fields := []string{"Content-Type", "application/json"}
			if token != "" {
				fields = append(fields, "Authorization", "Bearer "+token)
			}
			resp, text := fetch(t, method, p.url(path), body, fields...)
			return resp.StatusCode, text
		}
		const reading = `{"device":"ppg-1","time":"2026-11-21T10:00:00Z","heart_rate_bpm":72}`
		if status, text := ask("POST", "/v1/readings", writer, reading); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		_, text := ask("GET", "/openapi.json", "", "")
		var description struct {
			Paths map[string]map[string]json.RawMessage `json:"paths"`
		}
		try(t, json.Unmarshal([]byte(text), &description))
		tested := 0
		for path, methods := range description.Paths {
			for method := range methods {
				method = strings.ToUpper(method)
				if !strings.HasPrefix(path, "/v1/") || !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "DELETE"}, method) ||
					slices.Contains(public, method+" "+path) {
					continue
				}
				body := ""
				if method == "POST" {
					body = reading
				}
				if strings.HasPrefix(path, "/v1/subjects") {
					body = `{"subject":"P-2"}`
				}
				if path == "/v1/session" {
					body = `{"token":"` + bound + `"}`
				}
				tested++
				status, text := ask(method, strings.NewReplacer("{device}", "ppg-1", "{name}", "sim").Replace(path), bound, body)
				if strings.HasPrefix(path, "/v1/subjects") { // which is for subjects
					needed := strings.NewReplacer("gates", "gates?step=1h", "alerts", "alerts?from=-1h")
					own, text := ask(method, needed.Replace(path), bound, `{"subject":"P-1"}`)
					if own != http.StatusOK {
						t.Errorf("%s %s of its subject: %d %s", method, path, own, text)
					}
				}
				if status != http.StatusForbidden || strings.Contains(text, "ppg-1") || strings.Contains(text, "72") {
					t.Errorf("%s %s: %d %s", method, path, status, text)
				}
			}
		}
		if tested < 7 {
			t.Errorf("only %d addresses were tested", tested)
		}
		if status, text := ask("GET", "/v1/changes", bound, ""); status != http.StatusOK || strings.Contains(text, "ppg-1") {
			t.Errorf("GET /v1/changes: %d %s", status, text)
		}
		if status, text := ask("POST", "/v1/changes", bound, `{"subject":"P-2"}`); status != http.StatusForbidden {
			t.Errorf("POST /v1/changes of another subject: %d %s", status, text)
		}
		for _, path := range []string{"/v1/devices/ppg-1/readings?format=parquet", "/v1/devices/ppg-1/readings?format=csv",
			"/v1/live?device=ppg-1"} {
			if status, text := ask("GET", path, bound, ""); status != http.StatusForbidden ||
				!strings.Contains(text, "bound to subjects") {
				t.Errorf("GET %s: %d %s", path, status, text)
			}
		}
	})
}
