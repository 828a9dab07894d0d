package fhir_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

var receivedAt = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// countedSubjects counts the calls of DeviceAssignments. If err is not nil, DeviceAssignments returns it.
type countedSubjects struct {
	fhir.Subjects
	err   error
	reads atomic.Int64
}

func (a *countedSubjects) DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error) {
	a.reads.Add(1)
	if a.err != nil {
		return nil, a.err
	}
	return a.Subjects.DeviceAssignments(ctx, device)
}

func unixMs(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	try(t, err)
	return at.UnixMilli()
}

// A receiving is a server of the two forms, on a store in memory.
type receiving struct {
	t           testing.TB
	store       *storetest.Memory
	assignments *countedSubjects
	observation http.Handler
	bundle      http.Handler
	update      http.Handler
	read        http.HandlerFunc
	left        []ingest.LeftOut
}

// receive starts a receiving. d-1 is assigned to p-1 until noon of 2026-11-21, then to p-2; d_2
// to p-1 from 2018 on.
func receive(t testing.TB) *receiving { return receiveBy(t, nil, "") }

// receiveBy is receive with access control and the URL of the server.
func receiveBy(t testing.TB, g *gate.Gate, base string) *receiving {
	t.Helper()
	noon := unixMs(t, "2026-11-21T12:00:00Z")
	assigned := &store{withOwnSigns(t)}
	assigned.assign(t, "d-1", "p-1", unixMs(t, "2026-11-01T00:00:00Z"), noon)
	assigned.assign(t, "d-1", "p-2", noon, storage.OpenEnd)
	assigned.assign(t, "d_2", "p-1", unixMs(t, "2018-01-01T00:00:00Z"), storage.OpenEnd)
	s := &receiving{t: t, store: assigned.Memory, assignments: &countedSubjects{Subjects: assigned}}
	problems := problem.New()
	core, err := ingest.New(s.store, problems, ingest.Config{
		Gate: g, Limits: s.store.Signs().DefaultLimits(), Now: func() time.Time { return receivedAt },
		OnLeftOut: func(l *ingest.LeftOut, _ vitals.Name, _ bool) { s.left = append(s.left, *l) },
	})
	try(t, err)
	t.Cleanup(func() { core.Close(context.Background()) })
	rc := fhir.New(s.store, s.assignments, fhir.Options{
		Service: query.Service{Problems: problems, Gate: g, Param: func(r *http.Request, _ string) string {
			return path.Base(r.URL.Path)
		}}, Base: base,
	})
	s.observation, s.bundle, s.update, s.read = core.Handler(rc.ObservationForm), core.Handler(rc.BundleForm),
		core.Handler(rc.UpdateForm), rc.Observation
	return s
}

func send(h http.Handler, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/fhir", strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// stored returns all stored readings as text.
func (s *receiving) stored() string {
	var out []byte
	devices := make([]storage.Device, 100)
	n, err := s.store.Devices(context.Background(), vitals.Name{}, devices)
	try(s.t, err)
	for _, d := range devices[:n] {
		records := make([]storage.Record, 1000)
		m, err := s.store.Scan(context.Background(), storage.Range{Device: d.Name, ToUnixMs: storage.OpenEnd}, records)
		try(s.t, err)
		for _, r := range records[:m] {
			out = append(s.store.Signs().AppendJSON(out, &vitals.Reading{Device: d.Name, TimeUnixMs: r.TimeUnixMs,
				Values: r.Values, UTCOffset: r.UTCOffset}), '\n')
		}
	}
	return string(out)
}

const (
	sentSpO2 = `"code":{"coding":[{"system":"http://loinc.org","code":"2708-6"},{"system":"http://loinc.org",` +
		`"code":"59408-5"}]}`
	sentRate = `"code":{"coding":[{"system":"http://loinc.org","code":"8867-4"}]}`
	sentRest = `"code":{"coding":[{"system":"http://loinc.org","code":"40443-4"},{"system":"http://loinc.org",` +
		`"code":"8867-4"}]}`
	sentBP = `"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"150020"},{"system":"http://loinc.org",` +
		`"code":"85354-9"}]}`
	sentTime = `"effectiveDateTime":"2026-11-21T10:00:00.123+01:00"`
	sentD1   = `"device":{"reference":"Device/d-1"}`
	sentP1   = `"subject":{"reference":"Patient/p-1"}`
)

func sentQuantity(value, unit string) string {
	return fmt.Sprintf(`"valueQuantity":{"value":%s,"system":"http://unitsofmeasure.org","code":%q,"unit":"x"}`,
		value, unit)
}

func sentPart(code, value string) string {
	return `{"code":{"coding":[{"system":"http://loinc.org","code":"` + code + `"}]},` +
		sentQuantity(value, "mm[Hg]") + `}`
}

// mdcCode returns a code of IEEE 11073-10101.
func mdcCode(code string) string {
	return `"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"` + code + `"}]}`
}

// sentObservation returns a final Observation.
func sentObservation(members ...string) string {
	return `{"resourceType":"Observation","status":"final",` + strings.Join(members, ",") + `}`
}

// TestSendObservation checks which Observations are stored, and as what.
func TestSendObservation(t *testing.T) {
	const at = `{"device":"d-1","time":"2026-11-21T10:00:00.123+01:00",`
	for _, tt := range []struct{ name, body, location, want string }{
		{"SpO2", sentObservation(sentSpO2, sentTime, sentD1, sentP1, sentQuantity("97.50", "%")), "spo2-mwq6g83f-d-1",
			at + `"spo2_pct":97.5}`},
		{"heart rate", sentObservation(sentRate, sentTime, sentD1, sentQuantity("7.2e1", "/min")), "hr-mwq6g83f-d-1",
			at + `"heart_rate_bpm":72}`},
		{"resting heart rate", sentObservation(sentRest, sentTime, sentD1, sentQuantity("58", "/min")), "rhr-mwq6g83f-d-1",
			at + `"resting_heart_rate_bpm":58}`},
		{"blood pressure",
			sentObservation(sentBP, sentTime, sentD1, `"component":[`+sentPart("8462-4", "80")+`,`+sentPart("8480-6",
				"120.25")+`]`), "bp-mwq6g83f-d-1", at + `"systolic_mmhg":120.25,"diastolic_mmhg":80}`},
		{"codes of devices",
			sentObservation(
				`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"149530"},{"system":"http://example.org",`+
					`"code":"x"}]}`, sentTime, sentD1, sentQuantity("72", "/min")), "pr-mwq6g83f-d-1", at + `"pulse_rate_bpm":72}`},
		{"an ECG's heart rate",
			sentObservation(`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"147842"}]}`, sentTime, sentD1,
				sentQuantity("72", "/min")), "hr-mwq6g83f-d-1", at + `"heart_rate_bpm":72}`},
		{"a cuff's blood pressure", sentObservation(mdcCode("150300"), sentTime, sentD1,
			`"component":[{`+mdcCode("150301")+`,`+sentQuantity("120.25", "mm[Hg]")+`},{`+mdcCode("150302")+`,`+sentQuantity(
				"80", "mm[Hg]")+`}]`), "bp-mwq6g83f-d-1", at + `"systolic_mmhg":120.25,"diastolic_mmhg":80}`},
		{"a temperature without its site", sentObservation(mdcCode("150344"), sentTime, sentD1, sentQuantity("36.6", "Cel")),
			"temp-mwq6g83f-d-1", at + `"body_temperature_c":36.6}`},
		{"description and escapes", sentObservation(sentSpO2, sentTime, `"dev\u0069ce":{"reference":"Dev\u0069ce/d-1"}`,
			sentQuantity("97", "%"),
			`"note":[{"text":"x"}],"category":[{"text":"x"}],`+
				`"component":[{"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"68193"}]},`+
				`"valueCodeableConcept":{"text":"spot"}}]`), "spo2-mwq6g83f-d-1", at + `"spo2_pct":97}`},
		{"null", "\ufeff" + sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("97", "%"), `"valueString":null`,
			`"subject":null`), "spo2-mwq6g83f-d-1", at + `"spo2_pct":97}`},
		{"UTC", sentObservation(sentSpO2, `"effectiveInstant":"2026-11-21T09:00:00.123Z"`, sentD1, sentQuantity("97", "%")),
			"spo2-mwq6g83f-d-1", `{"device":"d-1","time":"2026-11-21T09:00:00.123Z","spo2_pct":97}`},
		{"an id of Pulsegate", sentObservation(sentSpO2, sentTime, `"device":{"reference":"Device/d.u2"}`,
			sentQuantity("97", "%")), "spo2-mwq6g83f-d.u2",
			`{"device":"d_2","time":"2026-11-21T10:00:00.123+01:00","spo2_pct":97}`},
		{"a contained device",
			sentObservation(
				`"contained":[{"resourceType":"Device","id":"x","identifier":[{"value":"other"},{"system":"urn:x",`+
					`"value":"d_2"}]}]`, sentSpO2, sentTime, `"device":{"reference":"#x"},"identifier":[{"value":"mine"}]`,
				sentQuantity("97", "%")), "spo2-mwq6g83f-d.u2",
			`{"device":"d_2","time":"2026-11-21T10:00:00.123+01:00","spo2_pct":97}`},
		{"an identifier",
			sentObservation(sentSpO2, sentTime,
				`"device":{"identifier":{"value":"d_2"}},"subject":{"identifier":{"value":"p-1"}}`, sentQuantity("97", "%")),
			"spo2-mwq6g83f-d.u2", `{"device":"d_2","time":"2026-11-21T10:00:00.123+01:00","spo2_pct":97}`},
		{"a contained patient",
			sentObservation(
				`"contained":[{"resourceType":"Patient","id":"x","identifier":[{"value":"p-1"}]}],"subject":{"reference":"#x"}`,
				sentSpO2, sentTime, sentD1, sentQuantity("97", "%")), "spo2-mwq6g83f-d-1", at + `"spo2_pct":97}`},
		{"samples",
			sentObservation(sentRate,
				`"effectivePeriod":{"start":"2026-11-21T10:00:00.123+01:00","end":"2026-11-21T10:00:04.123+01:00"}`, sentD1,
				`"valueSampledData":{"origin":{"value":50.5,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,`+
					`"factor":0.25,"dimensions":1,"data":"0 E 2 U 4"}`), "hr-mwq6g83f-d-1",
			at + "\"heart_rate_bpm\":50.5}\n" + strings.Replace(at, "00.123", "02.123", 1) + "\"heart_rate_bpm\":51}\n" +
				strings.Replace(at, "00.123", "04.123", 1) + `"heart_rate_bpm":51.5}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := receive(t)
			for i, status := range []int{201, 200} { // the second time it exists
				w := send(s.observation, tt.body)
				if w.Code != status || w.Header().Get("Location") != "http://example.com/fhir/Observation/"+tt.location ||
					w.Header().Get("Content-Type") != "application/fhir+json" {
					t.Errorf("send %d: %d %v %s, want %d and %s", i, w.Code, w.Header(), w.Body, status, tt.location)
				}
				if got := s.stored(); got != tt.want+"\n" {
					t.Errorf("stored %s, want %s", got, tt.want)
				}
			}
		})
	}
}

// TestRefuseObservation checks every reason for which an Observation is refused, and that nothing
// of it is stored.
func TestRefuseObservation(t *testing.T) {
	ok := sentQuantity("97", "%")
	sampled := func(members string) string {
		return sentObservation(sentRate, sentTime, sentD1,
			`"valueSampledData":{"origin":{"value":50,"system":"http://unitsofmeasure.org","code":"/min"},`+
				`"dimensions":1,`+members+`}`)
	}
	for _, tt := range []struct {
		name, body        string
		status            int
		expression, cause string
	}{
		{"not JSON", `{"a"`, 400, "", "cut off"},
		{"empty", ` `, 400, "", "empty body"},
		{"more after it", sentObservation(sentSpO2, sentTime, sentD1, ok) + "{}", 400, "", "data after"},
		{"a name twice", `{"resourceType":"Observation","status":"final","status":"final"}`, 400, "",
			"field name given twice"},
		{"a name twice in what is ignored", `{"resourceType":"Observation","note":[{"a":1,"a":1}]}`, 400, "",
			"field name given twice"},
		{"invalid UTF-8", "{\"resourceType\":\"\xff\"}", 400, "", "not JSON"},
		{"deep", strings.Repeat("[", 65), 400, "", "64 levels"},
		{"an array", `[]`, 422, "resourceType", "not an Observation"},
		{"another resource", `{"resourceType":"Patient"}`, 422, "resourceType", "not an Observation"},
		{"a wrong type", sentObservation(sentSpO2, sentTime, sentD1, `"valueQuantity":{"value":"97"}`), 422, "Observation",
			"value is not a number"},
		{"a value that is null", sentObservation(sentSpO2, sentTime, sentD1, `"valueQuantity":null`), 422,
			"Observation.valueQuantity", "missing"},
		{"a fraction", sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("1", "%")), 422,
			"Observation.valueQuantity.value", "a fraction? send per cent"},
		{"a fine fraction", sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("0.975", "%")), 422,
			"Observation.valueQuantity.value", "a fraction? send per cent"},
		{"an unknown element", sentObservation(sentSpO2, sentTime, sentD1, ok, `"heartRate":1`), 422, "Observation",
			"heartRate is not an element"},
		{"a status", strings.Replace(sentObservation(sentSpO2, sentTime, sentD1, ok), "final", "amended", 1), 422,
			"Observation.status", "not final"},
		{"no status", strings.Replace(sentObservation(sentSpO2, sentTime, sentD1, ok), `"status":"final",`, "", 1), 422,
			"Observation.status", "not final"},
		{"no code", sentObservation(sentTime, sentD1, ok), 422, "Observation.code", "not a vital sign"},
		{"another code", sentObservation(`"code":{"coding":[{"system":"http://loinc.org","code":"8302-2"}]}`, sentTime,
			sentD1, ok), 422, "Observation.code", "not a vital sign"},
		{"a system without a code", sentObservation(`"code":{"coding":[{"system":"http://loinc.org"}]}`, sentTime, sentD1,
			`"component":[`+sentPart("8480-6", "120")+`,`+sentPart("8462-4", "80")+`]`), 422, "Observation.code",
			"not a vital sign"},
		{"a battery level", sentObservation(`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"67996"}]}`,
			sentTime, sentD1, ok), 422, "Observation.code", "not a vital sign"},
		{"two codes", sentObservation(strings.Replace(sentRate, "}]", `},{"system":"http://loinc.org","code":"2708-6"}]`, 1),
			sentTime, sentD1, ok), 422, "Observation.code", "not a vital sign"},
		{"a more specific code",
			sentObservation(strings.Replace(sentRate, "}]", `},{"system":"http://loinc.org","code":"8873-2"}]`, 1), sentTime,
				sentD1, ok), 422, "Observation.code", "not a vital sign"},
		{"mean pressure", sentObservation(`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"150023"}]}`,
			sentTime, sentD1, ok), 422, "Observation.code", "mean pressure"},
		{"a component with the mean",
			sentObservation(sentBP, sentTime, sentD1, `"component":[`+sentPart("8462-4", "80")+`,`+sentPart("8480-6",
				"120")+`,`+sentPart("8478-0", "93")+`]`), 422, "Observation.component[2]", "mean pressure"},
		{"another component", sentObservation(sentSpO2, sentTime, sentD1, ok, `"component":[`+sentPart("3150-6", "1")+`]`),
			422, "Observation.component[0]", "not stored"},
		{"one pressure", sentObservation(sentBP, sentTime, sentD1, `"component":[`+sentPart("8480-6", "80")+`]`), 422,
			"Observation.component", "needs a systolic"},
		{"one pressure twice",
			sentObservation(sentBP, sentTime, sentD1, `"component":[`+sentPart("8480-6", "80")+`,`+sentPart("8480-6", "80")+`]`),
			422, "Observation.component[1]", "given twice"},
		{"pressures in the wrong order",
			sentObservation(sentBP, sentTime, sentD1, `"component":[`+sentPart("8480-6", "80")+`,`+sentPart("8462-4",
				"120")+`]`), 422, "Observation.component[0].valueQuantity.value", "not above"},
		{"no value", sentObservation(sentSpO2, sentTime, sentD1), 422, "Observation.valueQuantity", "missing"},
		{"another type of value", sentObservation(sentSpO2, sentTime, sentD1, `"valueString":"97"`), 422,
			"Observation.value[x]", "of a type"},
		{"two values", sentObservation(sentSpO2, sentTime, sentD1, ok, `"valueSampledData":{}`), 422, "Observation.value[x]",
			"given twice"},
		{"a bound", sentObservation(sentSpO2, sentTime, sentD1, strings.Replace(ok, "{", `{"comparator":"<",`, 1)), 422,
			"Observation.valueQuantity.comparator", "a bound"},
		{"another unit", sentObservation(sentRate, sentTime, sentD1, sentQuantity("1.2", "Hz")), 422,
			"Observation.valueQuantity.code", "not /min"},
		{"a unit's other spelling", sentObservation(sentRate, sentTime, sentD1, sentQuantity("72", "{beat}/min")), 422,
			"Observation.valueQuantity.code", "not /min"},
		{"another system of units", sentObservation(sentSpO2, sentTime, sentD1, `"valueQuantity":{"value":97,"unit":"%"}`),
			422, "Observation.valueQuantity.system", "not http"},
		{"too precise", sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("97.555", "%")), 422,
			"Observation.valueQuantity.value", "two decimals"},
		{"out of range", sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("101", "%")), 422,
			"Observation.valueQuantity.value", "outside"},
		{"zero", sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("0", "%")), 422, "Observation.valueQuantity.value",
			"no signal"},
		{"no time", sentObservation(sentSpO2, sentD1, ok), 422, "Observation.effectiveDateTime", "missing"},
		{"a date", sentObservation(sentSpO2, `"effectiveDateTime":"2026-11-21"`, sentD1, ok), 422,
			"Observation.effectiveDateTime", "not a date and time"},
		{"no zone", sentObservation(sentSpO2, `"effectiveDateTime":"2026-11-21T10:00:00"`, sentD1, ok), 422,
			"Observation.effectiveDateTime", "no zone"},
		{"two times", sentObservation(sentSpO2, sentTime, `"effectiveInstant":"2026-11-21T10:00:00Z"`, sentD1, ok), 422,
			"Observation.effective[x]", "given twice"},
		{"the future", sentObservation(sentSpO2, `"effectiveDateTime":"2027-11-21T10:00:00Z"`, sentD1, ok), 422,
			"Observation.effective[x]", "ahead"},
		{"an event", sentObservation(sentSpO2, `"effectiveTiming":{}`, sentD1, ok), 422, "Observation.effectiveTiming",
			"not supported"},
		{"no device", sentObservation(sentSpO2, sentTime, sentP1, ok), 422, "Observation.device", "missing"},
		{"a device that is not assigned", sentObservation(sentSpO2, sentTime, `"device":{"reference":"Device/d-3"}`, ok), 422,
			"Observation.device", "assigned to no patient;"},
		{"a device before it was assigned", sentObservation(sentSpO2, `"effectiveDateTime":"2026-10-31T23:59:59.999Z"`,
			sentD1, ok), 422, "Observation.device", "assigned to no patient at that time"},
		{"a device elsewhere",
			sentObservation(sentSpO2, sentTime, `"device":{"reference":"https://example.org/fhir/Device/d-1"}`, ok), 422,
			"Observation.device", "does not name a device of this server"},
		{"a device that is not contained", sentObservation(sentSpO2, sentTime, `"device":{"reference":"#x"}`, ok), 422,
			"Observation.device", "does not name a device"},
		{"two assigned devices",
			sentObservation(`"contained":[{"resourceType":"Device","id":"x","identifier":[{"value":"d-1"},{"value":"d_2"}]}]`,
				sentSpO2, sentTime, `"device":{"reference":"#x"}`, ok), 422, "Observation.device", "several devices"},
		{"another patient", sentObservation(sentSpO2, sentTime, sentD1, `"subject":{"reference":"Patient/p-2"}`, ok), 422,
			"Observation.subject", "not the patient"},
		{"the next patient", sentObservation(sentSpO2, `"effectiveDateTime":"2026-11-21T11:59:59.999Z"`, sentD1,
			`"subject":{"reference":"Patient/p-2"}`, ok), 422, "Observation.subject", "not the patient"},
		{"the previous patient", sentObservation(sentSpO2, `"effectiveDateTime":"2026-11-21T12:00:00Z"`, sentD1, sentP1, ok),
			422, "Observation.subject", "not the patient"},
		{"a subject that is no patient", sentObservation(sentSpO2, sentTime, sentD1, `"subject":{"reference":"Device/d-1"}`,
			ok), 422, "Observation.subject", "not the patient"},
		{"a modifier", sentObservation(sentSpO2, sentTime, sentD1, ok, `"modifierExtension":[{"url":"x"}]`), 422,
			"Observation.modifierExtension", "changes the meaning"},
		{"of another person", sentObservation(sentSpO2, sentTime, sentD1, ok, `"focus":[{"reference":"Patient/p-2"}]`), 422,
			"Observation.focus", "changes the meaning"},
		{"samples without period", sampled(`"data":"1"`), 422, "Observation.valueSampledData.period", "whole number"},
		{"a fraction of a millisecond", sampled(`"period":0.5,"data":"1 2"`), 422, "Observation.valueSampledData.period",
			"whole number"},
		{"two dimensions", strings.Replace(sampled(`"period":1,"data":"1"`), `"dimensions":1`, `"dimensions":2`, 1), 422,
			"Observation.valueSampledData.dimensions", "not 1"},
		{"a double space", sampled(`"period":1,"data":"1  2"`), 422, "Observation.valueSampledData.data", "not decimals"},
		{"no samples", sampled(`"period":1,"data":""`), 422, "Observation.valueSampledData.data", "not decimals"},
		{"too precise samples", sampled(`"period":1,"factor":0.001,"data":"1"`), 422, "Observation.valueSampledData.data",
			"two decimals"},
		{"one sample out of range", sampled(`"period":1000,"data":"1 500"`), 422, "Observation.valueSampledData.data",
			"outside"},
		{"samples until the next patient", strings.Replace(sampled(`"period":3600000,"data":"1 2 3 4"`), `"device"`,
			sentP1+`,"device"`, 1), 422, "Observation.subject", "not the patient"},
		{"too many samples", sampled(`"period":1,"data":"` + strings.Repeat("1 ", 4096) + `1"`), 422,
			"Observation.valueSampledData.data", "more samples"},
		{"a number like a bomb", sampled(`"period":1,"data":"1e999999999"`), 422, "Observation.valueSampledData.data",
			"not decimals"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := receive(t)
			w := send(s.observation, tt.body)
			checkIssue(t, w.Body.Bytes(), tt.expression, tt.cause)
			if w.Code != tt.status || w.Header().Get("Content-Type") != "application/fhir+json" {
				t.Errorf("%d %v, want %d", w.Code, w.Header(), tt.status)
			}
			if got := s.stored(); got != "" {
				t.Errorf("stored %s", got)
			}
		})
	}
}

// An issueList is an OperationOutcome.
type issueList struct {
	ResourceType string
	Issue        []struct {
		Severity, Code, Diagnostics string
		Details                     struct {
			Coding []struct{ System, Code string }
		}
		Expression []string
	}
}

// checkIssue checks the first issue of an OperationOutcome.
func checkIssue(t *testing.T, body []byte, expression, cause string) {
	t.Helper()
	var o issueList
	if err := json.Unmarshal(body, &o); err != nil || o.ResourceType != "OperationOutcome" || len(o.Issue) == 0 {
		t.Fatalf("%s is not an OperationOutcome: %v", body, err)
	}
	i := o.Issue[0]
	if got := strings.Join(i.Expression, ""); got != expression || !strings.Contains(i.Diagnostics, cause) ||
		i.Severity != "error" || len(i.Details.Coding) != 1 {
		t.Errorf("issue %+v, want %q at %s", i, cause, expression)
	}
}

// TestSubjectsFail checks the answer when assignments cannot be read.
func TestSubjectsFail(t *testing.T) {
	s := receive(t)
	s.assignments.err = errors.New("disk")
	w := send(s.observation, sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("97", "%")))
	checkIssue(t, w.Body.Bytes(), "", "")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v, want 503 with Retry-After", w.Code, w.Header())
	}
}

// TestIfNoneExist checks which conditions are supported.
func TestIfNoneExist(t *testing.T) {
	s := receive(t)
	body := sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("97", "%"),
		`"identifier":[{"system":"urn:x","value":"a|b"}]`)
	for _, tt := range []struct {
		condition string
		status    int
	}{
		{"identifier=urn:y|c", 422},
		{"code=2708-6", 422},
		{"identifier=urn:x%7Ca%7Cb", 422}, // the value would be b
	} {
		if w := send(s.observation, body, "If-None-Exist", tt.condition); w.Code != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.condition, w.Code, w.Body, tt.status)
		}
	}
	body = strings.Replace(body, "a|b", "ab", 1)
	for _, status := range []int{201, 200} {
		if w := send(s.observation, body, "If-None-Exist", "identifier=urn:x|ab"); w.Code != status {
			t.Errorf("%d %s, want %d", w.Code, w.Body, status)
		}
	}
}

// TestWriteRight checks that the gateway of what is sent is the token's, and that devices and
// requests that a token does not allow are refused, a transaction as a whole.
func TestWriteRight(t *testing.T) {
	k := newKeyring(t)
	narrow := k.Token(t, "bed-8", "d-", token.Token{Rights: token.Write})
	try(t, k.gate.Tokens.Reload())
	s := receiveBy(t, k.gate, "")
	covered := sentObservation(sentSpO2, sentTime, sentD1, sentQuantity("97", "%"))
	other := sentObservation(sentSpO2, sentTime, `"device":{"identifier":{"value":"d_2"}}`, sentQuantity("97", "%"))
	for _, tt := range []struct {
		name, token, body string
		status            int
	}{
		{"no token", "", covered, 401},
		{"a wrong one", "Bearer x", covered, 401},
		{"a reader", k.all, covered, 403},
		{"a device that is not covered", narrow, other, 403},
	} {
		w := send(s.observation, tt.body, "Authorization", tt.token)
		if w.Code != tt.status || !strings.HasPrefix(w.Body.String(), `{"resourceType":"OperationOutcome"`) ||
			tt.status == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d %v %s, want %d", tt.name, w.Code, w.Header(), w.Body, tt.status)
		}
	}
	b := sentBundle{}
	b.add("", covered, "POST", "Observation", "")
	b.add("", other, "POST", "Observation", "")
	if w := send(s.bundle, b.as("transaction"), "Authorization", narrow); w.Code != 403 || s.stored() != "" {
		t.Errorf("transaction: %d %s, stored %s", w.Code, w.Body, s.stored())
	}
	checkResponses(t, send(s.bundle, b.as("batch"), "Authorization", narrow).Body.Bytes(), "batch-response",
		"201 Observation/spo2-", "403 the token is not for this device")
	records := make([]storage.Record, 1)
	if n, err := s.store.Scan(t.Context(), storage.Range{Device: name(t, "d-1"), ToUnixMs: storage.OpenEnd},
		records); err != nil || n != 1 || records[0].Gateway == nil || records[0].Gateway.String() != "bed-8" {
		t.Errorf("%d records, %v: %+v; want one by bed-8", n, err, records[0])
	}
	// A client that may only write states one value for a device, time and sign.
	b = sentBundle{}
	for _, v := range []string{"90", "91"} {
		b.post(sentSpO2, sentAt(5), sentD1, sentQuantity(v, "%"))
	}
	checkResponses(t, send(s.bundle, b.as("batch"), "Authorization", narrow).Body.Bytes(), "batch-response",
		"201 Observation/", "422 a reading before it")
}
