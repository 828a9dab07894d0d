package query_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A definingReader has one reading of a sign that another server defines when it is read.
type definingReader struct{ signs *vitals.Signs }

func (d *definingReader) Scan(_ context.Context, r storage.Range, dst []storage.Record) (int, error) {
	own := vitals.Definition{Field: "hrv", Label: "HRV", Unit: "ms", Accepted: vitals.Range{Max: 500}, Usual: vitals.Range{Min: vitals.MinValue, Max: vitals.MaxValue}}
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
		_, err := query.WriteReadings(t.Context(), &out, &definingReader{signs}, query.Selection{Format: format, Range: storage.Range{ToUnixMs: 2}}, signs, nil)
		if whole := bytes.Contains(out.Bytes(), []byte(`"hrv":40`)); err == nil && !whole {
			t.Errorf("%s: an answer without the value: %s", format, out.Bytes())
		}
	}
}
