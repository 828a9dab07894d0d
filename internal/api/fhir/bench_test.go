package fhir_test

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/fhir"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// monthReadings is a reading a minute for 30 days.
const monthReadings = 30 * 24 * 60

// A month is a store in which a patient wore a device for a month.
type month struct {
	*pebblestore.Store
	assigned []storage.Assignment
}

func (m *month) DeviceAssignments(context.Context, vitals.Name) ([]storage.Assignment, error) {
	return m.assigned, nil
}

func (m *month) SubjectAssignments(context.Context, storage.Subject) ([]storage.Assignment, error) {
	return m.assigned, nil
}

// newMonth returns a month of heart rate and oxygen saturation, and of blood pressure once an
// hour.
func newMonth(t testing.TB) *month {
	t.Helper()
	db, err := pebblestore.Open(t.TempDir(), pebblestore.Options{MinFreeBytes: -1})
	try(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &month{Store: db, assigned: []storage.Assignment{{Device: name(t, "ppg-000123"), Subject: "p-17", FromUnixMs: 0,
		ToUnixMs: storage.OpenEnd}}}
	gateway := name(t, "gw-000017")
	for at := 0; at < monthReadings; {
		var group []*storage.Entry
		for end := min(at+1000, monthReadings); at < end; at++ {
			r := vitals.Reading{Device: m.assigned[0].Device, Gateway: gateway,
				TimeUnixMs: dayUnixMs + int64(at)*60_000 + int64(at*at%40), UTCOffset: vitals.MakeUTCOffset(120)}
			r.Values.Set(vitals.HeartRate, vitals.Value(62_00+at%130*10))
			r.Values.Set(vitals.SpO2, vitals.Value(97_00+at%3*10))
			if at%60 == 0 {
				r.Values.Set(vitals.Systolic, 121_00)
				r.Values.Set(vitals.Diastolic, 79_50)
			}
			group = append(group, &storage.Entry{Reading: &r, ReceivedUnixMs: r.TimeUnixMs + 20_000})
		}
		try(t, db.Append(group))
	}
	return m
}

// A discarder is an http.ResponseWriter that keeps the length of the text.
type discarder struct {
	header http.Header
	bytes  int
}

func (d *discarder) Header() http.Header { return d.header }
func (d *discarder) WriteHeader(int)     {}

func (d *discarder) SetWriteDeadline(time.Time) error { return nil }

func (d *discarder) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// A table is a Reader of records in memory.
type table struct {
	*month
	records []storage.Record
}

func (t *table) Scan(_ context.Context, r storage.Range, dst []storage.Record) (int, error) {
	i, _ := slices.BinarySearchFunc(t.records, r.FromUnixMs, func(r storage.Record, from int64) int {
		return cmp.Compare(r.TimeUnixMs, from)
	})
	return copy(dst, t.records[i:]), nil
}

// The number of allocations of a page does not depend on the number of its Observations.
func TestAllocations(t *testing.T) {
	m := newMonth(t)
	records := &table{m, make([]storage.Record, monthReadings)}
	if n, err := m.Scan(t.Context(), storage.Range{Device: m.assigned[0].Device, ToUnixMs: storage.OpenEnd},
		records.records); n != monthReadings {
		t.Fatal(n, err)
	}
	h := fhir.New(records, m,
		fhir.Options{Service: query.Service{Problems: problem.New(), Param: (*http.Request).PathValue}})
	allocations := func(query string) float64 {
		return testing.AllocsPerRun(10, func() {
			d := &discarder{header: http.Header{}}
			h.Search(d, &http.Request{Method: "GET", Host: "localhost:8080", URL: &url.URL{RawQuery: query},
				Header: http.Header{}})
		})
	}
	few, many, total := allocations("patient=p-17&_count=10"), allocations("patient=p-17&_count=10000"),
		allocations("patient=p-17&_summary=count")
	const atMost = 250
	if few > atMost || many > few+10 || total > few {
		t.Errorf("%v allocations for 10 Observations, %v for 10,000, %v for their number; want at most %d", few, many,
			total, atMost)
	}
}
