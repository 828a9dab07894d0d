package fhir_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestLastUpdated completes a reading and changes its assignment. All its Observations were last updated then, as they
// are read and as they are searched for.
func TestLastUpdated(t *testing.T) {
	s := fill(t, `{"device":"d","time":1000,"spo2_pct":97}`, `{"device":"d","time":2000,"spo2_pct":97}`)
	assigned := storage.Assignment{Device: name(t, "d"), Subject: "p", ToUnixMs: 5000, ChangedUnixMs: receivedUnixMs - 1}
	try(t, s.Assign(t.Context(), assigned))
	srv := serve(t, s, fhir.Options{})
	want := func(what string, byID map[string]string) {
		t.Helper()
		for id, updated := range byID {
			if got := srv.get("Observation/" + id); !strings.Contains(got, `"lastUpdated":"`+updated+`"`) {
				t.Errorf("%s: %s is %s, want it last updated at %s", what, id, got, updated)
			}
			if got := srv.get("Observation?patient=p&_lastUpdated=" + updated); !strings.Contains(got,
				`"id":"`+id+`","meta":{"lastUpdated":"`+updated+`"`) {
				t.Errorf("%s: the search for %s finds %s", what, updated, got)
			}
			if got := srv.get("Observation?patient=p&_lastUpdated=lt" + updated); strings.Contains(got, `"id":"`+id) {
				t.Errorf("%s: the search before %s finds %s", what, updated, got)
			}
		}
	}
	const first, completed, ended = "2027-01-15T08:00:00.000Z", "2027-01-15T08:00:05.000Z", "2027-01-15T08:00:07.000Z"
	want("stored", map[string]string{"spo2-rs-d": first, "spo2-1jk-d": first})
	s.add(t, receivedUnixMs+5000, `{"device":"d","time":1000,"heart_rate_bpm":60}`)
	want("completed", map[string]string{"spo2-rs-d": completed, "hr-rs-d": completed, "spo2-1jk-d": first})
	assigned.ToUnixMs, assigned.ChangedUnixMs = 4000, receivedUnixMs+7000
	try(t, s.EndAssignment(t.Context(), assigned))
	want("ended", map[string]string{"spo2-rs-d": ended, "hr-rs-d": ended, "spo2-1jk-d": ended})
}
