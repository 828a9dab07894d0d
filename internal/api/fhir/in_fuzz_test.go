package fhir_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzBundle checks that any body is answered with a Bundle of responses or an OperationOutcome,
// that what is answered as new is stored, and that the same body stores nothing more the second
// time.
func FuzzBundle(f *testing.F) {
	for _, typ := range []string{"transaction", "batch"} {
		f.Add(sentVisit().as(typ))
	}
	var b sentBundle
	b.post(sentRate, sentTime, sentD1,
		`"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,`+
			`"factor":0.1,"dimensions":1,"data":"700 E 711"}`)
	b.post(sentSpO2, sentTime,
		`"contained":[{"resourceType":"Device","id":"x","identifier":[{"value":"d-1"}]}],"device":{"reference":"#x"}`,
		sentQuantity("9.75e1", "%"))
	b.post(sentRest, sentTime,
		`"device":{"reference":"Device?identifier=d_2"},"interpretation":[{"coding":[{"code":"H"}]}],"meta":{"security":[]}`,
		sentQuantity("58", "/min"))
	f.Add(b.as("batch"))
	f.Fuzz(func(t *testing.T, body string) {
		s := receive(t)
		var answers [2]string
		var stored [2]string
		for i := range answers {
			w := send(s.bundle, body)
			var r struct{ ResourceType string }
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code == 200 != (r.ResourceType == "Bundle") ||
				w.Code != 200 && r.ResourceType != "OperationOutcome" {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			answers[i], stored[i] = w.Body.String(), s.stored()
		}
		if stored[0] != stored[1] {
			t.Errorf("stored %s, then %s", stored[0], stored[1])
		}
		if strings.Contains(answers[0], `"status":"201"`) != (stored[0] != "") {
			t.Errorf("%s, but stored is %q", answers[0], stored[0])
		}
		if strings.Contains(answers[1], `"status":"201"`) {
			t.Errorf("sent again: %s", answers[1])
		}
	})
}
