package svg_test

import (
	"encoding/xml"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/observe/svg"
)

func TestAxes(t *testing.T) {
	for _, tt := range []struct {
		name string
		axis svg.Axis
		want []float64
	}{
		{"1-2-5", svg.Logarithmic(0, 1, 7.3, 266), []float64{5, 10, 20, 50, 100, 200, 500}},
		{"a decade", svg.Logarithmic(0, 1, 1, 10), []float64{1, 2, 5, 10}},
		{"below 1", svg.Logarithmic(0, 1, 0.3, 0.4), []float64{0.2, 0.5}},
		{"one value", svg.Logarithmic(0, 1, 20, 20), []float64{10, 20}},
		{"powers of ten", svg.Logarithmic(0, 1, 0.02, 60_000), []float64{0.02, 0.1, 1, 10, 100, 1000, 10_000, 100_000}},
		{"linear", svg.Linear(0, 1, 1234), []float64{0, 500, 1000, 1500}},
		{"linear to a tick", svg.Linear(0, 1, 0.5), []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5}},
		{"linear of nothing", svg.Linear(0, 1, 0), []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
	} {
		if !slices.EqualFunc(tt.axis.Ticks, tt.want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }) {
			t.Errorf("%s: got ticks %v, want %v", tt.name, tt.axis.Ticks, tt.want)
		}
	}
}

// Ends and values beyond them map to the ends, and the logarithmic middle of a decade
// maps to its middle.
func TestAt(t *testing.T) {
	linear, log := svg.Linear(100, 0, 10), svg.Logarithmic(10, 30, 1, 100)
	for _, tt := range []struct{ got, want float64 }{
		{linear.At(0), 100}, {linear.At(10), 0}, {linear.At(2.5), 75}, {linear.At(11), 0}, {linear.At(-1), 100},
		{log.At(1), 10}, {log.At(100), 30}, {log.At(10), 20}, {log.At(0), 10}, {log.At(1e9), 30},
	} {
		if math.Abs(tt.got-tt.want) > 1e-9 {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}

func TestDrawing(t *testing.T) {
	d := svg.New(10, 20, "a<b")
	d.Text(1, 2, `fill="#555"`, `"x" & <y>`)
	d.Line(1, 2, 3, 4, `stroke="#888"`)
	d.Path("red", [][2]float64{{1, 2}, {3, 4.5}})
	d.Path("blue", [][2]float64{{6, 7}})
	var out strings.Builder
	n, err := d.WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Errorf("WriteTo = %d, %v, wrote %d bytes", n, err, out.Len())
	}
	var doc struct {
		Width string `xml:"width,attr"`
		Title string `xml:"title"`
		Text  string `xml:"text"`
		Line  struct {
			Y2 string `xml:"y2,attr"`
		} `xml:"line"`
		Path struct {
			Points string `xml:"points,attr"`
		} `xml:"polyline"`
		Dot struct {
			Fill string `xml:"fill,attr"`
		} `xml:"circle"`
	}
	if err := xml.Unmarshal([]byte(out.String()), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Width != "10" || doc.Title != "a<b" || doc.Text != `"x" & <y>` || doc.Line.Y2 != "4.0" ||
		doc.Path.Points != "1.0,2.0 3.0,4.5 " || doc.Dot.Fill != "blue" {
		t.Errorf("got %+v", doc)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.05: "0.05", 500: "500", 9000: "9000", 20_000: "20 k", 2_500_000: "2.5 M"} {
		if got := svg.Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}
