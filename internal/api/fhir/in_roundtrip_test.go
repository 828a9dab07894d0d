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
		second.assignments.Subjects = first
		var group []*storage.Entry
		for range rapid.IntRange(1, 12).Draw(rt, "readings") {
			r := vitals.Reading{Device: name(t, device), TimeUnixMs: rapid.Int64Range(vitals.DefaultOldestUnixMs,
				receivedAt.UnixMilli()).Draw(rt, "time")}
			if rapid.Bool().Draw(rt, "known offset") {
				r.UTCOffset = vitals.MakeUTCOffset(rapid.IntRange(-14*60, 14*60).Draw(rt, "offset"))
			}
			set := func(s vitals.Sign, accepted vitals.Range) {
				r.Values.Set(s,
					vitals.Value(rapid.Int32Range(int32(accepted.Min), int32(accepted.Max)).Draw(rt, first.Signs().Field(s))))
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
				set(vitals.SpO2, first.Signs().Of(vitals.SpO2).Accepted)
			}
			group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: receivedUnixMs})
		}
		if err := first.Append(group); err != nil {
			rt.Fatal(err)
		}
		h := fhir.New(first, first,
			fhir.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue}})
		sent := searchEntries(rt, h, "patient=p-1&_count=7")
		if w := send(second.bundle, sent.as(rapid.SampledFrom([]string{"batch", "transaction"}).Draw(rt, "type"))); w.Code !=
			http.StatusOK || strings.Contains(w.Body.String(), "OperationOutcome") {
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
