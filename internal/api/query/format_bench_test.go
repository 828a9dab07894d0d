package query_test

import (
	"context"
	"io"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A table is a Reader that repeats its records.
type table struct {
	records []storage.Record
	left    int // number of records that further calls of Scan return
}

func (t *table) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, nil
}

func (t *table) Scan(_ context.Context, _ storage.Range, dst []storage.Record) (int, error) {
	n := min(len(dst), t.left)
	for rest := dst[:n]; len(rest) > 0; {
		rest = rest[copy(rest, t.records):]
	}
	t.left -= n
	return n, nil
}

// newTable returns records of one device, which measured two signs a second, sent them
// through a gateway in batches and sometimes measured others.
func newTable(t testing.TB) *table {
	gateway, err := vitals.ParseName("gw-000017")
	try(t, err)
	b := &table{records: make([]storage.Record, 2048)}
	for i := range b.records {
		ms := 1_795_255_200_000 + int64(i)*1000 + int64(i*i%40)
		r := storage.Record{TimeUnixMs: ms, ReceivedUnixMs: ms + 20_000 - int64(i%20)*1000, Gateway: &gateway}
		r.Values.Set(vitals.HeartRate, vitals.Value(62_00+i%130*10))
		r.Values.Set(vitals.SpO2, vitals.Value(97_00+i%3*10))
		if i%60 == 0 {
			r.Values.Set(vitals.Systolic, 121_00)
			r.Values.Set(vitals.Diastolic, 79_50)
		}
		r.UTCOffset = vitals.MakeUTCOffset(120)
		b.records[i] = r
	}
	return b
}

// BenchmarkWriteReadings has the cost of formatting alone: the records are in memory.
func BenchmarkWriteReadings(b *testing.B) {
	const readings = 100_000
	limits := vitals.NewSigns().DefaultFlagLimits()
	device, err := vitals.ParseName("ppg-000123")
	try(b, err)
	t := newTable(b)
	for name, q := range map[string]query.Selection{
		"format=json":               {Format: query.JSON},
		"format=ndjson":             {Format: query.NDJSON},
		"format=csv":                {Format: query.CSV},
		"format=ndjson/flags=false": {Format: query.NDJSON, NoFlags: true},
		"format=csv/flags=false":    {Format: query.CSV, NoFlags: true},
	} {
		b.Run(name, func(b *testing.B) {
			q.Range = storage.Range{Device: device, ToUnixMs: vitals.MaxTimeUnixMs}
			b.ReportAllocs()
			for b.Loop() {
				t.left = readings
				page, err := query.WriteReadings(context.Background(), io.Discard, t, q, limits.Signs, &limits)
				if err != nil || page.Readings != readings {
					b.Fatalf("%d readings, %v", page.Readings, err)
				}
			}
			b.ReportMetric(float64(readings)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mreadings/s")
		})
	}
}
