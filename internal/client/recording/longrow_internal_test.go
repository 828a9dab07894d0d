package recording

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/vitals"
)

// An endless is a file that repeats its last bytes, and counts what is read of it. It ends only if that is far too
// much.
type endless struct {
	start, again string
	read         int
}

func (e *endless) Read(p []byte) (n int, err error) {
	if e.read > 16*maxRowBytes {
		return 0, errors.New("much too much was read")
	}
	for ; n < len(p); n++ {
		if i := e.read + n; i < len(e.start) {
			p[n] = e.start[i]
		} else {
			p[n] = e.again[(i-len(e.start))%len(e.again)]
		}
	}
	e.read += n
	return n, nil
}

// TestLongRow reads rows of CSV without an end. What is before them is read, and their line is named; not more is read
// than a row may have.
//
// Seen to fail when the rest of such a row is read as another one.
func TestLongRow(t *testing.T) {
	s := csvShape(t, "time", map[string]string{"heart_rate_bpm": "heart_rate_bpm"})
	const header, row, day = "time,heart_rate_bpm,\n", "2026-11-21T10:00:00Z,70,\n", "2026-11-21T10:00:00Z,"
	blanks := strings.Repeat("\r\n", maxRowBytes/2+5000)
	for _, tt := range []struct {
		name, start, again string
		readings, rejected int
		line               string
	}{
		{"a header of NUL bytes", "time,", "\x00", 0, 0, "line 1: "},
		{"a header in quotes", `"time`, "\n", 0, 0, "line 1: "},
		{"NUL bytes", header + row + row + day, "\x00", 2, 0, "line 4: "},
		{"a quote that is not closed", header + row + day + `"`, strings.Repeat("7", 99) + "\n", 1, 0, "line 3: "},
		{"a quote in a cell", header + row + day + `7"`, strings.Repeat("7", 99) + ",", 1, 0, "line 3: "},
		{"after a cell of two lines", header + day + "70,\"\n\"\n" + row, "\x00", 2, 0, "line 5: "},
		{"after a quote that is wrong", header + day + "\"7\n0\"7,\n" + row, "\x00", 1, 1, "line 5: "},
		{"after a row with too many cells", header + day + "70,,\"1\n\n1\"\n" + row, "\x00", 1, 1, "line 6: "},
		{"after empty lines", header + row + "\n\r\n\n" + row, "\x00", 2, 0, "line 7: "},
		{"after many empty lines", header + row + blanks + row, "\x00", 2, 0, "line 529292: "},
	} {
		for _, opt := range []Options{{}, {Texts: true}} {
			for _, shaped := range []bool{false, true} {
				if shaped && (!opt.Texts || strings.Contains(tt.name, "wrong") || strings.HasPrefix(tt.name, "a header")) {
					continue // such quotes are read, and the header is looked for in the first lines
				}
				file := &endless{start: tt.start, again: tt.again}
				var r Reader
				var err error
				if shaped {
					r, _, err = NewShaped(file, []*shape.Shape{s}, opt)
				} else {
					opt.Device, _ = vitals.ParseName("d")
					r, err = NewCSV(file, opt)
				}
				readings, rejected := 0, 0
				for err == nil {
					_, _, err = r.Next()
					if _, isRow := errors.AsType[*RowError](err); isRow {
						rejected, err = rejected+1, nil
					} else if err == nil {
						readings++
					}
					if rejected > 10 {
						t.Fatalf("%s, shaped %t: parts of the row are rejected as rows", tt.name, shaped)
					}
				}
				want := tt.line + "a row of more than 1048576 bytes"
				if readings != tt.readings || rejected != tt.rejected || !errors.Is(err, errLongRow) ||
					!strings.HasSuffix(err.Error(), want) {
					t.Errorf("%s, shaped %t: %d readings, %d rejected, %v; want %d, %d, %s", tt.name, shaped, readings, rejected, err,
						tt.readings, tt.rejected, want)
				}
				if most := len(tt.start) + maxRowBytes + maxHeadBytes; file.read > most {
					t.Errorf("%s, shaped %t: %d bytes were read, more than %d", tt.name, shaped, file.read, most)
				}
				if r == nil {
					continue
				}
				if _, _, again := r.Next(); !errors.Is(again, errLongRow) {
					t.Errorf("%s, shaped %t: the next call returns %v", tt.name, shaped, again)
				}
			}
		}
	}
	r, err := NewCSV(strings.NewReader(header+day+strings.Repeat(" ", maxRowBytes-len(day)-4)+"70,\n"),
		Options{Device: mustName("d")})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Next(); err != nil {
		t.Errorf("a row of %d bytes: %v", maxRowBytes, err)
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func mustName(text string) vitals.Name {
	name, err := vitals.ParseName(text)
	if err != nil {
		panic(err)
	}
	return name
}
