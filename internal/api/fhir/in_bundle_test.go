package fhir_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	if err := json.Unmarshal(body, &b); err != nil || b.ResourceType != "Bundle" || b.Type != typ || len(b.Entry) != len(want) {
		t.Fatalf("%s: %v; want a %s with %d entries", body, err, typ, len(want))
	}
	for i, e := range b.Entry {
		got := e.Response.Status + " " + e.Response.Location
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
	b.post(`"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"67996"}]}`, sentAt(1), sentD1, sentQuantity("98", "%"))
	b.add("", sentObservation(sentSpO2), "PUT", "Observation/1", "")
	b.add("", `{"resourceType":"Observation"}`, "POST", "Patient", "")
	b.add("", `{"resourceType":"Encounter","status":"final"}`, "POST", "Encounter", "")
	b.add("", `{"resourceType":"Device"}`, "POST", "Device", "")
	b.add("", `{"resourceType":"Device","identifier":[{"value":"gateway"}]}`, "POST", "Device", "identifier=gateway")
	b.add("", `{"resourceType":"Patient","identifier":[{"value":"p-3"}]}`, "POST", "Patient", "identifier=p-3")
	b.add("", `{"resourceType":"Patient"}`, "POST", "Patient", "")
	b = append(b, `{}`)
	b.add("", sentObservation(sentRate, sentTime, sentD1, `"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,"dimensions":1,"data":"70 70 70"}`), "POST", "/Observation", "")
	b.add("", sentObservation(sentRate, `"effectiveDateTime":"2026-11-21T10:00:01.123+01:00"`, sentD1, `"valueSampledData":{"origin":{"value":0,"system":"http://unitsofmeasure.org","code":"/min"},"period":1000,"dimensions":1,"data":"70 71 70"}`), "POST", "Observation", "")
	w := send(s.bundle, b.as("batch"))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/fhir+json" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	checkResponses(t, w.Body.Bytes(), "batch-response",
		"201 Observation/spo2-", "201 Observation/hr-", "200 Observation/spo2-", "409 contradicts", "422 not a vital sign", "405 only POST",
		"422 request.url", "422 Pulsegate stores Observations", "422 Pulsegate creates no Devices", "422 assigned to no patient", "422 no value of it", "422 Pulsegate creates no Patients", "405 only POST",
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
	const device, patient = "urn:uuid:c87cc91b-8b31-4e6f-b636-75e52891d10a", "urn:uuid:5b7842fe-978d-4182-a41f-0d07a8617bc2"
	refs := `"subject":{"reference":"` + patient + `"},"device":{"reference":"` + device + `"}`
	b.post(sentSpO2, sentAt(1), refs, sentQuantity("97", "%"))
	b.add(patient, `{"resourceType":"Patient","id":"x","identifier":[{"system":"urn:oid:2.999","value":"p-1"}],"name":[{"family":"X"}]}`, "POST", "Patient", "identifier=urn:oid:2.999|p-1")
	b.add(device, `{"resourceType":"Device","id":"y","identifier":[{"system":"urn:oid:1","value":"00-1C"},{"value":"d_2"}],"type":{"text":"x"}}`, "POST", "Device", "identifier=urn:oid:1|00-1C")
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
			status+" Observation/spo2-mwq6g8rs-d.u2", "200 Patient/p-1", "200 Device/d.u2", status+" Observation/hr-mwq6g8rs-d.u2", status+" Observation/bp-mwq6g9jk-d.u2")
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
		{"a value that is not stored", nil, []string{`"code":{"text":"x"}`, sentAt(3), sentD1, sentQuantity("1", "%")}, 422, "Bundle.entry[5].resource.code", "not a vital sign"},
		{"a stored contradiction", []string{sentSpO2, sentAt(3), sentD1, sentQuantity("96", "%")}, []string{sentSpO2, sentAt(3), sentD1, sentQuantity("97", "%")}, 409, "Bundle.entry[5].resource.valueQuantity.value", "contradicts"},
		{"two entries that contradict each other", nil, []string{sentSpO2, sentAt(1), `"device":{"reference":"Device/d_2"}`, sentQuantity("98", "%")}, 409, "Bundle.entry[5].resource.valueQuantity.value", "contradicts"},
		{"another patient", nil, []string{sentSpO2, sentAt(3), sentD1, sentQuantity("97", "%"), `"subject":{"reference":"Patient/p-2"}`}, 422, "Bundle.entry[5].resource.subject", "not the patient"},
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
		{"a name twice in an entry", `{"resourceType":"Bundle","type":"batch","entry":[{"resource":{"a":1,"a":1}}]}`, 400, "", "twice"},
		{"an Observation", sentObservation(sentSpO2), 422, "resourceType", "not a Bundle"},
		{"a collection", sentBundle{}.as("collection"), 422, "type", "neither"},
		{"no type", `{"resourceType":"Bundle"}`, 422, "type", "neither"},
		{"entries of the wrong type", `{"resourceType":"Bundle","type":"batch","entry":{}}`, 400, "", "entry is not an array"},
		{"too many entries", `{"resourceType":"Bundle","type":"batch","entry":[` + entries(10_001) + `]}`, 413, "", "10000 entries"},
	} {
		w := send(s.bundle, tt.body)
		checkIssue(t, w.Body.Bytes(), tt.path, tt.cause)
		if w.Code != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.status)
		}
	}
	var b sentBundle
	for i := range 4097 {
		b.post(sentSpO2, fmt.Sprintf(`"effectiveDateTime":"2026-11-21T10:%02d:%02d+01:00"`, i/60%60, i%60), sentD1, sentQuantity("97", "%"))
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
