package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// colours of series are distinguishable with all common kinds of colour vision (Okabe and Ito's
// palette). They are not modified.
var colours = [maxSeries]string{"#0072b2", "#d55e00"}

// A drawing is an SVG document without external references. Texts are escaped; attributes are not.
type drawing struct{ b strings.Builder }

// newDrawing begins a document of the given size in px.
func newDrawing(width, height int, title string) *drawing {
	d := new(drawing)
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="12" fill="#222">`,
		width, height)
	d.add("<title>%s</title>\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`, html.EscapeString(title))
	return d
}

// add adds elements without escaping, formatted as by [fmt.Sprintf].
func (d *drawing) add(format string, args ...any) {
	fmt.Fprintf(&d.b, format, args...)
	d.b.WriteByte('\n')
}

// text adds a text whose baseline begins at x, y unless attributes say otherwise.
func (d *drawing) text(x, y float64, attributes, text string) {
	d.add(`<text x="%.2f" y="%.1f" %s>%s</text>`, x, y, attributes, html.EscapeString(text))
}

func (d *drawing) line(x1, y1, x2, y2 float64, attributes string) {
	d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x1, y1, x2, y2, attributes)
}

// bytes returns the document.
func (d *drawing) bytes() []byte { return []byte(d.b.String() + "</svg>\n") }

// An axis is logarithmic and maps values to px.
type axis struct {
	ticks    []float64 // in ascending order; the first and the last are the ends
	from, to float64   // px
}

// at returns the position of v, or the nearest end of the axis.
func (a *axis) at(v float64) float64 {
	low, high := a.ticks[0], a.ticks[len(a.ticks)-1]
	part := math.Log(v/low) / math.Log(high/low)
	return a.from + (a.to-a.from)*min(max(part, 0), 1)
}

// newAxis returns an axis between px from and to, for values from least to most, which must be
// positive.
func newAxis(from, to, least, most float64) axis {
	last := tickAtLeast(most)
	first := min(tickAtLeast(least), last-1)
	if tick(first) > least*(1+tolerance) {
		first--
	}
	a := axis{from: from, to: to}
	for i := first; i <= last; i++ {
		a.ticks = append(a.ticks, tick(i))
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

// label returns the text of a tick.
func label(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
