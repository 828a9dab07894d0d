package sim

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Sizes of a chart, in px.
const (
	plotWidth  = 860
	panelTop   = 64
	panelLeft  = 76
	panelRight = 786
	panelHigh  = 190
	panelGap   = 96
)

// WriteSVG writes a chart as one self-contained SVG: latency by percentile,
// throughput over time, and latency over time.
func (r *Report) WriteSVG(out io.Writer) error {
	p := &plot{}
	height := panelTop + 3*(panelHigh+panelGap) - 20
	p.text.WriteString(fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="12">`,
		plotWidth, height, plotWidth, height))
	p.text.WriteString(`<rect width="100%" height="100%" fill="#fff"/>`)
	how := fmt.Sprintf("closed loop, %d users", r.Users)
	latency := "service time, not corrected for coordinated omission"
	if r.Corrected {
		how = fmt.Sprintf("open loop, %g requests/s over %d connections", r.Rate, r.Users)
		latency = "from the intended send time"
	}
	p.label(panelLeft, 26, "start", `font-size="15" font-weight="bold"`, "pulsegate sim: "+how)
	p.label(panelLeft, 44, "start", `fill="#555"`, fmt.Sprintf("%d requests, %.0f/s, %d readings safe, %d refused, %.1f s, run %s",
		r.Requests, r.RequestsPerSecond, r.Stored+r.Duplicate, r.Refused429+r.Refused503, r.ElapsedS, r.Run))
	p.percentiles(panelTop+24, "latency by percentile, ms ("+latency+")", r)
	p.throughput(panelTop+24+panelHigh+panelGap, r)
	p.latencies(panelTop+24+2*(panelHigh+panelGap), r)
	p.text.WriteString("</svg>\n")
	_, err := io.WriteString(out, p.text.String())
	return err
}

// A plot is an SVG under construction.
type plot struct{ text strings.Builder }

// label writes a text. what is the project's own and needs no escaping.
func (p *plot) label(x, y float64, anchor, style, what string) {
	fmt.Fprintf(&p.text, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`, x, y, anchor, style, what)
}

func (p *plot) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&p.text, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x1, y1, x2, y2, style)
}

// path draws a line through points.
func (p *plot) path(color string, points [][2]float64) {
	if len(points) == 0 {
		return
	}
	p.text.WriteString(`<path fill="none" stroke-width="1.8" stroke="` + color + `" d="`)
	for i, at := range points {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&p.text, "%s%.1f %.1f", letter, at[0], at[1])
	}
	p.text.WriteString(`"/>`)
	if len(points) == 1 {
		fmt.Fprintf(&p.text, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, points[0][0], points[0][1], color)
	}
}

// An axis maps values to px.
type axis struct {
	from, to float64 // px
	max      float64 // the least value is 0, or 10^least
	log      bool
	least    int
}

func (a axis) at(v float64) float64 {
	part := v / a.max
	if a.log {
		low := float64(a.least)
		part = (math.Log10(max(v, math.Pow(10, low))) - low) / (math.Log10(a.max) - low)
	}
	return a.from + (a.to-a.from)*min(max(part, 0), 1)
}

// linear returns an axis that ends at a round number, and its ticks.
func linear(from, to, most float64) (axis, []float64) {
	if most <= 0 {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most/2)))
	for _, m := range []float64{1, 2, 5, 10} {
		if most/(step*m) <= 5 {
			step *= m
			break
		}
	}
	n := math.Ceil(most/step - 1e-9)
	var ticks []float64
	for i := 0.0; i <= n; i++ {
		ticks = append(ticks, i*step)
	}
	return axis{from: from, to: to, max: n * step}, ticks
}

// logarithmic returns an axis of whole decades, and its ticks.
func logarithmic(from, to, least, most float64) (axis, []float64) {
	low, high := math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
	if high <= low {
		high = low + 1
	}
	var ticks []float64
	for e := low; e <= high; e++ {
		ticks = append(ticks, math.Pow(10, e))
	}
	return axis{from: from, to: to, max: math.Pow(10, high), log: true, least: int(low)}, ticks
}

// panel draws the frame of a panel whose upper edge is at top.
func (p *plot) panel(top float64, title string, y axis, ticks []float64) {
	p.label(panelLeft, top-10, "start", `font-weight="bold"`, title)
	for _, t := range ticks {
		p.line(panelLeft, y.at(t), panelRight, y.at(t), `stroke="#e2e2e2"`)
		p.label(panelLeft-8, y.at(t)+4, "end", `fill="#555"`, number(t))
	}
	p.line(panelLeft, top, panelLeft, top+panelHigh, `stroke="#888"`)
	p.line(panelLeft, top+panelHigh, panelRight, top+panelHigh, `stroke="#888"`)
}

// legend names a line of a panel.
func (p *plot) legend(i int, top float64, color, name string) {
	x := float64(panelRight) - 250 + float64(i)*90
	p.line(x, top-14, x+18, top-14, `stroke-width="3" stroke="`+color+`"`)
	p.label(x+23, top-10, "start", `fill="#333"`, name)
}

const (
	blue   = "#1f6fb4"
	orange = "#d9730d"
	red    = "#b3261e"
)

// percentiles draws latency over percentiles, more finely towards 100.
func (p *plot) percentiles(top float64, title string, r *Report) {
	h := r.histogram
	if h == nil || h.TotalCount() == 0 {
		return
	}
	y, ticks := logarithmic(top+panelHigh, top, max(float64(h.Min()), 1)/1000, max(float64(h.Max()), 1)/1000)
	p.panel(top, title, y, ticks)
	// As far as one value more than 1 in count can be told.
	nines := min(max(math.Log10(float64(h.TotalCount())), 1), 6)
	x := func(percentile float64) float64 {
		part := -math.Log10(max(1-percentile/100, math.Pow(10, -nines))) / nines
		return panelLeft + (panelRight-panelLeft)*part
	}
	for _, mark := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		if -math.Log10(1-mark/100) > nines+1e-9 {
			continue
		}
		p.line(x(mark), top+panelHigh, x(mark), top+panelHigh+5, `stroke="#888"`)
		p.label(x(mark), top+panelHigh+20, "middle", `fill="#555"`, strconv.FormatFloat(mark, 'f', -1, 64))
	}
	p.label((panelLeft+panelRight)/2, top+panelHigh+38, "middle", `fill="#555"`, "percentile")
	var points [][2]float64
	for i := 0.0; i <= 120; i++ {
		percentile := 100 * (1 - math.Pow(10, -i/120*nines))
		points = append(points, [2]float64{x(percentile), y.at(float64(h.ValueAtPercentile(percentile)) / 1000)})
	}
	p.path(blue, points)
}

// timeAxis draws the axis of a run's time.
func (p *plot) timeAxis(top float64, r *Report) axis {
	x, ticks := linear(panelLeft, panelRight, r.ElapsedS)
	x.max = max(r.ElapsedS, 0.001)
	for _, t := range ticks {
		if t > x.max {
			continue
		}
		p.line(x.at(t), top+panelHigh, x.at(t), top+panelHigh+5, `stroke="#888"`)
		p.label(x.at(t), top+panelHigh+20, "middle", `fill="#555"`, number(t))
	}
	p.label((panelLeft+panelRight)/2, top+panelHigh+38, "middle", `fill="#555"`, "time, s")
	return x
}

// throughput draws requests, refusals and errors over time.
func (p *plot) throughput(top float64, r *Report) {
	most := 0.0
	each := func(value func(*Point) uint64) (rates []float64) {
		for i := range r.Points {
			rate := float64(value(&r.Points[i])) / max(r.Points[i].length.Seconds(), 1e-9)
			rates = append(rates, rate)
			most = max(most, rate)
		}
		return rates
	}
	answered := each(func(at *Point) uint64 { return at.Requests })
	refused := each(func(at *Point) uint64 { return at.Refused })
	failed := each(func(at *Point) uint64 { return at.Errors })
	y, ticks := linear(top+panelHigh, top, most)
	p.panel(top, "requests per second", y, ticks)
	x := p.timeAxis(top, r)
	for i, series := range []struct {
		name, color string
		rates       []float64
	}{{"answered", blue, answered}, {"refused", orange, refused}, {"errors", red, failed}} {
		p.legend(i, top, series.color, series.name)
		p.path(series.color, r.over(x, y, series.rates))
	}
}

// latencies draws percentiles over time.
func (p *plot) latencies(top float64, r *Report) {
	each := func(value func(*Point) int64) (ms []float64) {
		for i := range r.Points {
			ms = append(ms, float64(value(&r.Points[i]))/1000)
		}
		return ms
	}
	p50 := each(func(at *Point) int64 { return at.P50Us })
	p99 := each(func(at *Point) int64 { return at.P99Us })
	most := each(func(at *Point) int64 { return at.MaxUs })
	least, highest := math.Inf(1), 0.001
	for i := range p50 {
		if p50[i] > 0 {
			least = min(least, p50[i])
		}
		highest = max(highest, most[i])
	}
	y, ticks := logarithmic(top+panelHigh, top, min(least, highest), highest)
	p.panel(top, "latency over time, ms", y, ticks)
	x := p.timeAxis(top, r)
	for i, series := range []struct {
		name, color string
		ms          []float64
	}{{"p50", blue, p50}, {"p99", orange, p99}, {"max", red, most}} {
		p.legend(i, top, series.color, series.name)
		p.path(series.color, r.over(x, y, series.ms))
	}
}

// over returns the points of a line over time: each value at the middle of its
// step.
func (r *Report) over(x, y axis, values []float64) [][2]float64 {
	points := make([][2]float64, len(values))
	for i, v := range values {
		at := &r.Points[i]
		points[i] = [2]float64{x.at(at.Seconds - at.length.Seconds()/2), y.at(v)}
	}
	return points
}

// number writes a tick's value.
func number(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + " M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + " k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
