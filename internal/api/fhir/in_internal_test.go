package fhir

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// anyDevice says that every device is assigned to p-1.
type anyDevice struct{}

func (anyDevice) DeviceAssignments(_ context.Context, device vitals.Name) ([]storage.Assignment, error) {
	return []storage.Assignment{{Device: device, Subject: "p-1", ToUnixMs: storage.OpenEnd}}, nil
}

func (anyDevice) SubjectAssignments(_ context.Context, subject storage.Subject) ([]storage.Assignment, error) {
	return []storage.Assignment{{Subject: subject, ToUnixMs: storage.OpenEnd}}, nil
}

func (anyDevice) Assignments(context.Context, storage.AssignmentKey, []storage.Assignment) (int, error) {
	return 0, nil
}

// FuzzDecodeBundle checks what Decode must keep to: positions do not descend, each has either
// readings or a refusal or exists, and readings are valid.
func FuzzDecodeBundle(f *testing.F) {
	const quantity = `{"value":97.5,"system":"http://unitsofmeasure.org","code":"%"}`
	f.Add(`{"resourceType":"Bundle","type":"batch","entry":[{"fullUrl":"urn:uuid:1",` +
		`"resource":{"resourceType":"Observation","status":"final","code":{"coding":[{"system":"http://loinc.org",` +
		`"code":"2708-6"}]},"subject":{"reference":"Patient/p-1"},"device":{"reference":"Device/d"},` +
		`"effectiveDateTime":"2026-11-21T10:00:00+01:00","valueQuantity":` + quantity +
		`},"request":{"method":"POST","url":"Observation","ifNoneExist":"identifier=a|b"}}]}`)
	f.Add(`{"type":"transaction","resourceType":"Bundle","entry":[{"request":{"method":"POST","url":"Observation"},` +
		`"resource":{"resourceType":"Observation","status":"final","contained":[{"resourceType":"Device","id":"x",` +
		`"identifier":[{"value":"d"}]}],"code":{"coding":[{"system":"urn:iso:std:iso:11073:10101","code":"150456"}]},` +
		`"device":{"reference":"#x"},"effectivePeriod":{"start":"2026-11-21T10:00:00Z","end":"2026-11-21T10:01:00Z"},` +
		`"valueSampledData":{"origin":` + quantity +
		`,"period":1000,"factor":-0.5,"dimensions":1,"data":"0 1 E 2"}}},{"resource":{"resourceType":"Device",` +
		`"identifier":[{"value":"d"}]},"fullUrl":"urn:uuid:2","request":{"method":"POST","url":"Device",` +
		`"ifNoneExist":"identifier=d"}}]}`)
	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
	if err != nil {
		f.Fatal(err)
	}
	rc := New(storetest.NewMemory(), anyDevice{}, Options{Service: query.Service{Problems: problem.New()}})
	request := httptest.NewRequest("POST", Path, nil)
	const nowUnixMs = 1_795_300_000_000
	f.Fuzz(func(t *testing.T, body string) {
		s := rc.BundleForm(request).(*intake)
		var b vitals.Batch
		if s.Decode([]byte(body), &ingest.Intake{NowUnixMs: nowUnixMs, Rules: rules, MaxReadings: 100, MaxUnit: 10,
			Batch: &b}) != nil {
			return
		}
		has := make([]int, len(s.places))
		for i := range b.Readings {
			if has[b.Index[i]] = 1; i > 0 && b.Index[i] < b.Index[i-1] {
				t.Error("positions descend")
			}
			if err := rules.Validate(&b.Readings[i], nowUnixMs); err != nil {
				t.Error(err)
			}
		}
		for i := range b.Refused {
			if has[b.Refused[i].Index]++; i > 0 && b.Refused[i].Index <= b.Refused[i-1].Index {
				t.Error("positions of what is refused do not ascend")
			}
		}
		for i := range s.places {
			if what := s.places[i].what; what == deviceEntry || what == patientEntry {
				has[i]++
			}
			if has[i] != 1 {
				t.Errorf("entry %d has %d fates", i, has[i])
			}
		}
	})
}
