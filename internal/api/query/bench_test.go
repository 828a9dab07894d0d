package query_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore"
	"github.com/pulsegate/pulsegate/vitals"
)

// A discarder counts the lines of an answer.
type discarder struct {
	header http.Header
	lines  int
}

func (d *discarder) Header() http.Header { return d.header }

func (d *discarder) WriteHeader(int) {}

func (d *discarder) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' {
			d.lines++
		}
	}
	return len(p), nil
}

// BenchmarkFeed answers a request for a copy as NDJSON, from a store on a disk. An operation is the whole answer.
func BenchmarkFeed(b *testing.B) {
	readings, devices := 1_000_000, 1000
	if testing.Short() {
		readings = 10_000
	}
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	try(b, err)
	b.Cleanup(func() { s.Close() })
	group, records := make([]*storage.Entry, 1000), make([]vitals.Reading, 1000)
	for n := range readings {
		r := &records[n%len(group)]
		*r = vitals.Reading{TimeUnixMs: 1_790_000_000_000 + int64(n/devices)*60_000}
		r.Device, err = vitals.ParseName(fmt.Sprintf("ppg-%06d", n%devices))
		try(b, err)
		r.Values.Set(vitals.HeartRate, vitals.Value(6000+n%4000))
		r.Values.Set(vitals.SpO2, vitals.Value(9400+n%600))
		group[n%len(group)] = &storage.Entry{Reading: r, ReceivedUnixMs: r.TimeUnixMs + 1500}
		if (n+1)%len(group) == 0 {
			try(b, s.Append(group))
		}
	}
	cfg := query.Options{Service: query.Service{Problems: problem.New()}, Flags: vitals.NewSigns().DefaultFlagLimits(),
		Limits: vitals.NewSigns().DefaultLimits()}
	feed := query.NewFeed(query.New(s, s, cfg), s)
	b.Cleanup(feed.Drain)
	for b.Loop() {
		d := discarder{header: http.Header{}}
		feed.ServeHTTP(&d, httptest.NewRequest(http.MethodGet, "/v1/changes?format=ndjson", nil))
		if d.lines != readings+3 { // and begin, complete and next
			b.Fatalf("%d lines", d.lines)
		}
	}
	b.ReportMetric(float64(readings)*float64(b.N)/b.Elapsed().Seconds(), "readings/s")
}
