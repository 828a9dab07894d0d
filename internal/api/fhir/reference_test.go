package fhir_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
)

// A reference names a resource of this server if it is relative, or if it begins with the server's
// own base: searches and what is sent follow one rule. Mutants: any base is the server's own; the
// base of the request counts although another one is set.
func TestReferences(t *testing.T) {
	const request = "http://example.com/fhir" // to which httptest sends
	for _, tt := range []struct {
		base, reference string // reference without the type and the id
		want            bool
	}{
		{"", "", true},
		{"", request + "/", true},
		{"", "http://other.example/fhir/", false},
		{"", "https://example.com/fhir/", false},
		{"", "http://example.com:8080/fhir/", false},
		{"", "http://example.com/", false},
		{"", "http://example.com/fhir", false},
		{"", request + "//", false},
		{"", request + "/x/", false},
		{"", "http://example.com/x/fhir/", false},
		{"", "example.com/fhir/", false},
		{"", "fhir/", false},
		{"", "/fhir/", false},
		{"", "/", false},
		{"https://ward.example/api/fhir", "", true},
		{"https://ward.example/api/fhir", "https://ward.example/api/fhir/", true},
		{"https://ward.example/api/fhir", request + "/", false},
		{"https://ward.example/api/fhir", "https://ward.example/fhir/", false},
		{"https://ward.example/api/fhir", "http://ward.example/api/fhir/", false},
	} {
		search := serve(t, ward(t), fhir.Options{Base: tt.base})
		for _, parameter := range []string{"patient=%Patient/p", "subject=%Patient/p", "subject:Patient=q,%Patient/p",
			"device=%Device/ppg-1"} {
			query := strings.ReplaceAll(parameter, "%",
				url.QueryEscape(strings.Replace(tt.reference, request, search.URL+"/fhir", 1)))
			query = strings.ReplaceAll(query, "example.com", strings.TrimPrefix(search.URL, "http://"))
			resp, text := search.send("GET", "Observation?"+query, "")
			if found := strings.Contains(text, wardIDs["spo2"]); found != tt.want ||
				!found && (resp.StatusCode != 400 || !strings.Contains(text, "on this server")) {
				t.Errorf("base %q, %s: %s %s, want a match: %v", tt.base, query, resp.Status, text, tt.want)
			}
		}
		for _, sent := range []struct{ members, expression, cause string }{
			{`"subject":{"reference":"` + tt.reference + `Patient/p-1"},` + sentD1, "subject", "not the patient"},
			{sentP1 + `,"device":{"reference":"` + tt.reference + `Device/d-1"}`, "device",
				"does not name a device of this server"},
		} {
			s := receiveBy(t, nil, tt.base)
			observation := sentObservation(sentSpO2, sentTime, sent.members, sentQuantity("97", "%"))
			w := send(s.observation, observation)
			if stored := s.stored() != ""; stored != tt.want || stored != (w.Code == http.StatusCreated) {
				t.Errorf("base %q: %s: %d %s, want it stored: %v", tt.base, sent.members, w.Code, w.Body, tt.want)
			} else if !stored {
				checkIssue(t, w.Body.Bytes(), "Observation."+sent.expression, sent.cause)
			}
			s = receiveBy(t, nil, tt.base)
			send(s.bundle,
				`{"resourceType":"Bundle","type":"batch","entry":[{"resource":`+observation+`,"request":{"method":"POST",`+
					`"url":"Observation"}}]}`)
			if stored := s.stored() != ""; stored != tt.want {
				t.Errorf("base %q, in a Bundle: %s: stored: %v, want %v", tt.base, sent.members, stored, tt.want)
			}
		}
	}
}
