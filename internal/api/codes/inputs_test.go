package codes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/hl7"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

var try = polltest.Try

// concepts has what each pair of codes means, its columns in the order of its rows, and on the diagonal each code
// alone: h heart rate, p pulse rate, r resting heart rate, t body temperature, b respiratory rate; signs of the user's
// own: e the rate of an ECG (76282-3, 8867-4), w the pulse at the wrist (8893-0, 8889-8), o the temperature in an
// armpit (8328-7). A dot means that the codes contradict each other, or that no sign has them.
const concepts = `
	8867-4  h
	40443-4 r r
	8889-8  p . p
	147842  h r . h
	149530  p . p . p
	149546  p . p . p p
	149522  p . p . p p p
	8310-5  . . . . . . . t
	8331-1  . . . . . . . t .
	150364  . . . . . . . t . t
	150344  . . . . . . . t . t t
	9279-1  . . . . . . . . . . . b
	151562  . . . . . . . . . . . b b
	151594  . . . . . . . . . . . b b b
	151586  . . . . . . . . . . . . . . .
	76282-3 e . . e . . . . . . . . . . . e
	8893-0  . . w . w w w . . . . . . . . . w
	8328-7  . . . . . . . . . . . . . . . . . o
`

var fields = map[string]string{
	"h": "heart_rate_bpm", "p": "pulse_rate_bpm", "r": "resting_heart_rate_bpm", "t": "body_temperature_c",
	"b": "respiratory_rate_bpm",
	"e": "ecg_rate_bpm", "w": "wrist_rate_bpm", "o": "armpit_c",
}

// A receiver receives a value of a concept, and returns what is stored, or why nothing is.
type receiver func(value, unit string, codes ...string) string

func newStore(t *testing.T, problems *problem.Set) (*storetest.Memory, *ingest.Core) {
	s := storetest.NewMemory()
	own := func(field, unit string, loinc ...string) vitals.Definition {
		return vitals.Definition{Field: field, Label: field, Unit: unit, LOINC: loinc,
			Accepted: vitals.Range{Min: 20, Max: 300}, Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
	}
	try(t, s.Signs().Define([]vitals.Definition{own("ecg_rate_bpm", "/min", "76282-3", "8867-4"),
		own("wrist_rate_bpm", "/min", "8893-0", "8889-8"), own("armpit_c", "Cel", "8328-7")}))
	core, err := ingest.New(s, problems, ingest.Config{Limits: s.Signs().DefaultLimits()})
	try(t, err)
	t.Cleanup(func() { _ = core.Close(context.Background()) })
	return s, core
}

// stored returns the values of the device at the n-th second.
func stored(t *testing.T, s *storetest.Memory, n int) string {
	name, err := vitals.ParseName("d")
	try(t, err)
	var records [1]storage.Record
	at := sentAt(n).UnixMilli()
	found, err := s.Scan(t.Context(), storage.Range{Device: name, FromUnixMs: at, ToUnixMs: at + 1}, records[:])
	try(t, err)
	if found == 0 {
		return ""
	}
	return string(s.Signs().AppendMembers(nil, &records[0].Values))
}

func sentAt(n int) time.Time {
	return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
}

func isLOINC(code string) bool { return strings.Contains(code, "-") }

func overHL7(t *testing.T, pulseAsHeartRate bool) receiver {
	s, core := newStore(t, problem.New())
	opt := &hl7.Options{Signs: s.Signs(), PulseAsHeartRate: pulseAsHeartRate}
	n := 0
	return func(value, unit string, codes ...string) (got string) {
		n++
		concept := make([]string, 0, 2)
		for _, code := range codes {
			system := "MDC"
			if isLOINC(code) {
				system = "LN"
			}
			concept = append(concept, code+"^^"+system)
		}
		message := "MSH|^~\\&|||||||ORU^R01|1|P|2.6\rOBX|1|NM|" + strings.Join(concept, "^") + "||" + value + "|" + unit +
			"|||||R|||" + sentAt(n).Format("20060102150405") + "+0000||||d"
		m := hl7.Parse([]byte(message), opt)
		core.Receive(context.Background(), &ingest.Delivery{Input: m, Message: []byte(message)}, func(o *ingest.Outcome) {
			answer, _ := m.Answer(nil, o, sentAt(n))
			got = string(answer)
		})
		if !strings.Contains(got, "MSA|AA") {
			return got
		}
		return stored(t, s, n)
	}
}

func overFHIR(t *testing.T, pulseAsHeartRate bool) receiver {
	problems := problem.New()
	s, core := newStore(t, problems)
	device, err := vitals.ParseName("d")
	try(t, err)
	try(t, s.Assign(t.Context(), storage.Assignment{Device: device, Subject: "p", ToUnixMs: storage.OpenEnd}))
	h := core.Handler(fhir.New(s, s, fhir.Options{Service: query.Service{Problems: problems},
		PulseAsHeartRate: pulseAsHeartRate}).ObservationForm)
	n := 0
	return func(value, unit string, codes ...string) string {
		n++
		var codings []string
		for _, code := range codes {
			system := "urn:iso:std:iso:11073:10101"
			if isLOINC(code) {
				system = "http://loinc.org"
			}
			codings = append(codings, fmt.Sprintf(`{"system":%q,"code":%q}`, system, code))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/fhir/Observation",
			strings.NewReader(fmt.Sprintf(`{"resourceType":"Observation","status":"final",
			"code":{"coding":[%s]},"device":{"reference":"Device/d"},"effectiveDateTime":%q,"valueQuantity":{"value":%s,"system":"http://unitsofmeasure.org","code":%q}}`,
				strings.Join(codings, ","), sentAt(n).Format(time.RFC3339), value, unit))))
		if w.Code != http.StatusCreated {
			return w.Body.String()
		}
		return stored(t, s, n)
	}
}

// Both inputs agree on what codes mean, in either order, with and without --pulse-as heart-rate.
func TestConcepts(t *testing.T) {
	reasons := []string{"OBX-3: not a code of a sign", "OBX-3: the codes are of different signs",
		"not a vital sign that Pulsegate stores"}
	for _, asHeartRate := range []bool{false, true} {
		for input, receive := range map[string]receiver{"HL7": overHL7(t, asHeartRate), "FHIR": overFHIR(t, asHeartRate)} {
			var names []string
			for i, row := range strings.Split(strings.TrimSpace(concepts), "\n") {
				names = append(names, strings.Fields(row)[0])
				for j, letter := range strings.Fields(row)[1:] {
					if letter == "p" && asHeartRate {
						letter = "h"
					}
					pairs := [][]string{{names[i], names[j]}, {names[j], names[i]}}
					if i == j {
						pairs = [][]string{{names[i]}, {names[i], names[i]}}
					}
					unit := "/min"
					if letter == "t" || letter == "o" {
						unit = "Cel"
					}
					for _, codes := range pairs {
						got, want := receive("37", unit, codes...), fmt.Sprintf(`,"%s":37`, fields[letter])
						refused := false
						for _, reason := range reasons {
							refused = refused || strings.Contains(got, reason)
						}
						if letter == "." && !refused || letter != "." && got != want {
							t.Errorf("%s, pulse as heart rate %v: %q: got %q, want %s %s", input, asHeartRate, codes, got, letter, want)
						}
					}
				}
			}
		}
	}
}
