package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/access/gatetest"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// FHIR is served under /fhir, where all errors are OperationOutcomes. Neither the access log
// nor a metric shows whose observations were searched.
func TestFHIR(t *testing.T) {
	opt := options(t)
	opt.PublicURL = []string{"https://ward.example"}
	opt.AccessLog = "all"
	opt.CORSOrigins = []string{"https://app.example"}
	log, err := run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		for _, tt := range []struct {
			method, path, body string
			status             int
			want               string
		}{
			{"GET", "/fhir/metadata", "", 200, `"url":"https://ward.example/fhir"`},
			{"GET", "/fhir/Observation?patient=secret-1", "", 200, `"resourceType":"Bundle"`},
			{"POST", "/fhir/Observation/_search", "patient=secret-1", 200, `"resourceType":"Bundle"`},
			{"GET", "/fhir/Observation/_search", "", 404, `"code":"not-found"`},
			{"GET", "/fhir/Observation/hr-1-secret-1", "", 404, `"code":"not-found"`},
			{"GET", "/fhir/Device/secret-1", "", 404, `"code":"not-found"`},
			{"GET", "/fhir/Patient/secret-1", "", 404, `"code":"not-found"`},
			{"GET", "/fhir/Encounter/secret-1", "", 404, `"code":"not-found"`},
			{"GET", "/fhir/x/y", "", 404, `"code":"not-found"`},
			{"POST", "/fhir", `{"resourceType":"Bundle","type":"batch"}`, 200, `"batch-response"`},
			{"POST", "/fhir/", `{"resourceType":"Bundle","type":"batch"}`, 200, `"batch-response"`},
			{"POST", "/fhir", `{"resourceType":"Bundle"`, 400, `"code":"malformed-body"`},
			{"POST", "/fhir?_format=xml", `{"resourceType":"Bundle","type":"batch"}`, 406, `"code":"not-acceptable"`},
			{"POST", "/fhir/Observation?_format=xml", `{"resourceType":"Patient"}`, 406, `"code":"not-acceptable"`},
			{"POST", "/fhir/Observation", `{"resourceType":"Patient"}`, 422, `"code":"invalid-reading"`},
			{"GET", "/fhir/metadata", "", 200, `{"code":"transaction"}`},
			{"PUT", "/fhir/Observation/secret-1", `{"resourceType":"Patient"}`, 422, `"code":"invalid-reading"`},
			{"DELETE", "/fhir/Observation/secret-1", "", 405, `"code":"method-not-allowed"`},
			{"PUT", "/fhir/Patient/secret-1", "", 405, `"code":"method-not-allowed"`},
			{"OPTIONS", "/fhir/Observation", "", 204, ""},
			{"GET", "/fhirs", "", 404, `docs/problems.md#not-found`},
		} {
			resp, text, err := fetch(tt.method, url+tt.path, tt.body, field("Content-Type", "application/x-www-form-urlencoded"))
			if err != nil {
				return err
			}
			if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
				t.Errorf("%s %s: %s %s, want %d %s", tt.method, tt.path, resp.Status, text, tt.status, tt.want)
			}
			if outcome := strings.HasPrefix(text, `{"resourceType":"OperationOutcome"`); outcome != (tt.status >= 400 &&
				tt.path != "/fhirs") {
				t.Errorf("%s %s: %s", tt.method, tt.path, text)
			}
			if tt.status == 405 && strings.Replace(resp.Header.Get("Allow"), ", PUT", "", 1) != "GET, HEAD, OPTIONS" {
				t.Errorf("%s %s: Allow is %q", tt.method, tt.path, resp.Header.Get("Allow"))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if strings.Contains(log, "secret") || !strings.Contains(log, "/fhir/Observation/{id}") {
		t.Errorf("the log has\n%s", log)
	}
}

// An Observation with the status entered-in-error is erased for a token with the right, and that is recorded. A page of
// another site cannot ask for it.
func TestFHIRWithdraw(t *testing.T) {
	files := gatetest.New(t)
	ops := field("Authorization", files.Token(t, "ops", "", token.Token{Rights: token.Admin}))
	bed := field("Authorization", files.Token(t, "bed-7", "", token.Token{Rights: token.Write | token.Read}))
	auditLog := filepath.Join(t.TempDir(), "audit")
	opt := options(t)
	opt.Tokens, opt.Audit = files.Tokens, &auditLog
	device, err := vitals.ParseName("d-1")
	try(t, err)
	db, err := pebblestore.Open(opt.Data, pebblestore.Options{MinFreeBytes: -1})
	try(t, err)
	try(t, db.Assign(t.Context(), storage.Assignment{Device: device, Subject: "P1", ToUnixMs: storage.OpenEnd,
		ChangedUnixMs: 1}))
	try(t, db.Close())
	_, err = run(t, opt, func(url string) error {
		defer http.DefaultClient.CloseIdleConnections()
		ask := func(method, path, body string, status int, edits ...func(*http.Request)) string {
			resp, text, err := fetch(method, url+path, body, append(edits, field("Content-Type", "application/json"))...)
			try(t, err)
			if resp.StatusCode != status {
				t.Errorf("%s %s: %s %s, want %d", method, path, resp.Status, text, status)
			}
			return text
		}
		ask("POST", "/v1/readings", `{"device":"d-1","time":"2026-11-21T10:00:00Z","heart_rate_bpm":72,"spo2_pct":97}`,
			200, bed)
		_, after, _ := strings.Cut(ask("GET", "/fhir/Observation?device=d-1&code=8867-4", "", 200, bed), `"id":"hr-`)
		id, _, _ := strings.Cut(after, `"`)
		path := "/fhir/Observation/hr-" + id
		wrong := `{"resourceType":"Observation","id":"hr-` + id + `","status":"entered-in-error"}`
		ask("PUT", path, wrong, 422, bed)
		ask("PUT", path, wrong, 403, ops, field("Sec-Fetch-Site", "cross-site"))
		ask("GET", path, "", 200, bed)
		ask("PUT", path, wrong, 200, ops)
		ask("PUT", path, wrong, 404, ops)
		ask("GET", path, "", 404, bed)
		ask("GET", "/fhir/Observation/spo2-"+id, "", 200, bed)
		return nil
	})
	try(t, err)
	recorded, err := os.ReadFile(auditLog)
	try(t, err)
	const want = `"event":"erased","device":"d-1","signs":"heart_rate_bpm","from":"2026-11-21T10:00:00.000Z",` +
		`"to":"2026-11-21T10:00:00.001Z","count":1,"peer":"127.0.0.1","actor":"token:`
	if strings.Count(string(recorded), want) != 1 || strings.Count(string(recorded), `"event":"erased"`) != 1 {
		t.Errorf("the audit log has\n%s", recorded)
	}
}
