package fhir_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
	"pgregory.net/rapid"
)

// searchEntries returns the Observations of all pages of a search, each as an entry of a Bundle
// that is sent.
func searchEntries(t *rapid.T, h *fhir.Handler, query string) (entries sentBundle) {
	for next := "/fhir/Observation?" + query; next != ""; {
		w := httptest.NewRecorder()
		h.Search(w, httptest.NewRequest(http.MethodGet, next, nil))
		var page struct {
			Link  []struct{ Relation, URL string }
			Entry []struct {
				Resource json.RawMessage
				Search   struct{ Mode string }
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		for _, e := range page.Entry {
			if e.Search.Mode == "match" {
				entries.add("", string(e.Resource), "POST", "Observation", "")
			}
		}
		next = ""
		for _, l := range page.Link {
			if l.Relation == "next" {
				u, err := url.Parse(l.URL)
				if err != nil {
					t.Fatal(err)
				}
				next = u.RequestURI()
			}
		}
	}
	return entries
}

// TestFHIRRoundTrip checks that stored readings, read as FHIR and sent to another server as a batch
// or as a transaction, are stored there with equal values, times and offsets. Devices have all
// kinds of names. FHIR has no offsets beyond 14 hours.
func TestFHIRRoundTrip(t *testing.T) {
	names := []string{"d-1", "d_2:x.y", strings.Repeat("long_", 12) + "name", strings.Repeat("d", 64), ".x"}
	rapid.Check(t, func(rt *rapid.T) {
		first := fill(t)
		second := receive(t)
		device := rapid.SampledFrom(names).Draw(rt, "device")
		first.assign(t, device, "p-1", 0, storage.OpenEnd)
		second.assignments.all = first.assigned
		var group []*storage.Entry
		for range rapid.IntRange(1, 12).Draw(rt, "readings") {
			r := vitals.Reading{Device: name(t, device), TimeUnixMs: rapid.Int64Range(vitals.DefaultOldestUnixMs, receivedAt.UnixMilli()).Draw(rt, "time")}
			if rapid.Bool().Draw(rt, "known offset") {
				r.UTCOffset = vitals.MakeUTCOffset(rapid.IntRange(-14*60, 14*60).Draw(rt, "offset"))
			}
			set := func(s vitals.Sign, accepted vitals.Range) {
				r.Values.Set(s, vitals.Value(rapid.Int32Range(int32(accepted.Min), int32(accepted.Max)).Draw(rt, first.Signs().Field(s))))
			}
			given := rapid.Uint32Range(1, 1<<13-1).Draw(rt, "signs")
			if given&1 > 0 {
				set(vitals.Systolic, vitals.Range{Min: 151_00, Max: 300_00})
				set(vitals.Diastolic, vitals.Range{Min: 20_00, Max: 150_00})
			}
			for s, d := range first.Signs().All() {
				if s > vitals.Diastolic && given>>(s-1)&1 > 0 {
					set(s, d.Accepted)
				}
			}
			if r.Values.IsZero() {
				set(vitals.SpO2, vitals.Range{Min: 1_00, Max: 100_00})
			}
			group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: receivedUnixMs})
		}
		if err := first.Append(group); err != nil {
			rt.Fatal(err)
		}
		h := fhir.New(first, first, fhir.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue}})
		sent := searchEntries(rt, h, "patient=p-1&_count=7")
		if w := send(second.bundle, sent.as(rapid.SampledFrom([]string{"batch", "transaction"}).Draw(rt, "type"))); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "OperationOutcome") {
			rt.Fatalf("%d %s", w.Code, w.Body)
		}
		all := storage.Range{Device: name(t, device), ToUnixMs: storage.OpenEnd}
		want, got := make([]storage.Record, 100), make([]storage.Record, 100)
		n, err := first.Scan(context.Background(), all, want)
		if err != nil {
			rt.Fatal(err)
		}
		if m, err := second.store.Scan(context.Background(), all, got); err != nil || m != n {
			rt.Fatalf("%d records, %v, want %d", m, err, n)
		}
		for i := range n {
			if g, w := got[i], want[i]; g.TimeUnixMs != w.TimeUnixMs || g.Values != w.Values || g.UTCOffset != w.UTCOffset {
				rt.Fatalf("record %+v, want %+v", g, w)
			}
		}
	})
}

// TestGuideEntries checks each kind of entry of a gateway of the Personal Health Device guide. Its
// examples bundle-continuousnonin and bundle-example-1 have these kinds of entries: as they are,
// transactions, they are refused, and as batches their vital signs are stored.
func TestGuideEntries(t *testing.T) {
	const device, patient, gateway = "urn:uuid:00000000-0000-4000-8000-000000000001", "urn:uuid:00000000-0000-4000-8000-000000000002", "urn:uuid:00000000-0000-4000-8000-000000000003"
	mdc := func(codes ...string) string {
		for i, c := range codes {
			system := "urn:iso:std:iso:11073:10101"
			if strings.Contains(c, "-") {
				system = "http://loinc.org"
			}
			codes[i] = `{"system":"` + system + `","code":"` + c + `"}`
		}
		return `"code":{"coding":[` + strings.Join(codes, ",") + `]}`
	}
	refs := `"subject":{"reference":"` + patient + `"},"device":{"reference":"` + device + `"},"effectiveDateTime":"2018-11-11T19:07:37-05:00","extension":[{"url":"http://hl7.org/fhir/StructureDefinition/observation-gatewayDevice","valueReference":{"reference":"` + gateway + `"}}]`
	var b sentBundle
	b.add(patient, `{"resourceType":"Patient","identifier":[{"system":"urn:oid:2.999","value":"p-1"}]}`, "POST", "Patient", "identifier=urn:oid:2.999|p-1")
	b.add(gateway, `{"resourceType":"Device","identifier":[{"value":"4C-4E"}],"property":[{"valueQuantity":[{"value":1}]}]}`, "POST", "Device", "identifier=4C-4E")
	b.add(device, `{"resourceType":"Device","identifier":[{"value":"d_2"}],"serialNumber":"1"}`, "POST", "Device", "identifier=d_2")
	b.post(mdc("67975"), refs, `"valueDateTime":"2018-11-11T19:07:37-05:00"`)
	b.post(mdc("67996"), refs, sentQuantity("100", "%"))
	b.post(mdc("150456", "2708-6"), refs, sentQuantity("99.0", "%"))
	b.post(mdc("149530", "8867-4"), refs, sentQuantity("53.0", "/min"))
	b.post(mdc("150320"), refs, sentQuantity("102", "%"))
	b.post(mdc("150320"), refs, `"dataAbsentReason":{"text":"x"}`)
	b.post(mdc("150604"), refs, `"component":[{"code":{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/ASN1ToHL7","code":"150604.7"}]},"valueBoolean":true}]`)
	b.post(mdc("150020", "85354-9"), refs, `"component":[`+sentPart("8480-6", "116")+`,`+sentPart("8462-4", "71")+`]`)
	s := receive(t)
	if w := send(s.bundle, b.as("transaction")); w.Code != http.StatusUnprocessableEntity || s.stored() != "" {
		t.Errorf("transaction: %d %s, stored %s", w.Code, w.Body, s.stored())
	}
	const no = "422 not a vital sign"
	checkResponses(t, send(s.bundle, b.as("batch")).Body.Bytes(), "batch-response",
		"200 Patient/p-1", "422 assigned to no patient", "200 Device/d.u2", no, no, "201 Observation/spo2-", "201 Observation/hr-", no, no, no, "201 Observation/bp-")
	if got, want := s.stored(), `{"device":"d_2","time":"2018-11-11T19:07:37.000-05:00","systolic_mmhg":116,"diastolic_mmhg":71,"spo2_pct":99,"heart_rate_bpm":53}`+"\n"; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}
