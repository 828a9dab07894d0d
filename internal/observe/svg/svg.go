// Package svg draws charts as self-contained SVG documents.
//
// # Promise
//
// A document has no external references. Texts are escaped; attributes are not and must
// come from trusted code.
//
// # Not here
//
// No layout: the caller positions texts, lines and marks.
package svg

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

// Colours of series. They are distinguishable with all common kinds of colour vision
// (Okabe and Ito's palette).
var Colours = [...]string{"#0072b2", "#d55e00", "#cc79a7"}

// A Drawing is a document under construction.
type Drawing struct{ b strings.Builder }

// New begins a document of the given size in px.
func New(width, height int, title string) *Drawing {
	d := new(Drawing)
	d.Add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="12" fill="#222">`,
		width, height)
	d.Add("<title>%s</title>\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`, html.EscapeString(title))
	return d
}

// Add adds elements without escaping, formatted as by [fmt.Sprintf].
func (d *Drawing) Add(format string, args ...any) {
	fmt.Fprintf(&d.b, format, args...)
	d.b.WriteByte('\n')
}

// Text adds a text whose baseline begins at x, y unless attributes say otherwise.
func (d *Drawing) Text(x, y float64, attributes, text string) {
	d.Add(`<text x="%.2f" y="%.1f" %s>%s</text>`, x, y, attributes, html.EscapeString(text))
}

// Line adds a line.
func (d *Drawing) Line(x1, y1, x2, y2 float64, attributes string) {
	d.Add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x1, y1, x2, y2, attributes)
}

// Path adds a line through points, or a dot if there is only one.
func (d *Drawing) Path(colour string, points [][2]float64) {
	if len(points) == 1 {
		d.Add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, points[0][0], points[0][1], colour)
		return
	}
	fmt.Fprintf(&d.b, `<polyline fill="none" stroke-width="1.8" stroke="%s" points="`, colour)
	for _, at := range points {
		fmt.Fprintf(&d.b, "%.1f,%.1f ", at[0], at[1])
	}
	d.b.WriteString("\"/>\n")
}

// WriteTo ends the document and writes it.
func (d *Drawing) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, d.b.String()+"</svg>\n")
	return int64(n), err
}

// An Axis maps values to px.
type Axis struct {
	Ticks []float64 // in ascending order; the first and the last are the ends

	from, to float64 // px
	log      bool
}

// At returns the position of v, or the nearest end of the axis.
func (a *Axis) At(v float64) float64 {
	low, high := a.Ticks[0], a.Ticks[len(a.Ticks)-1]
	part := (v - low) / (high - low)
	if a.log {
		part = math.Log(v/low) / math.Log(high/low)
	}
	return a.from + (a.to-a.from)*min(max(part, 0), 1)
}

// Linear returns an axis between px from and to, for values from 0 to at least most.
func Linear(from, to, most float64) Axis {
	if most <= 0 {
		most = 1
	}
	step := tick(tickAtLeast(most / 5))
	a := Axis{from: from, to: to}
	for i := 0.0; i == 0 || (i-1)*step < most*(1-tolerance); i++ {
		a.Ticks = append(a.Ticks, i*step)
	}
	return a
}

// maxTicks is the number of ticks on a logarithmic axis above which some are omitted.
const maxTicks = 10

// Logarithmic returns a logarithmic axis between px from and to, for values from least
// to most, which must be positive.
func Logarithmic(from, to, least, most float64) Axis {
	last := tickAtLeast(most)
	first := min(tickAtLeast(least), last-1)
	if tick(first) > least*(1+tolerance) {
		first--
	}
	a := Axis{from: from, to: to, log: true}
	for i := first; i <= last; i++ {
		if last-first < maxTicks || i%3 == 0 || i == first || i == last {
			a.Ticks = append(a.Ticks, tick(i))
		}
	}
	return a
}

// tolerance is the relative rounding error allowed for ticks.
const tolerance = 1e-9

// tick returns the i-th of all ticks 1, 2, 5, 10, 20, 50, ...; tick(0) is 1.
func tick(i int) float64 {
	decade := int(math.Floor(float64(i) / 3))
	return [...]float64{1, 2, 5}[i-3*decade] * math.Pow10(decade)
}

// tickAtLeast returns the index of the first tick that is at least v.
func tickAtLeast(v float64) int {
	i := 3 * int(math.Floor(math.Log10(v)))
	for tick(i) < v*(1-tolerance) {
		i++
	}
	return i
}

// Number formats the value of a tick.
func Number(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + " M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + " k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
