package fhir_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// sentCode returns the code of an Observation, from pairs of system and code.
func sentCode(pairs ...string) string {
	var codings []string
	for i := 0; i < len(pairs); i += 2 {
		codings = append(codings, `{"system":"`+pairs[i]+`","code":"`+pairs[i+1]+`"}`)
	}
	return `"code":{"coding":[` + strings.Join(codings, ",") + `]}`
}

const (
	loinc = "http://loinc.org"
	mdc   = "urn:iso:std:iso:11073:10101"
	own   = "urn:pulsegate:sign"
)

// TestReceiveSigns checks which sign a code means, with the unit and the decimals of the sign.
func TestReceiveSigns(t *testing.T) {
	for _, tt := range []struct {
		code, value, unit string
		want              string // field and value, or the beginning of a reason
	}{
		{sentCode(loinc, "9279-1"), "14.25", "/min", `"respiratory_rate_bpm":14.25`},
		{sentCode(loinc, "9279-1", mdc, "151562"), "14", "/min", `"respiratory_rate_bpm":14`},
		{sentCode(loinc, "8310-5"), "36.6", "Cel", `"body_temperature_c":36.6`},
		{sentCode(mdc, "150364"), "36.6", "Cel", `"body_temperature_c":36.6`},
		{sentCode(loinc, "29463-7"), "81.205", "kg", `"body_weight_kg":81.205`},
		{sentCode(mdc, "188736"), "81.2", "kg", `"body_weight_kg":81.2`},
		{sentCode(loinc, "2339-0"), "99", "mg/dL", `"glucose_mg_dl":99`},
		{sentCode(loinc, "15074-8"), "5.5", "mmol/L", `"glucose_mmol_l":5.5`},
		{sentCode(loinc, "8889-8"), "71", "/min", `"pulse_rate_bpm":71`},
		{sentCode(loinc, "8889-8", loinc, "8867-4"), "71", "/min", `"pulse_rate_bpm":71`},
		{sentCode(mdc, "149546", loinc, "8867-4", loinc, "8889-8"), "71", "/min", `"pulse_rate_bpm":71`},
		{sentCode(mdc, "150364", loinc, "8310-5", loinc, "8331-1"), "36.6", "Cel", `"body_temperature_c":36.6`},
		{sentCode(loinc, "80404-7"), "42.5", "ms", `"hrv_rmssd_ms":42.5`},
		{sentCode(loinc, "80404-7"), "0", "ms", `"hrv_rmssd_ms":0`},
		{sentCode(own, "hrv_rmssd_ms"), "42.5", "ms", `"hrv_rmssd_ms":42.5`},
		{sentCode(loinc, "80404-7", own, "hrv_rmssd_ms"), "42.5", "ms", `"hrv_rmssd_ms":42.5`},
		{sentCode(own, "skin_delta_c"), "-0.375", "Cel", `"skin_delta_c":-0.375`},
		{sentCode("http://snomed.info/sct", "1", own, "skin_delta_c"), "0", "Cel", `"skin_delta_c":0`},
		{sentCode(loinc, "76282-3"), "71", "/min", `"ecg_rate_bpm":71`},
		{sentCode(loinc, "76282-3", loinc, "8867-4"), "71", "/min", `"ecg_rate_bpm":71`},
		{sentCode(loinc, "8867-4", own, "ecg_rate_bpm"), "71", "/min", `"ecg_rate_bpm":71`},
		{sentCode(loinc, "8867-4"), "71", "/min", `"heart_rate_bpm":71`},

		{sentCode(loinc, "8310-5"), "97.9", "[degF]", "not Cel; Pulsegate does not convert units"},
		{sentCode(loinc, "29463-7"), "812", "g", "not kg; Pulsegate does not convert units"},
		{sentCode(loinc, "2339-0"), "5.5", "mmol/L", "not mg/dL; Pulsegate does not convert units"},
		{sentCode(loinc, "29463-7"), "81.2055", "kg", "more than three decimals"},
		{sentCode(loinc, "76282-3"), "71.5", "/min", "not a whole number"},
		{sentCode(loinc, "80404-7"), "42.55", "ms", "more than one decimal"},
		{sentCode(own, "skin_delta_c"), "-5.001", "Cel", "outside the accepted range -5 to 5 Cel"},
		{sentCode(loinc, "8310-5"), "0", "Cel", "no signal"},
		{sentCode(own, "heart_rate_bpm"), "71", "/min", "not a vital sign"},
		{sentCode(own, "skin_delta_c", own, "hrv_rmssd_ms"), "1", "Cel", "not a vital sign"},
		{sentCode(own, "skin_delta_c", loinc, "8310-5"), "1", "Cel", "not a vital sign"},
		{sentCode(loinc, "80404-7", loinc, "8867-4"), "42", "ms", "not a vital sign"},
		{sentCode(loinc, "8889-8", mdc, "147842"), "71", "/min", "not a vital sign"},
		{sentCode(loinc, "1-8", own, "hrv_rmssd_ms"), "42", "ms", "not a vital sign"},
	} {
		s := receive(t)
		w := send(s.observation, sentObservation(tt.code, sentTime, sentD1, sentQuantity(tt.value, tt.unit)))
		if strings.HasPrefix(tt.want, `"`) {
			if w.Code != http.StatusCreated || !strings.Contains(s.stored(), ","+tt.want+"}") {
				t.Errorf("%s %s: %d %s, stored %s", tt.code, tt.value, w.Code, w.Body, s.stored())
			}
			continue
		}
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), `"diagnostics":"`+tt.want) ||
			s.stored() != "" {
			t.Errorf("%s %s: %d %s, want %s", tt.code, tt.value, w.Code, w.Body, tt.want)
		}
	}
}

// TestServeSigns checks the Observations of signs after the first five, their ids, which are made of the field of a
// user's own sign, and how they are found, and that a retired sign is served and not accepted.
func TestServeSigns(t *testing.T) {
	s := fill(t,
		`{"device":"ppg-1","time":"2026-11-21T10:00:00Z","respiratory_rate_bpm":14,"body_temperature_c":36.6,`+
			`"body_weight_kg":81.205,`+
			`"glucose_mg_dl":99,"glucose_mmol_l":5.5,"pulse_rate_bpm":71,"hrv_rmssd_ms":42.5,"ecg_rate_bpm":70,`+
			`"skin_delta_c":-0.375}`)
	s.assign(t, "ppg-1", "p-1", 0, storage.OpenEnd)
	if err := s.Signs().Define(nil); err != nil { // all are retired
		t.Fatal(err)
	}
	srv := serve(t, s, fhir.Options{})
	all := []string{"resp", "temp", "wt", "glu", "glum", "pr", "s085f6rhk", "sm8t7heh9", "sreljkib0"}
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", all},
		{"&_sort=-date", all},
		{"&code=8310-5", []string{"temp"}},
		{"&code=http://loinc.org|9279-1,29463-7", []string{"resp", "wt"}},
		{"&code=8867-4", []string{"pr", "sm8t7heh9"}},
		{"&code=skin_delta_c", []string{"sreljkib0"}},
		{"&code=urn:pulsegate:sign|skin_delta_c,urn:pulsegate:sign|hrv_rmssd_ms", []string{"s085f6rhk", "sreljkib0"}},
		{"&code=urn:pulsegate:sign|", []string{"s085f6rhk", "sm8t7heh9", "sreljkib0"}},
		{"&code=http://loinc.org|skin_delta_c", nil},
		{"&category=laboratory", []string{"glu", "glum"}},
		{"&category=vital-signs", slices.Concat(all[:3], all[5:])},
		{"&category=vital-signs,laboratory", all},
		{"&category=laboratory&code=8310-5", nil},
		{"&category=exam", nil},
	} {
		_, text := srv.send("GET", "Observation?patient=p-1&_count=100"+tt.query, "")
		var got []string
		for _, id := range strings.Split(text, `"resourceType":"Observation","id":"`)[1:] {
			key, _, _ := strings.Cut(id, "-")
			got = append(got, key)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.query, got, tt.want)
		}
	}
	for key, want := range map[string][]string{
		"temp": {`"profile":["http://hl7.org/fhir/StructureDefinition/bodytemp"]`, `"code":"vital-signs"`,
			`"code":"8310-5"`, `"valueQuantity":{"value":36.6,"unit":"C","system":"http://unitsofmeasure.org","code":"Cel"}`},
		"glum": {`"}` +
			`,"status":"final","category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category",` +
			`"code":"laboratory","display":"Laboratory"}]}]`, `"value":5.5,"unit":"mmol/L"`},
		"pr": {`"profile":["http://hl7.org/fhir/StructureDefinition/heartrate"]`,
			`"code":"8889-8","display":"Heart rate by Pulse oximetry"},{"system":"http://loinc.org","code":"8867-4",` +
				`"display":"Heart rate"}`},
		"s085f6rhk": {
			`"code":{"coding":[{"system":"http://loinc.org","code":"80404-7"},{"system":"urn:pulsegate:sign",` +
				`"code":"hrv_rmssd_ms","display":"RMSSD"}],"text":"RMSSD"}`, `"value":42.5,"unit":"ms"`},
		"sreljkib0": {
			`"code":{"coding":[{"system":"urn:pulsegate:sign","code":"skin_delta_c","display":"Difference"}],` +
				`"text":"Difference"}`, `{"value":-0.375,"unit":"Cel","system":"http://unitsofmeasure.org","code":"Cel"}`},
	} {
		resp, text := srv.send("GET", "Observation/"+key+"-mwq8lds0-ppg-1", "")
		for _, part := range want {
			if resp.StatusCode != http.StatusOK || !strings.Contains(text, part) {
				t.Errorf("%s: %d %s, want %s", key, resp.StatusCode, text, part)
			}
		}
	}
	for _, key := range []string{"s31", "s", "s085f6rhk0", "S085F6RHK", "hr", "x"} {
		if resp, _ := srv.send("GET", "Observation/"+key+"-mwq8lds0-ppg-1", ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", key, resp.StatusCode)
		}
	}
	r := receive(t)
	try(t, r.store.Signs().Define([]vitals.Definition{}))
	if w := send(r.observation, sentObservation(sentCode(own, "skin_delta_c"), sentTime, sentD1,
		sentQuantity("1", "Cel"))); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(),
		"not a vital sign") {
		t.Errorf("a retired sign: %d %s", w.Code, w.Body)
	}
}

// What a server serves is what it has when it is sent back: the three rates, which share a profile and a code, stay
// apart.
func TestSendBack(t *testing.T) {
	s := receive(t)
	const reading = `"device":"d-1","time":"2026-11-21T10:00:00.000+01:00","spo2_pct":97,"heart_rate_bpm":72,` +
		`"resting_heart_rate_bpm":58,"respiratory_rate_bpm":14,"body_temperature_c":36.6,"pulse_rate_bpm":70,` +
		`"ecg_rate_bpm":71`
	served := &store{s.store}
	served.add(t, receivedUnixMs, "{"+reading+"}")
	srv := serve(t, served, fhir.Options{})
	for _, key := range []string{"spo2", "hr", "rhr", "resp", "temp", "pr", "sm8t7heh9"} {
		id := key + "-mwq6g800-d-1"
		resp, text := srv.send("GET", "Observation/"+id, "")
		rate := strings.Contains(text, `"profile":["http://hl7.org/fhir/StructureDefinition/heartrate"]`) &&
			strings.Contains(text, `"8867-4"`)
		if want := key == "hr" || key == "rhr" || key == "pr"; resp.StatusCode != http.StatusOK || rate != want {
			t.Errorf("%s: %d %s", id, resp.StatusCode, text)
		}
		if w := send(s.observation, text); w.Code != http.StatusOK || !strings.HasSuffix(w.Header().Get("Location"), "/"+id) {
			t.Errorf("%s sent back: %d %s %s", id, w.Code, w.Header().Get("Location"), w.Body)
		}
	}
	if got := s.stored(); got != "{"+reading+"}\n" {
		t.Errorf("stored %s", got)
	}
}
