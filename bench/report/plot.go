package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Measures of the plot, in px.
const (
	plotWidth   = 900
	plotLeft    = 240 // of the axis: names stand before it
	plotRight   = 700 // figures stand behind it
	plotTop     = 92
	rowHeight   = 44
	plotBottom  = 64 // below the last row
	seriesShift = 9  // of a series from the middle of its row
	maxSeries   = 2
)

// seriesColours are told apart by all common kinds of colour vision (Okabe and
// Ito's palette); the marks differ in shape as well.
var seriesColours = [maxSeries]string{"#0072b2", "#d55e00"}

// An axis maps costs in µs to px, logarithmically: the dearest server costs some
// thirty times what the floor does.
type axis struct{ low, high float64 }

func newAxis(low, high float64) axis {
	return axis{low: tickAtMost(low), high: tickAtLeast(high)}
}

func (a axis) x(v float64) float64 {
	return plotLeft + (plotRight-plotLeft)*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// ticks returns 1, 2 and 5 times the powers of ten, from low to high.
func (a axis) ticks() []float64 {
	var ticks []float64
	for v := a.low; v <= a.high*1.001; v = nextTick(v) {
		ticks = append(ticks, v)
	}
	return ticks
}

func tickAtMost(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if m*power <= v {
			return m * power
		}
	}
	return power
}

func tickAtLeast(v float64) float64 {
	if t := tickAtMost(v); t == v {
		return t
	}
	return nextTick(tickAtMost(v))
}

// nextTick returns the tick behind v, which is one itself.
func nextTick(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v*1.0001)))
	switch m := v / power; {
	case m < 1.5:
		return 2 * power
	case m < 3:
		return 5 * power
	}
	return 10 * power
}

// Plot draws the CPU time per request of every server as a self-contained SVG
// document. A line marks the floor for each number of connections; at most two
// are drawn.
func (in *Ingest) Plot() []byte {
	connections := in.Connections[:min(len(in.Connections), maxSeries)]
	var rows []*Server
	low, high := math.Inf(1), 0.0
	for i := range in.Servers {
		s := &in.Servers[i]
		drawn := false
		for _, n := range connections {
			if runs := s.at(n); len(runs) > 0 {
				c := cost(runs)
				low, high, drawn = min(low, c.Min), max(high, c.Max), true
			}
		}
		if drawn {
			rows = append(rows, s)
		}
	}
	if len(rows) == 0 {
		low, high = 1, 10
	}
	p := &plot{axis: newAxis(low, high), bottom: plotTop + rowHeight*len(rows)}
	p.open()
	p.drawAxis()
	for i, n := range connections {
		p.drawLegend(i, n)
		if floor := in.server(Floor); floor != nil && len(floor.at(n)) > 0 {
			p.drawFloor(i, cost(floor.at(n)).Median)
		}
	}
	for row, s := range rows {
		p.drawRow(row, s, in.server(Floor), connections)
	}
	p.b.WriteString("</svg>\n")
	return []byte(p.b.String())
}

type plot struct {
	b      strings.Builder
	axis   axis
	bottom int // y of the end of the last row
}

func (p *plot) open() {
	height := p.bottom + plotBottom
	fmt.Fprintf(&p.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" `+
		`font-family="system-ui, sans-serif" font-size="13" fill="#222">`+"\n", plotWidth, height)
	p.b.WriteString("<title>CPU time of the server per request, by server</title>\n")
	fmt.Fprintf(&p.b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	p.text(20, 28, `font-size="16" font-weight="600"`, "CPU time of the server per request")
}

func (p *plot) text(x, y float64, attributes, text string) {
	fmt.Fprintf(&p.b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(text))
}

func (p *plot) drawAxis() {
	for _, tick := range p.axis.ticks() {
		x := p.axis.x(tick)
		fmt.Fprintf(&p.b, `<path d="M%.1f %dV%d" stroke="#e2e2e2"/>`+"\n", x, plotTop, p.bottom)
		p.text(x, float64(p.bottom+18), `text-anchor="middle" fill="#555"`, fmt.Sprintf("%g", tick))
	}
	p.text((plotLeft+plotRight)/2, float64(p.bottom+40), `text-anchor="middle" fill="#555"`,
		"µs per request, logarithmic; the whiskers are the range over the rounds")
}

// drawLegend names series i, in one line under the title.
func (p *plot) drawLegend(i, connections int) {
	x := float64(26 + 190*i)
	p.mark(i, x, 52)
	p.text(x+12, 56.5, "", fmt.Sprintf("%d connections", connections))
	if i == 0 {
		x := 26 + 190.0*maxSeries
		fmt.Fprintf(&p.b, `<path d="M%.1f 52h24" stroke="#555" stroke-width="1.5" stroke-dasharray="5 3"/>`+"\n", x-6)
		p.text(x+26, 56.5, "", "the floor: one read, one write, nothing parsed")
	}
}

func (p *plot) drawFloor(i int, v float64) {
	fmt.Fprintf(&p.b, `<path d="M%.1f %dV%d" stroke="%s" stroke-width="1.5" stroke-dasharray="5 3"/>`+"\n",
		p.axis.x(v), plotTop, p.bottom, seriesColours[i])
}

func (p *plot) drawRow(row int, s, floor *Server, connections []int) {
	middle := float64(plotTop + rowHeight*row + rowHeight/2)
	fmt.Fprintf(&p.b, `<path d="M20 %.1fH%d" stroke="#eee"/>`+"\n", middle+rowHeight/2, plotWidth-20)
	weight := ""
	if s.Name == Own {
		weight = ` font-weight="700"`
	}
	p.text(plotLeft-16, middle-2, `text-anchor="end"`+weight, s.Name)
	p.text(plotLeft-16, middle+14, `text-anchor="end" font-size="11" fill="#666"`, "stored when answered: "+s.Stores)
	for i, n := range connections {
		runs := s.at(n)
		if len(runs) == 0 {
			continue
		}
		c := cost(runs)
		y := middle + seriesShift*float64(2*i-len(connections)+1)
		fmt.Fprintf(&p.b, `<path d="M%.1f %.1fH%.1f" stroke="%s" stroke-width="2"/>`+"\n", p.axis.x(c.Min), y, p.axis.x(c.Max), seriesColours[i])
		p.mark(i, p.axis.x(c.Median), y)
		p.text(plotRight+22, y+4.5, fmt.Sprintf(`fill="%s"%s`, seriesColours[i], weight), fmt.Sprintf("%.1f µs", c.Median))
		if floor == nil {
			continue
		}
		if x, ok := ratios(runs, floor.at(n), (*Run).CPUPerRequest); ok {
			p.text(plotRight+100, y+4.5, fmt.Sprintf(`fill="%s"%s`, seriesColours[i], weight), fmt.Sprintf("%.1f x floor", x.Median))
		}
	}
}

// mark draws a figure of series i: a disc, or a square on its corner.
func (p *plot) mark(i int, x, y float64) {
	if i == 0 {
		fmt.Fprintf(&p.b, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`+"\n", x, y, seriesColours[i])
		return
	}
	fmt.Fprintf(&p.b, `<path d="M%.1f %.1fl6 -6l6 6l-6 6z" fill="%s"/>`+"\n", x-6, y, seriesColours[i])
}
