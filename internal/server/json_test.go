package server_test

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"
)

// Every answer in JSON is one document and ends with a newline, so that the prompt of a shell
// follows on a line of its own.
//
// Seen to fail when an outcome, a problem, an answer to readings or a health check has no newline.
func TestJSONEndsWithNewline(t *testing.T) {
	const (
		reading     = `{"device":"d","time":1763700000000,"spo2_pct":97}`
		observation = `{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org","code":"8867-4"}]},` +
			`"subject":{"reference":"Patient/p-1"},"device":{"reference":"Device/d"},"effectiveDateTime":"2025-11-21T10:00:00Z",` +
			`"valueQuantity":{"value":61,"system":"http://unitsofmeasure.org","code":"/min"}}`
	)
	for _, lane := range []string{"on", "off"} {
		opt := options(t)
		opt.FastLane = lane
		_, err := run(t, opt, func(url string) error {
			defer http.DefaultClient.CloseIdleConnections()
			for _, tt := range []struct {
				method, path, body string
				status             int
			}{
				{"POST", "/v1/readings", reading, 200},
				{"POST", "/v1/readings", reading, 200}, // a duplicate
				{"POST", "/v1/readings", "[" + reading + "]", 200},
				{"POST", "/v1/readings", "[" + reading + `,{"device":"d"}]`, 207},
				{"POST", "/v1/readings", strings.Replace(reading, "97", "98", 1), 409},
				{"POST", "/v1/readings", "{", 400},
				{"POST", "/v1/omh", "{", 400},
				{"GET", "/v1/omh", "", 405},
				{"GET", "/nothing", "", 404},
				{"GET", "/v1/devices", "", 200},
				{"GET", "/v1/devices/d", "", 200},
				{"GET", "/v1/devices/nobody", "", 404},
				{"GET", "/v1/devices/d/readings", "", 200},
				{"GET", "/v1/devices/d/readings?format=omh", "", 200},
				{"GET", "/v1/devices/d/readings?limit=x", "", 400},
				{"GET", "/v1/devices/d/aggregates?step=1h", "", 200},
				{"GET", "/v1/limits", "", 200},
				{"GET", "/v1/session", "", 200},
				{"GET", "/v1/system", "", 200},
				{"GET", "/openapi.json", "", 200},
				{"GET", "/livez", "", 200},
				{"GET", "/readyz?", "", 200},
				{"POST", "/healthz", "", 405},
				{"GET", "/fhir/metadata", "", 200},
				{"GET", "/fhir/Observation?patient=p-1", "", 200},
				{"GET", "/fhir/Observation?patient=p-1&_summary=count", "", 200},
				{"GET", "/fhir/Patient/p-1", "", 404},
				{"GET", "/fhir/Encounter/e", "", 404},
				{"POST", "/fhir/Observation", observation, 422},
				{"POST", "/fhir", "{", 400},
				{"POST", "/fhir", `{"resourceType":"Bundle","type":"batch"}`, 200},
				{"POST", "/fhir", `{"resourceType":"Bundle","type":"batch","entry":[{"resource":` + observation + `,"request":{"method":"POST","url":"Observation"}}]}`, 200},
				{"POST", "/fhir", `{"resourceType":"Bundle","type":"transaction","entry":[{"resource":` + observation + `,"request":{"method":"POST","url":"Observation"}}]}`, 422},
			} {
				req, err := http.NewRequest(tt.method, url+tt.path, strings.NewReader(tt.body))
				if err != nil {
					return err
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return err
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					return err
				}
				what := tt.method + " " + tt.path + " " + tt.body
				if resp.StatusCode != tt.status {
					t.Errorf("%s: %s, want %d:\n%s", what, resp.Status, tt.status, text)
				}
				if typ, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); !strings.HasSuffix(typ, "json") || !json.Valid(text) {
					t.Errorf("%s: %s is not a document in JSON:\n%s", what, typ, text)
				}
				if s := string(text); !strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\n\n") {
					t.Errorf("%s: %q does not end with one newline", what, s[max(0, len(s)-20):])
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
