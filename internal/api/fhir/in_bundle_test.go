package fhir_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A sentBundle collects entries.
type sentBundle []string

func (b *sentBundle) add(fullURL, resource, method, url, ifNoneExist string) {
	e := `{"resource":` + resource + `,"request":{"method":"` + method + `","url":"` + url + `"`
	if ifNoneExist != "" {
		e += `,"ifNoneExist":"` + ifNoneExist + `"`
	}
	if fullURL != "" {
		e += `},"fullUrl":"` + fullURL + `"`
	} else {
		e += `}`
	}
	*b = append(*b, e+`}`)
}

// post adds an Observation.
func (b *sentBundle) post(members ...string) {
	b.add("", sentObservation(members...), "POST", "Observation", "")
}

func (b sentBundle) as(typ string) string {
	return `{"resourceType":"Bundle","type":"` + typ + `","entry":[` + strings.Join(b, ",") + `]}`
}

// checkResponses checks the status and location, or the reason, of each entry of a response.
func checkResponses(t *testing.T, body []byte, typ string, want ...string) {
	t.Helper()
	var b struct {
		ResourceType, Type string
		Entry              []struct {
			Response struct {
				Status, Location string
				Outcome          *issueList
			}
		}
	}
	if err := json.Unmarshal(body, &b); err != nil || b.ResourceType != "Bundle" || b.Type != typ ||
		len(b.Entry) != len(want) {
		t.Fatalf("%s: %v; want a %s with %d entries", body, err, typ, len(want))
	}
	for i, e := range b.Entry {
		got := e.Response.Status + " " + strings.TrimPrefix(e.Response.Location, "http://example.com/fhir/")
		if o := e.Response.Outcome; o != nil {
			got += o.Issue[0].Diagnostics
		}
		if !strings.HasPrefix(got, want[i]) {
			t.Errorf("entry %d: %s, want %s", i, got, want[i])
		}
	}
}

func sentAt(seconds int) string {
	return fmt.Sprintf(`"effectiveDateTime":"2026-11-21T10:00:%02d+01:00"`, seconds)
}

// TestBatch checks that each entry of a batch is settled by itself.
func TestBatch(t *testing.T) {
	s := receive(t)
	var b sentBundle
	b.post(sentSpO2, sentAt(1), sentD1, sentQuantity("97", "%"))
	b.post(sentRate, sentAt(1), sentD1, sentQuantity("72", "/min")) // completes the first one
	b.post(sentSpO2, sentAt(1), sentD1, sentQuantity("97", "%"))
	b.post(sentSpO2, sentAt(1), sentD1, sentQuantity("98", "%"))
	b.post(`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"67996"}]}`, sentAt(1), sentD1,
		sentQuantity("98", "%"))
	b.add("", sentObservation(sentSpO2), "PUT", "Observation/1", "")
	b.add("", `{"resourceType":"Observation"}`, "POST", "Patient", "")
	b.add("", `{"resourceType":"Encounter","status":"final"}`, "POST", "Encounter", "")
	b.add("", `{"resourceType":"Device"}`, "POST", "Device", "")
	b.add("", `{"resourceType":"Device","identifier":[{"value":"gateway"}]}`, "POST", "Device", "identifier=gateway")
	b.add("", `{"resourceType":"Patient","identifier":[{"value":"p-3"}]}`, "POST", "Patient", "identifier=p-3")
	b.add("", `{"resourceType":"Patient"}`, "POST", "Patient", "")
	b = append(b, `{}`)
	b.add("",
		sentObservation(sentRate, sentTime, sentD1,
			`"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,`+
				`"dimensions":1,"data":"70 70 70"}`), "POST", "/Observation", "")
	b.add("", sentObservation(sentRate, `"effectiveDateTime":"2026-11-21T10:00:01.123+01:00"`, sentD1,
		`"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,`+
			`"dimensions":1,"data":"70 71 70"}`), "POST", "Observation", "")
	w := send(s.bundle, b.as("batch"))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/fhir+json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	checkResponses(t, w.Body.Bytes(), "batch-response",
		"201 Observation/spo2-", "201 Observation/hr-", "200 Observation/spo2-", "409 contradicts", "422 not a vital sign",
		"422 missing",
		"422 request.url", "422 Pulsegate stores Observations", "422 Pulsegate creates no Devices",
		"422 assigned to no patient", "422 no value of it", "422 Pulsegate creates no Patients", "405 only POST",
		"201 Observation/hr-", "409 contradicts")
	if got, want := s.stored(), `{"device":"d-1","time":"2026-11-21T10:00:00.123+01:00","heart_rate_bpm":70}
{"device":"d-1","time":"2026-11-21T10:00:01.000+01:00","spo2_pct":97,"heart_rate_bpm":72}
{"device":"d-1","time":"2026-11-21T10:00:01.123+01:00","heart_rate_bpm":70}
{"device":"d-1","time":"2026-11-21T10:00:02.123+01:00","heart_rate_bpm":70}
`; got != want {
		t.Errorf("stored\n%s, want\n%s", got, want)
	}
}

// sentVisit is a transaction as gateways of the Personal Health Device guide send them: the
// patient and the device with temporary ids, and Observations that refer to them, some of which
// come first.
func sentVisit() (b sentBundle) {
	const device, patient = "urn:uuid:c87cc91b-8b31-4e6f-b636-75e52891d10a",
		"urn:uuid:5b7842fe-978d-4182-a41f-0d07a8617bc2"
	refs := `"subject":{"reference":"` + patient + `"},"device":{"reference":"` + device + `"}`
	b.post(sentSpO2, sentAt(1), refs, sentQuantity("97", "%"))
	b.add(patient,
		`{"resourceType":"Patient","id":"x","identifier":[{"system":"urn:oid:2.999","value":"p-1"}],"name":[{"family":"X"}]}`,
		"POST", "Patient", "identifier=urn:oid:2.999|p-1")
	b.add(device,
		`{"resourceType":"Device","id":"y","identifier":[{"system":"urn:oid:1","value":"00-1C"},{"value":"d_2"}],`+
			`"type":{"text":"x"}}`, "POST", "Device", "identifier=urn:oid:1|00-1C")
	b.post(sentRate, sentAt(1), refs, sentQuantity("72", "/min"))
	b.post(sentBP, sentAt(2), refs, `"component":[`+sentPart("8480-6", "120")+`,`+sentPart("8462-4", "80")+`]`)
	return b
}

// TestTransaction checks that a transaction is stored as a whole, and found when it is sent again.
func TestTransaction(t *testing.T) {
	s := receive(t)
	for _, status := range []string{"201", "200"} {
		w := send(s.bundle, sentVisit().as("transaction"))
		checkResponses(t, w.Body.Bytes(), "transaction-response",
			status+" Observation/spo2-mwq6g8rs-d.u2", "200 Patient/p-1", "200 Device/d.u2",
			status+" Observation/hr-mwq6g8rs-d.u2", status+" Observation/bp-mwq6g9jk-d.u2")
		if got, want := s.stored(), `{"device":"d_2","time":"2026-11-21T10:00:01.000+01:00","spo2_pct":97,"heart_rate_bpm":72}
{"device":"d_2","time":"2026-11-21T10:00:02.000+01:00","systolic_mmhg":120,"diastolic_mmhg":80}
`; got != want {
			t.Errorf("stored\n%s, want\n%s", got, want)
		}
	}
	w := send(s.bundle, `{"resourceType":"Bundle","type":"transaction"}`)
	checkResponses(t, w.Body.Bytes(), "transaction-response")
}

// TestRefuseTransaction checks that nothing of a transaction is stored if one of its entries is
// refused, or contradicts what is stored or another entry.
func TestRefuseTransaction(t *testing.T) {
	for _, tt := range []struct {
		name        string
		stored      []string // an Observation that is stored before
		entry       []string
		status      int
		path, cause string
	}{
		{"a value that is not stored", nil, []string{`"code":{"text":"x"}`, sentAt(3), sentD1, sentQuantity("1", "%")}, 422,
			"Bundle.entry[5].resource.code", "not a vital sign"},
		{"a stored contradiction", []string{sentSpO2, sentAt(3), sentD1, sentQuantity("96", "%")},
			[]string{sentSpO2, sentAt(3), sentD1, sentQuantity("97", "%")}, 409, "Bundle.entry[5].resource.valueQuantity.value",
			"contradicts"},
		{"two entries that contradict each other", nil, []string{sentSpO2, sentAt(1), `"device":{"reference":"Device/d_2"}`,
			sentQuantity("98", "%")}, 409, "Bundle.entry[5].resource.valueQuantity.value", "contradicts"},
		{"another patient", nil, []string{sentSpO2, sentAt(3), sentD1, sentQuantity("97", "%"),
			`"subject":{"reference":"Patient/p-2"}`}, 422, "Bundle.entry[5].resource.subject", "not the patient"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := receive(t)
			if tt.stored != nil {
				send(s.observation, sentObservation(tt.stored...))
			}
			before := s.stored()
			b := sentVisit()
			b.post(tt.entry...)
			w := send(s.bundle, b.as("transaction"))
			checkIssue(t, w.Body.Bytes(), tt.path, tt.cause)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), "Nothing of the transaction was stored.") {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tt.status)
			}
			if got := s.stored(); got != before {
				t.Errorf("stored %s, want %s", got, before)
			}
		})
	}
}

// TestRefuseBundle checks Bundles that are refused as a whole.
func TestRefuseBundle(t *testing.T) {
	s := receive(t)
	entries := func(n int) string { return strings.TrimSuffix(strings.Repeat("{},", n), ",") }
	for _, tt := range []struct {
		name, body string
		status     int
		path       string
		cause      string
	}{
		{"not JSON", `{"entry":[{]}`, 400, "", "byte"},
		{"a name twice in an entry", `{"resourceType":"Bundle","type":"batch","entry":[{"resource":{"a":1,"a":1}}]}`, 400,
			"", "twice"},
		{"an Observation", sentObservation(sentSpO2), 422, "resourceType", "not a Bundle"},
		{"a collection", sentBundle{}.as("collection"), 422, "type", "neither"},
		{"no type", `{"resourceType":"Bundle"}`, 422, "type", "neither"},
		{"entries of the wrong type", `{"resourceType":"Bundle","type":"batch","entry":{}}`, 400, "",
			"entry is not an array"},
		{"too many entries", `{"resourceType":"Bundle","type":"batch","entry":[` + entries(10_001) + `]}`, 413, "",
			"10000 entries"},
	} {
		w := send(s.bundle, tt.body)
		checkIssue(t, w.Body.Bytes(), tt.path, tt.cause)
		if w.Code != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
	var b sentBundle
	for i := range 4097 {
		b.post(sentSpO2, fmt.Sprintf(`"effectiveDateTime":"2026-11-21T10:%02d:%02d+01:00"`, i/60%60, i%60), sentD1,
			sentQuantity("97", "%"))
	}
	if w := send(s.bundle, b.as("transaction")); w.Code != http.StatusRequestEntityTooLarge || s.stored() != "" {
		t.Errorf("a transaction of 4,097 Observations: %d %s", w.Code, w.Body)
	}
}

// TestTransactionsAtOnce checks that of transactions that contradict each other and are sent at
// once, exactly one is stored, and all of it.
func TestTransactionsAtOnce(t *testing.T) {
	s := receive(t)
	var sends sync.WaitGroup
	codes := make([]int, 8)
	for i := range codes {
		sends.Go(func() {
			var b sentBundle
			for j := range 8 { // all have second 0, and the others in another order
				b.post(sentSpO2, sentAt((i+j)%8), sentD1, sentQuantity(fmt.Sprint(90+i), "%"))
			}
			codes[i] = send(s.bundle, b.as("transaction")).Code
		})
	}
	sends.Wait()
	stored, kept := s.stored(), -1
	for i, code := range codes {
		switch {
		case code == http.StatusOK && kept < 0:
			kept = i
		case code != http.StatusConflict:
			t.Errorf("transaction %d was answered %d", i, code)
		}
	}
	if kept < 0 || strings.Count(stored, fmt.Sprintf(`"spo2_pct":%d}`, 90+kept)) != 8 || strings.Count(stored, "\n") != 8 {
		t.Errorf("transaction %d was stored: %s", kept, stored)
	}
}

// A phdVisit is what a gateway of the Personal Health Device guide sends of one visit, in the
// shapes of the guide's examples: the patient, the gateway (PHG) and the device (PHD) with
// temporary ids and conditions, the time stamp of the device's clock, and Observations that refer to
// them in extensions too. what tells which Observations.
func phdVisit(what ...string) (b sentBundle) {
	const (
		patient, phg, phd, clock = "urn:uuid:11111111-978d-4182-a41f-0d07a8617bc2",
			"urn:uuid:22222222-947e-4da5-bb6d-533eceb7a294",
			"urn:uuid:33333333-8b31-4e6f-b636-75e52891d10a", "urn:uuid:44444444-6bca-47aa-8adf-69fdaf910108"
		eui64 = "urn:oid:1.2.840.10004.1.1.1.0.0.1.0.0.1.2680"
		refs  = `"subject":{"reference":"` + patient + `"},"performer":[{"reference":"` + patient +
			`"}],"device":{"reference":"` + phd + `"}`
		gateway = `"extension":[{"url":"http://hl7.org/fhir/StructureDefinition/observation-gatewayDevice",` +
			`"valueReference":{"reference":"` + phg + `"}},` +
			`{"url":"http://hl7.org/fhir/uv/phd/StructureDefinition/CoincidentTimeStampReference",` +
			`"valueReference":{"reference":"` + clock + `"}}]`
		category = `"category":[{"coding":[{"system":"http://hl7.org/fhir/uv/phd/CodeSystem/PhdObservationCategories",` +
			`"code":"phd"}]},` +
			`{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"vital-signs",` +
			`"display":"Vital Signs"}]}]`
		spot = `"component":[{"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"68193",` +
			`"display":"MDC_ATTR_SUPPLEMENTAL_TYPES"}],"text":"Supplemental information"},` +
			`"valueCodeableConcept":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"150588",` +
			`"display":"MDC_MODALITY_SPOT"}],"text":"Stable mean"}}]`
	)
	mdc := func(code, loinc string) string {
		text := `"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"` + code + `","display":"MDC"}`
		if loinc != "" {
			text += `,{"system":"http://loinc.org","code":"` + loinc + `"}`
		}
		return text + `],"text":"described"}`
	}
	pressure := func(code, loinc, value string) string {
		return `{` + mdc(code, loinc) + `,` + sentQuantity(value, "mm[Hg]") + `}`
	}
	observation := func(members ...string) {
		b.add(fmt.Sprintf("urn:uuid:55555555-0000-4000-8000-%012d", len(b)),
			sentObservation(append(members,
				`"meta":{"profile":["http://hl7.org/fhir/uv/phd/StructureDefinition/PhdNumericObservation"]}`, gateway, category,
				refs)...), "POST", "Observation", "")
	}
	for _, name := range what {
		switch name {
		case "patient":
			b.add(patient,
				`{"resourceType":"Patient","id":"patient-001",`+
					`"meta":{"profile":["http://hl7.org/fhir/uv/phd/StructureDefinition/PhdPatient"]},`+
					`"identifier":[{"type":{"coding":[{"code":"MR"}]},"system":"urn:oid:2.999.1","value":"p-1"}],`+
					`"name":[{"family":"X","given":["Y"]}]}`, "POST", "Patient", "identifier=urn:oid:2.999.1|p-1")
		case "phg":
			b.add(phg,
				`{"resourceType":"Device","id":"phg-001",`+
					`"identifier":[{"type":{"coding":[{"code":"SYSID"}]},"system":"`+eui64+`","value":"4C-4E-49-12-34-56-FF-FF"}],`+
					`"type":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"531981"}]},"property":[{"type":{"text":"time `+
					`synchronization"}}]}`, "POST", "Device", "identifier="+eui64+"|4C-4E-49-12-34-56-FF-FF")
		case "phd":
			b.add(phd,
				`{"resourceType":"Device","id":"phd-001",`+
					`"identifier":[{"type":{"coding":[{"code":"SYSID"}]},"system":"`+eui64+`","value":"00-1C-05-04-00-00-78-25"},`+
					`{"type":{"coding":[{"code":"BTMAC"}]},"value":"d_2"}],`+
					`"manufacturer":"M","serialNumber":"S",`+
					`"specialization":[{"systemType":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"528388"}]}}]}`, "POST",
				"Device", "identifier="+eui64+"|00-1C-05-04-00-00-78-25")
		case "clock":
			b.add(clock, `{"resourceType":"Observation","id":"cts-001","status":"final",`+mdc("67975",
				"")+`,"subject":{"reference":"`+phd+`"},"effectiveDateTime":"2026-11-21T10:00:07.936+01:00",`+
				`"valueDateTime":"2026-11-21T10:00:09.000+01:00","device":{"reference":"`+phg+`"}}`, "POST", "Observation", "")
		case "spo2":
			observation(mdc("150456", "2708-6"), sentAt(1), sentQuantity("98.0", "%"), spot)
		case "pulse":
			observation(mdc("149530", "8867-4"), sentAt(1), sentQuantity("53.0", "/min"), spot,
				`"identifier":[{"value":"74E8FFFEFF051C00-x-149530-20261121100001.00-150588",`+
					`"system":"http://hl7.org/fhir/uv/phd/StructureDefinition/PhdBaseObservation"}]`)
		case "pressure":
			observation(mdc("150020", "85354-9"), sentAt(2),
				`"component":[`+pressure("150021", "8480-6", "116")+`,`+pressure("150022", "8462-4", "71")+`]`)
		case "pressure with mean":
			observation(mdc("150020", "85354-9"), sentAt(3), `"component":[`+pressure("150021", "8480-6",
				"116")+`,`+pressure("150022", "8462-4", "71")+`,`+pressure("150023", "", "86")+`]`)
		case "rates":
			observation(mdc("149530", "8867-4"), sentAt(4),
				`"valueSampledData":{"origin":{"value":0.5,"system":"http://unitsofmeasure.org","code":"/min","unit":"beats"},`+
					`"period":500.0,"factor":1.0,"dimensions":1,"data":"60 61 E 63"}`)
		case "wave":
			observation(mdc("150452", ""), sentAt(5),
				`"valueSampledData":{"origin":{"value":-3.4,"system":"http://unitsofmeasure.org","code":"1"},"period":2.0,`+
					`"factor":3.0,"dimensions":1,"data":"123 110 97"}`)
		case "status":
			observation(mdc("150604", ""), sentAt(6),
				`"component":[{"code":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/ASN1ToHL7",`+
					`"code":"150604.7"}]},"valueBoolean":true}]`)
		case "battery":
			observation(mdc("67996", ""), sentAt(7), sentQuantity("90", "%"))
		case "not a number":
			observation(mdc("150456", "2708-6"), sentAt(8),
				`"dataAbsentReason":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/data-absent-reason",`+
					`"code":"not-a-number"}]}`)
		case "in alarm":
			observation(mdc("150456", "2708-6"), sentAt(9), sentQuantity("79.0", "%"),
				`"interpretation":[{"coding":[{"system":"http://hl7.org/fhir/uv/pocd/CodeSystem/measurement-status",`+
					`"code":"in-alarm"}]}]`)
		}
	}
	return b
}

// TestPersonalHealthGateway sends what gateways of the Personal Health Device guide send, with the
// preferences that they may have.
func TestPersonalHealthGateway(t *testing.T) {
	s := receive(t)
	all := phdVisit("patient", "phg", "phd", "clock", "spo2", "pulse", "pressure", "pressure with mean", "rates", "wave",
		"status", "battery", "not a number", "in alarm")
	const kept = `{"device":"d_2","time":"2026-11-21T10:00:01.000+01:00","spo2_pct":98,"pulse_rate_bpm":53}
{"device":"d_2","time":"2026-11-21T10:00:02.000+01:00","systolic_mmhg":116,"diastolic_mmhg":71}
`
	const rates = `{"device":"d_2","time":"2026-11-21T10:00:04.000+01:00","pulse_rate_bpm":60.5}
{"device":"d_2","time":"2026-11-21T10:00:04.500+01:00","pulse_rate_bpm":61.5}
{"device":"d_2","time":"2026-11-21T10:00:05.500+01:00","pulse_rate_bpm":63.5}
{"device":"d_2","time":"2026-11-21T10:00:09.000+01:00","spo2_pct":79}
`
	w := send(s.bundle, all.as("transaction"))
	if w.Code != 422 || s.stored() != "" {
		t.Errorf("a transaction with what Pulsegate does not store: %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"Bundle.entry[1].resource.identifier", "Bundle.entry[3].resource.code",
		"Bundle.entry[7].resource.component[2]", "Bundle.entry[9].resource.code"} {
		if !strings.Contains(w.Body.String(), `"`+path) {
			t.Errorf("%s is not among what is refused: %s", path, w.Body)
		}
	}
	for _, prefer := range []string{"", "return=minimal", "return=representation", "return=OperationOutcome",
		"respond-async, handling=strict"} {
		status := "201"
		if prefer != "" {
			status = "200"
		}
		w := send(s.bundle, phdVisit("patient", "phd", "spo2", "pulse", "pressure").as("transaction"), "Prefer", prefer)
		checkResponses(t, w.Body.Bytes(), "transaction-response", "200 Patient/p-1", "200 Device/d.u2",
			status+" Observation/spo2-", status+" Observation/pr-", status+" Observation/bp-")
		if got := s.stored(); got != kept {
			t.Errorf("a transaction with %q: stored\n%s, want\n%s", prefer, got, kept)
		}
	}
	w = send(s.bundle, all.as("batch"))
	checkResponses(t, w.Body.Bytes(), "batch-response", "200 Patient/p-1", "422 assigned to no patient", "200 Device/d.u2",
		"422 not a vital sign",
		"200 Observation/spo2-", "200 Observation/pr-", "200 Observation/bp-", "422 mean pressure", "201 Observation/pr-",
		"422 not a vital sign", "422 not a vital sign", "422 not a vital sign",
		"200 left out: marked by the device as not available", "201 Observation/spo2-")
	if got := s.stored(); got != kept+rates {
		t.Errorf("a batch: stored\n%s, want\n%s", got, kept+rates)
	}
}

// Of several sources of a sign in a Bundle, the first by the order of its codes is stored. The others are not, and are
// no error, neither of a batch nor of a transaction. One that is sampled is left out value by value.
func TestSeveralSources(t *testing.T) {
	sent := func(code, value string) string {
		return sentObservation(mdcCode(code), `"effectiveDateTime":"2026-11-21T10:00:01+01:00"`, sentD1,
			sentQuantity(value, "/min"))
	}
	sampled := sentObservation(mdcCode("149546"), `"effectiveDateTime":"2026-11-21T10:00:00+01:00"`, sentD1,
		`"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,`+
			`"dimensions":1,"data":"75 76"}`)
	const other = `200 Not stored: the Bundle has another source`
	for _, typ := range []string{"batch", "transaction"} {
		for _, reversed := range []bool{false, true} {
			s := receive(t)
			var b sentBundle
			all := []string{sent("149530", "70"), sent("149546", "74"), sent("147842", "72"), sent("151578", "17"),
				sent("151594", "18"), sampled}
			want := []string{"201 Observation/pr-", other, "201 Observation/hr-", "201 Observation/resp-", other,
				"201 Observation/pr-"}
			if reversed {
				slices.Reverse(all)
				slices.Reverse(want)
			}
			for _, text := range all {
				b.add("", text, "POST", "Observation", "")
			}
			w := send(s.bundle, b.as(typ))
			checkResponses(t, w.Body.Bytes(), typ+"-response", want...)
			if got := s.stored(); !strings.Contains(got, `"heart_rate_bpm":72,"respiratory_rate_bpm":17,"pulse_rate_bpm":70}`) ||
				!strings.Contains(got, `00.000+01:00","pulse_rate_bpm":75}`) {
				t.Errorf("%s, reversed %v: stored\n%s", typ, reversed, got)
			}
		}
	}
}
