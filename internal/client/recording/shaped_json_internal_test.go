package recording

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/codes"
	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestShapedJSONBounds reads an array that is larger than what is kept: it can be read if what stands outside of it
// comes first. A text and a record have bounds, and what is not read has none.
func TestShapedJSONBounds(t *testing.T) {
	table := shape.Table{
		Name: "m", Device: "/id", Time: "/v/-/t", TimeFormat: "unix_s",
		Signs: map[string]shape.SignTable{"heart_rate_bpm": {At: new("/v/-/hr")}},
	}
	s, err := table.Compile(shape.Options{Table: codes.Table{Signs: vitals.NewSigns()}, Place: shape.CheckPointer})
	if err != nil {
		t.Fatal(err)
	}
	const record = `{"t":1790000000,"hr":70}`
	many := `"v":[` + strings.Repeat(record+",", 1000) + record + `]`
	long := strings.Repeat("x", 2*maxRowBytes)
	for _, tt := range []struct {
		name, file string
		rows       int
		want       error
	}{
		{"outer first", `{"id":"d",` + many + `}`, 1001, nil},
		{"outer last", `{` + many + `,"id":"d"}`, 0, errHeld},
		{"no outer", `{` + many + `}`, 0, errHeld},
		{"a short array", `{"v":[` + record + `],"id":"d"}`, 1, nil},
		{"not read", `{"id":"d","w":[` + strings.Repeat(`"`+long[:1000]+`",`, 3000) + `0],"v":[` + record + `]}`, 1, nil},
		{"a long text that is not read", `{"id":"d","w":"` + long + `","v":[` + record + `]}`, 0, errLongRow},
		{"a long record", `{"id":"d","v":[` + record + `,{"t":1790000000,"hr":70,"x":"` + long + `"}]}`, 1, errLongRow},
	} {
		r, _, stop, err := NewShapedJSON(strings.NewReader(tt.file), JSON, []*shape.Shape{s}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r.(*jsonReader).maxHeld = 1000
		rows := 0
		for err == nil {
			if _, _, err = r.Next(); err == nil {
				rows++
			}
		}
		stop()
		if err == io.EOF {
			err = nil
		}
		if rows != tt.rows || !errors.Is(err, tt.want) {
			t.Errorf("%s: %d rows, %v, want %d, %v", tt.name, rows, err, tt.rows, tt.want)
		}
	}
}
