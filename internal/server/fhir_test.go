package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// FHIR is served under /fhir, where all errors are OperationOutcomes. Neither the access log
// nor a metric shows whose observations were searched.
func TestFHIR(t *testing.T) {
	opt := options(t)
	opt.FHIRURL = "https://ward.example/fhir"
	opt.AccessLog, opt.AccessLogSample = "all", 1
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
			if outcome := strings.HasPrefix(text, `{"resourceType":"OperationOutcome"`); outcome != (tt.status >= 400 && tt.path != "/fhirs") {
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
