package ingest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// TestCollect checks that every front counts readings and requests in the same way, with the
// labels that docs/metrics.md lists.
//
// Seen to fail when a kind had no label, when the two kinds of bad credentials were not added
// up, and when no flush was observed.
func TestCollect(t *testing.T) { eachFront(t, testCollect) }

func testCollect(t *testing.T, serve serveFunc) {
	g := newBarrier()
	k := newKeyring(t)
	core, srv := serve(t, ingest.Config{MaxQueued: 10, MaxGroup: 10, Gate: k.gate}, func(group []*storage.Entry) error {
		if len(group) == 10 {
			return g.before(group)
		}
		return nil
	})
	post := func(body string, auth ...string) { raw(t, srv, authorized(body, auth...)) }
	for range 2 {
		post(reading("a", 1), k.write) // stored, and then a duplicate
	}
	post(`{"device":"a","time":1000,"spo2_pct":96}`, k.write)
	post(`{"device":"a","time":1000,"spo2_pct":0}`, k.write)
	post("["+reading("a", 2)+","+reading("ppg-1", 2)+"]", k.ppg)
	post(reading("a", 3))
	post(reading("a", 3), "Bearer x")
	post(reading("a", 3), k.read)
	post("nonsense", k.write)
	done := make(chan struct{})
	go func() { defer close(done); post(batch("full", 10), k.write) }()
	<-g.entered
	post(reading("a", 4), k.write)
	close(g.release)
	<-done

	rec := httptest.NewRecorder()
	metrics.Handler("", func() bool { return true }, core).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	got := ""
	for line := range strings.Lines(rec.Body.String()) {
		bucket := strings.Contains(line, "_bucket{") || strings.Contains(line, "_duration_seconds_sum")
		if strings.HasPrefix(line, "pulsegate_") && !bucket && !strings.HasPrefix(line, "pulsegate_build") &&
			!strings.HasPrefix(line, "pulsegate_ready") {
			got += line
		}
	}
	want := `pulsegate_commit_calls_total 5
pulsegate_commit_duration_seconds_count 5
pulsegate_commit_failures_total 0
pulsegate_commit_group_readings_sum 14
pulsegate_commit_group_readings_count 5
pulsegate_commit_queue_calls 0
pulsegate_commit_queue_full_total 0
pulsegate_commit_queue_readings 0
pulsegate_left_out_total{input="fhir",reason="another_source"} 0
pulsegate_left_out_total{input="fhir",reason="busy"} 0
pulsegate_left_out_total{input="fhir",reason="calibrating"} 0
pulsegate_left_out_total{input="fhir",reason="demo"} 0
pulsegate_left_out_total{input="fhir",reason="early"} 0
pulsegate_left_out_total{input="fhir",reason="invalid"} 0
pulsegate_left_out_total{input="fhir",reason="not_available"} 0
pulsegate_left_out_total{input="fhir",reason="questionable"} 0
pulsegate_left_out_total{input="fhir",reason="test"} 0
pulsegate_left_out_total{input="hl7",reason="another_source"} 0
pulsegate_left_out_total{input="hl7",reason="busy"} 0
pulsegate_left_out_total{input="hl7",reason="calibrating"} 0
pulsegate_left_out_total{input="hl7",reason="demo"} 0
pulsegate_left_out_total{input="hl7",reason="early"} 0
pulsegate_left_out_total{input="hl7",reason="invalid"} 0
pulsegate_left_out_total{input="hl7",reason="not_available"} 0
pulsegate_left_out_total{input="hl7",reason="questionable"} 0
pulsegate_left_out_total{input="hl7",reason="test"} 0
pulsegate_left_out_total{input="mapping",reason="another_source"} 0
pulsegate_left_out_total{input="mapping",reason="busy"} 0
pulsegate_left_out_total{input="mapping",reason="calibrating"} 0
pulsegate_left_out_total{input="mapping",reason="demo"} 0
pulsegate_left_out_total{input="mapping",reason="early"} 0
pulsegate_left_out_total{input="mapping",reason="invalid"} 0
pulsegate_left_out_total{input="mapping",reason="not_available"} 0
pulsegate_left_out_total{input="mapping",reason="questionable"} 0
pulsegate_left_out_total{input="mapping",reason="test"} 0
pulsegate_mapping_ignored_total 0
pulsegate_mapping_rounded_total 0
pulsegate_queue_readings 0
pulsegate_readings_total{outcome="conflict"} 1
pulsegate_readings_total{outcome="duplicate"} 1
pulsegate_readings_total{outcome="forbidden"} 1
pulsegate_readings_total{outcome="invalid"} 1
pulsegate_readings_total{outcome="stored"} 12
pulsegate_readings_total{outcome="too_many_devices"} 0
pulsegate_readings_total{outcome="unavailable"} 0
pulsegate_readings_total{outcome="unreadable"} 0
pulsegate_readings_total{outcome="unrecorded"} 0
pulsegate_readings_total{outcome="withheld"} 0
pulsegate_refused_requests_total{reason="disk_low"} 0
pulsegate_refused_requests_total{reason="draining"} 0
pulsegate_refused_requests_total{reason="keys_unknown"} 0
pulsegate_refused_requests_total{reason="malformed"} 1
pulsegate_refused_requests_total{reason="no_length"} 0
pulsegate_refused_requests_total{reason="no_right"} 1
pulsegate_refused_requests_total{reason="outcome_unknown"} 0
pulsegate_refused_requests_total{reason="overloaded"} 1
pulsegate_refused_requests_total{reason="store_failed"} 0
pulsegate_refused_requests_total{reason="timeout"} 0
pulsegate_refused_requests_total{reason="too_large"} 0
pulsegate_refused_requests_total{reason="too_many_readings"} 0
pulsegate_refused_requests_total{reason="unauthorized"} 2
pulsegate_refused_requests_total{reason="unknown_encoding"} 0
pulsegate_request_body_bytes 0
`
	if got != want {
		t.Errorf("scrape: got\n%s\nwant\n%s", got, want)
	}
}
