package query_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A definingReader has one reading of a sign that another server defines when it is read.
type definingReader struct{ signs *vitals.Signs }

func (d *definingReader) Scan(_ context.Context, r storage.Range, dst []storage.Record) (int, error) {
	own := vitals.Definition{Field: "hrv", Label: "HRV", Unit: "ms", Accepted: vitals.Range{Max: 500},
		Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
	if err := d.signs.Define([]vitals.Definition{own}); err != nil {
		return 0, err
	}
	s, _ := d.signs.Named("hrv")
	dst[0] = storage.Record{TimeUnixMs: 1}
	dst[0].Values.Set(s, 40)
	return 1, nil
}

func (d *definingReader) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, nil
}

// TestNewSign checks that no value is left out because its sign was defined after the columns were
// written.
func TestNewSign(t *testing.T) {
	for _, format := range []query.Format{query.JSON, query.NDJSON, query.CSV, query.Parquet} {
		signs := vitals.NewSigns()
		var out bytes.Buffer
		_, err := query.WriteReadings(t.Context(), &out, &definingReader{signs},
			query.Selection{Format: format, Range: storage.Range{ToUnixMs: 2}}, signs, nil)
		if whole := bytes.Contains(out.Bytes(), []byte(`"hrv":40`)); err == nil && !whole {
			t.Errorf("%s: an answer without the value: %s", format, out.Bytes())
		}
	}
}

// TestDecimals checks that NDJSON and CSV have a decimal in each value of a sign with decimals, and in all values of
// aggregates, whose columns signs share; tools take a column for integers after thousands of whole numbers.
func TestDecimals(t *testing.T) {
	signs := vitals.NewSigns()
	wide := vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}
	try(t, signs.Define([]vitals.Definition{
		{Field: "steps", Label: "Steps", Unit: "1", Accepted: vitals.Range{Max: 500}, Usual: wide},
		{Field: "delta_c", Label: "Delta", Unit: "Cel", Decimals: 1, Accepted: vitals.Range{Min: -500, Max: 500},
			Usual: wide},
	}))
	glucose, _ := signs.Named("glucose_mmol_l")
	steps, _ := signs.Named("steps")
	delta, _ := signs.Named("delta_c")
	var values vitals.Values
	values.Set(glucose, 500)
	values.Set(steps, 40)
	values.Set(delta, -20)
	reader := fixed{{TimeUnixMs: 1, Values: values}}
	selection := query.Selection{Range: storage.Range{ToUnixMs: 2}}
	for format, want := range map[query.Format]string{
		query.JSON:   `"glucose_mmol_l":5,"steps":40,"delta_c":-2,`,
		query.NDJSON: `"glucose_mmol_l":5.0,"steps":40,"delta_c":-2.0,`,
		query.CSV:    `,5.0,,,,40,-2.0,`,
	} {
		var out bytes.Buffer
		selection.Format = format
		if _, err := query.WriteReadings(t.Context(), &out, reader, selection, signs, nil); err != nil ||
			!bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("%s: %s, %v, want %s", format, &out, err, want)
		}
	}
	for format, want := range map[query.Format]string{
		query.JSON:   `"steps":{"count":1,"min":40,"max":40,"mean":40,`,
		query.NDJSON: `"sign":"steps","count":1,"min":40.0,"max":40.0,"mean":40.0,`,
		query.CSV:    `,steps,1,40.0,40.0,40.0,1970-01-01T00:00:00.001Z,40.0,1970-01-01T00:00:00.001Z,40.0`,
	} {
		var out bytes.Buffer
		selection.Format = format
		a := query.Aggregation{Selection: selection, StepMs: 1000, Step: "1s", Zone: time.UTC}
		if _, err := query.WriteAggregates(t.Context(), &out, reader, a, signs); err != nil ||
			!bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("aggregates as %s: %s, %v, want %s", format, &out, err, want)
		}
	}
}

// A fixed has the same records, of every device.
type fixed []storage.Record

func (f fixed) Scan(_ context.Context, _ storage.Range, dst []storage.Record) (int, error) {
	return copy(dst, f), nil
}

func (f fixed) Latest(context.Context, vitals.Name) (storage.Device, error) {
	return storage.Device{}, nil
}
