package recording

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// csvShape returns the shape of a mapping of CSV, with the columns of signs by field.
func csvShape(t *testing.T, time string, columns map[string]string) *shape.Shape {
	t.Helper()
	table := shape.Table{Name: "m", Source: "csv", Device: "text:d", Time: time, Signs: map[string]shape.SignTable{}}
	for field, column := range columns {
		table.Signs[field] = shape.SignTable{At: &column}
	}
	s, err := table.Compile(shape.Options{Table: codes.Table{Signs: vitals.NewSigns()},
		Place: func(string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestShapedHeader refuses two signs of which a file has one column, however the mapping names it, and names the
// columns that a file lacks of the shape of which it has most.
func TestShapedHeader(t *testing.T) {
	english := csvShape(t, "Time", map[string]string{"heart_rate_bpm": "Pulse", "spo2_pct": "O2"})
	german := csvShape(t, "Zeit", map[string]string{"heart_rate_bpm": "Puls", "spo2_pct": "O2"})
	for _, tt := range []struct {
		shapes       []*shape.Shape
		header, want string
	}{
		{[]*shape.Shape{csvShape(t, "Time", map[string]string{"heart_rate_bpm": "HR", "respiratory_rate_bpm": "hr "})},
			"time,HR",
			"mapping m: respiratory_rate_bpm: at: hr  is that of heart_rate_bpm already"},
		{[]*shape.Shape{csvShape(t, "Time", map[string]string{"heart_rate_bpm": "HR", "respiratory_rate_bpm": "#2"})},
			"time,HR",
			"mapping m: respiratory_rate_bpm: at: #2 is that of heart_rate_bpm already"},
		{[]*shape.Shape{csvShape(t, "Time", map[string]string{"heart_rate_bpm": "HR", "respiratory_rate_bpm": "#3"})},
			"time,HR,RR", ""},
		{[]*shape.Shape{english, german}, "Zeit,O2",
			`none of the first lines has the columns of the mapping: no line has "Puls", or it has one twice`},
		{[]*shape.Shape{english, german}, "O2,Time",
			`none of the first lines has the columns of the mapping: no line has "Pulse", or it has one twice`},
		{[]*shape.Shape{english}, "x",
			`none of the first lines has the columns of the mapping: no line has "Time", "Pulse", "O2", or it has one twice`},
		{[]*shape.Shape{english, german}, "Zeit;Puls;O2", ""},
	} {
		got := ""
		if _, _, err := NewShaped(strings.NewReader(tt.header+"\n"), tt.shapes, Options{}); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.header, got, tt.want)
		}
	}
}
