package fhir_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// Observations of each sign group, as they are sent.
func TestObservation(t *testing.T) {
	s := fill(t,
		`{"device":"ppg-1","time":"2026-11-21T12:00:00.123+02:00","systolic_mmhg":121,"diastolic_mmhg":79.5,`+
			`"spo2_pct":97.25,"heart_rate_bpm":54.9,"resting_heart_rate_bpm":58}`,
		`{"device":"a_b:c.d","time":"2026-11-21T10:00:00+15:00","spo2_pct":100}`,
		`{"device":"a_b:c.d","time":"2026-11-21T10:00:00-00:00","spo2_pct":100}`)
	s.assign(t, "ppg-1", "p-1", 0, storage.OpenEnd)
	s.assign(t, "a_b:c.d", "p.2", 0, storage.OpenEnd)
	srv := serve(t, s, fhir.Options{})
	const (
		vital = `"status":"final",` +
			`"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category",` +
			`"code":"vital-signs","display":"Vital Signs"}]}],`
		profile  = `"profile":["http://hl7.org/fhir/StructureDefinition/`
		loinc    = `{"system":"http://loinc.org","code":"`
		ucum     = `"system":"http://unitsofmeasure.org","code":"`
		received = `"lastUpdated":"2027-01-15T08:00:00.000Z"`
		patient  = `"subject":{"reference":"Patient/p-1"},"effectiveDateTime":"2026-11-21T12:00:00.123+02:00",` +
			`"device":{"reference":"Device/ppg-1"},`
		bpm       = `"unit":"beats/minute",` + ucum + `/min"}`
		saturated = `"code":{"coding":[` + loinc + `2708-6","display":"Oxygen saturation in Arterial blood"},` + loinc +
			`59408-5","display":"Oxygen saturation in Arterial blood by Pulse oximetry"}],"text":"Oxygen saturation in ` +
			`Arterial blood"},`
	)
	observation := func(id string) string {
		return `{"resourceType":"Observation","id":"` + id + `","meta":{` + received + `,`
	}
	for id, want := range map[string]string{
		"bp-mwq8ldvf-ppg-1": observation("bp-mwq8ldvf-ppg-1") + profile + `bp"]},` + vital +
			`"code":{"coding":[` + loinc +
			`85354-9","display":"Blood pressure panel with all children optional"}],"text":"Blood pressure panel with all ` +
			`children optional"},` + patient +
			`"component":[{"code":{"coding":[` + loinc +
			`8480-6","display":"Systolic blood pressure"}],"text":"Systolic blood pressure"},"valueQuantity":{"value":121,` +
			`"unit":"mmHg",` + ucum + `mm[Hg]"}},` +
			`{"code":{"coding":[` + loinc +
			`8462-4","display":"Diastolic blood pressure"}],"text":"Diastolic blood pressure"},"valueQuantity":{"value":79.5,` +
			`"unit":"mmHg",` + ucum + `mm[Hg]"}}]}`,
		"spo2-mwq8ldvf-ppg-1": observation("spo2-mwq8ldvf-ppg-1") + profile + `oxygensat"]},` + vital + saturated + patient +
			`"valueQuantity":{"value":97.25,"unit":"%",` + ucum + `%"}}`,
		"hr-mwq8ldvf-ppg-1": observation("hr-mwq8ldvf-ppg-1") + profile + `heartrate"]},` + vital +
			`"code":{"coding":[` + loinc + `8867-4","display":"Heart rate"}],"text":"Heart rate"},` + patient +
			`"valueQuantity":{"value":54.9,` + bpm + `}`,
		"rhr-mwq8ldvf-ppg-1": observation("rhr-mwq8ldvf-ppg-1") + profile + `heartrate"]},` + vital +
			`"code":{"coding":[` + loinc + `40443-4","display":"Heart rate --resting"},` + loinc +
			`8867-4","display":"Heart rate"}],"text":"Heart rate --resting"},` + patient + `"valueQuantity":{"value":58,` +
			bpm + `}`,
		// FHIR has no offsets beyond 14 hours.
		"spo2-mwpcfz40-a.ub.cc..d": observation("spo2-mwpcfz40-a.ub.cc..d") + profile + `oxygensat"]},` + vital + saturated +
			`"subject":{"reference":"Patient/p.2"},"effectiveDateTime":"2026-11-20T19:00:00.000Z",` +
			`"device":{"reference":"Device/a.ub.cc..d"},"valueQuantity":{"value":100,"unit":"%",` + ucum + `%"}}`,
	} {
		if got := srv.get("Observation/" + id); got != want+"\n" {
			t.Errorf("%s is\n%s\nwant\n%s", id, got, want)
		}
	}
	if got := srv.get("Observation?device=a.ub.cc..d&date=2026-11-21"); !strings.Contains(got,
		`"effectiveDateTime":"2026-11-21T10:00:00.000Z"`) {
		t.Errorf("an unknown offset: %s", got)
	}
	for path, want := range map[string]string{
		"Device/ppg-1": `{"resourceType":"Device","id":"ppg-1","identifier":[{"value":"ppg-1"}],` +
			`"deviceName":[{"name":"ppg-1","type":"user-friendly-name"}]}`,
		"Device/a.ub.cc..d": `{"resourceType":"Device","id":"a.ub.cc..d","identifier":[{"value":"a_b:c.d"}],` +
			`"deviceName":[{"name":"a_b:c.d","type":"user-friendly-name"}]}`,
		"Patient/p.2": `{"resourceType":"Patient","id":"p.2"}`,
	} {
		if got := srv.get(path); got != want+"\n" {
			t.Errorf("%s is\n%s\nwant\n%s", path, got, want)
		}
	}
}

// What does not exist is answered with 404.
func TestNotFound(t *testing.T) {
	s := fill(t, `{"device":"d","time":1000,"spo2_pct":97}`, `{"device":"d","time":2000,"spo2_pct":97}`,
		`{"device":"unassigned","time":1000,"spo2_pct":97}`)
	s.assign(t, "d", "p", 0, 2000)
	srv := serve(t, s, fhir.Options{})
	srv.get("Observation/spo2-rs-d")
	for _, path := range []string{
		"Observation/hr-rs-d", // the reading has no heart rate
		"Observation/spo2-rr-d", "Observation/spo2-rs-e", "Observation/spo2-rs-unassigned",
		"Observation/spo2-1jk-d", // the assignment has ended
		"Observation/spo2-0rs-d", "Observation/spo2-RS-d", "Observation/spo2-+rs-d", "Observation/SpO2-rs-d",
		"Observation/spo2-rs-.dd", "Observation/spo2-rs", "Observation/x", "Observation/spo2--d",
		"Observation/spo2-zzzzzzzzzzzz-d", "Observation/spo2-rs-d%00", "Observation/spo2-rs-.h",
		"Observation/spo2-rs-.habcdefghijklmnop",
		"Device/e", "Device/.x", "Device/d.", "Device/.habcdefghijklmnopd", "Patient/q", "Patient/a_b",
	} {
		resp, text := srv.send("GET", path, "")
		if _, name := srv.diagnostics(text); resp.StatusCode != 404 || name != "not-found" ||
			resp.Header.Get("Content-Type") != "application/fhir+json" {
			t.Errorf("%s: %s %s %s", path, resp.Status, resp.Header, text)
		}
	}
	srv.get("Device/unassigned")
}
