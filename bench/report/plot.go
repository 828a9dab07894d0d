package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Measures of the plot, in px.
const (
	plotWidth   = 900
	plotLeft    = 240 // left end of the axis, after the names
	plotRight   = 700 // right end of the axis, before the figures
	plotTop     = 92
	rowHeight   = 44
	plotBottom  = 64 // below the last row
	seriesShift = 9  // offset of a series from the middle of its row
	maxSeries   = 2
)

// colours of series are distinguishable with all common kinds of colour vision (Okabe and Ito's
// palette). They are not modified.
var colours = [maxSeries]string{"#0072b2", "#d55e00"}

const dashes = `stroke-width="1.5" stroke-dasharray="5 3" stroke="%s"`

// A Plot draws the figure "cpu" of the rows of tables, of which each has another number of
// connections.
type Plot struct {
	Tables      []*Table // at most two are drawn
	Connections []int
	Stores      map[string]string // what an answer guarantees, by row
}

// SVG returns a self-contained document, in which a line marks the floor of each table.
func (in *Plot) SVG() []byte {
	tables := in.Tables[:min(len(in.Tables), maxSeries)]
	var rows []string
	low, high := math.Inf(1), 0.0
	for _, t := range tables {
		for _, r := range t.Rows {
			c, _ := t.Spread(r.Name, "cpu", "")
			low, high = min(low, c.Min), max(high, c.Max)
			if !slices.Contains(rows, r.Name) {
				rows = append(rows, r.Name)
			}
		}
	}
	if len(rows) == 0 {
		low, high = 1, 10
	}
	const title = "CPU time of the server per request"
	bottom := float64(plotTop + rowHeight*len(rows))
	p := &plot{ticks: ticks(low, high)}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="system-ui, sans-serif" font-size="12" fill="#222">`,
		plotWidth, int(bottom)+plotBottom)
	p.add("<title>%s</title>\n"+`<rect width="100%%" height="100%%" fill="#fff"/>`, title)
	p.text(20, 28, `font-size="16" font-weight="600"`, title)
	for _, tick := range p.ticks {
		x := p.at(tick)
		p.line(x, plotTop, x, bottom, `stroke="#e2e2e2"`)
		p.text(x, bottom+18, `text-anchor="middle" fill="#555"`, fmt.Sprintf("%.4g", tick))
	}
	p.text((plotLeft+plotRight)/2, bottom+40, `text-anchor="middle" fill="#555"`,
		"µs per request, logarithmic; the whiskers are the range over the rounds")
	for i, t := range tables {
		x := float64(26 + 190*i)
		p.mark(i, x, 52)
		p.text(x+12, 56.5, "", fmt.Sprintf("%d connections", in.Connections[i]))
		if floor, ok := t.Spread(Floor, "cpu", ""); ok {
			x := p.at(floor.Median)
			p.line(x, plotTop, x, bottom, fmt.Sprintf(dashes, colours[i]))
		}
	}
	const legend = 26 + 190.0*maxSeries
	p.line(legend-6, 52, legend+18, 52, fmt.Sprintf(dashes, "#555"))
	p.text(legend+26, 56.5, "", "the floor: one read, one write, nothing parsed")
	for row, name := range rows {
		p.drawRow(row, name, in.Stores[name], tables)
	}
	p.add("</svg>")
	return []byte(p.String())
}

// ticks returns those of 1, 2, 5, 10, 20, 50, ... that are between two positive numbers, and the
// next one on each side.
func ticks(low, high float64) (all []float64) {
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); ; decade *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if len(all) == 1 && m*decade <= low {
				all = nil
			}
			if all = append(all, m*decade); m*decade >= high && len(all) > 1 {
				return all
			}
		}
	}
}

// A plot is an SVG document without external references. Its axis is logarithmic, because the
// most expensive server costs about thirty times the floor.
type plot struct {
	strings.Builder
	ticks []float64 // in ascending order; the first and the last are the ends
}

// add adds elements without escaping, formatted as by [fmt.Sprintf].
func (p *plot) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text adds a text whose baseline begins at x, y unless attributes say otherwise.
func (p *plot) text(x, y float64, attributes, text string) {
	p.add(`<text x="%.2f" y="%.1f" %s>%s</text>`, x, y, attributes, html.EscapeString(text))
}

func (p *plot) line(x1, y1, x2, y2 float64, attributes string) {
	p.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x1, y1, x2, y2, attributes)
}

// at returns the position of v on the axis.
func (p *plot) at(v float64) float64 {
	low, high := p.ticks[0], p.ticks[len(p.ticks)-1]
	return plotLeft + (plotRight-plotLeft)*math.Log(v/low)/math.Log(high/low)
}

func (p *plot) drawRow(row int, name, stores string, tables []*Table) {
	middle := float64(plotTop + rowHeight*row + rowHeight/2)
	p.line(20, middle+rowHeight/2, plotWidth-20, middle+rowHeight/2, `stroke="#eee"`)
	weight := ""
	if name == Own {
		weight = ` font-weight="700"`
	}
	p.text(plotLeft-16, middle-2, `text-anchor="end"`+weight, name)
	p.text(plotLeft-16, middle+14, `text-anchor="end" font-size="11" fill="#666"`, "stored when answered: "+stores)
	for i, t := range tables {
		c, ok := t.Spread(name, "cpu", "")
		if !ok {
			continue
		}
		y := middle + seriesShift*float64(2*i-len(tables)+1)
		p.line(p.at(c.Min), y, p.at(c.Max), y, fmt.Sprintf(`stroke="%s" stroke-width="2"`, colours[i]))
		p.mark(i, p.at(c.Median), y)
		style := fmt.Sprintf(`fill="%s"%s`, colours[i], weight)
		p.text(plotRight+22, y+4.5, style, fmt.Sprintf("%.1f µs", c.Median))
		if x, ok := t.Spread(name, "cpu", Floor); ok {
			p.text(plotRight+100, y+4.5, style, fmt.Sprintf("%.1f x floor", x.Median))
		}
	}
}

// mark draws a figure of series i as a disc or a diamond, so that series differ by more
// than colour.
func (p *plot) mark(i int, x, y float64) {
	if i == 0 {
		p.add(`<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x, y, colours[i])
		return
	}
	p.add(`<path d="M%.1f %.1fl6 -6l6 6l-6 6z" fill="%s"/>`, x-6, y, colours[i])
}
