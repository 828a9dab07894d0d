package sim

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/pulsegate/pulsegate/internal/observe/svg"
)

// Sizes of a chart, in px.
const (
	plotWidth  = 860
	panelTop   = 88
	panelLeft  = 76
	panelRight = 786
	panelHigh  = 190
	panelGap   = 96
)

// WriteSVG writes a chart as one self-contained SVG: latency by percentile,
// throughput over time, and latency over time.
func (r *Report) WriteSVG(out io.Writer) error {
	how := fmt.Sprintf("closed loop, %d users", r.Users)
	latency := "service time, not corrected for coordinated omission"
	if r.Corrected {
		how = fmt.Sprintf("open loop, %g requests/s over %d connections", r.Rate, r.Users)
		latency = "from the intended send time"
	}
	title := "pulsegate sim: " + how
	p := plot{svg.New(plotWidth, panelTop+3*(panelHigh+panelGap)-44, title), r}
	p.Text(panelLeft, 26, `font-size="15" font-weight="bold"`, title)
	p.Text(panelLeft, 44, `fill="#555"`, fmt.Sprintf("%d requests, %.0f/s, %d readings stored, %d refused, %.1f s, run %s",
		r.Requests, r.RequestsPerSecond, r.Stored+r.Duplicate, r.Refused429+r.Refused503, r.ElapsedS, r.Run))
	p.percentiles(panelTop, "latency by percentile, ms ("+latency+")")
	p.throughput(panelTop + panelHigh + panelGap)
	p.latencies(panelTop + 2*(panelHigh+panelGap))
	_, err := p.WriteTo(out)
	return err
}

// A plot is the chart of a report.
type plot struct {
	*svg.Drawing
	r *Report
}

// panel draws the frame of a panel with its upper edge at top.
func (p plot) panel(top float64, title string, y svg.Axis) {
	p.Text(panelLeft, top-10, `font-weight="bold"`, title)
	for _, t := range y.Ticks {
		p.Line(panelLeft, y.At(t), panelRight, y.At(t), `stroke="#e2e2e2"`)
		p.Text(panelLeft-8, y.At(t)+4, `text-anchor="end" fill="#555"`, svg.Number(t))
	}
	p.Line(panelLeft, top, panelLeft, top+panelHigh, `stroke="#888"`)
	p.Line(panelLeft, top+panelHigh, panelRight, top+panelHigh, `stroke="#888"`)
}

// below draws a tick of the horizontal axis.
func (p plot) below(x, top float64, text string) {
	p.Line(x, top+panelHigh, x, top+panelHigh+5, `stroke="#888"`)
	p.Text(x, top+panelHigh+20, `text-anchor="middle" fill="#555"`, text)
}

// percentiles draws latency over percentiles, on a scale that is finer towards 100.
func (p plot) percentiles(top float64, title string) {
	h := p.r.histogram
	if h == nil || h.TotalCount() == 0 {
		return
	}
	y := svg.Logarithmic(top+panelHigh, top, max(float64(h.Min()), 1)/1000, max(float64(h.Max()), 1)/1000)
	p.panel(top, title, y)
	// The highest percentile that the number of values can resolve.
	nines := min(max(math.Log10(float64(h.TotalCount())), 1), 6)
	x := func(percentile float64) float64 {
		part := -math.Log10(max(1-percentile/100, math.Pow(10, -nines))) / nines
		return panelLeft + (panelRight-panelLeft)*part
	}
	for _, mark := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		if -math.Log10(1-mark/100) <= nines+1e-9 {
			p.below(x(mark), top, strconv.FormatFloat(mark, 'f', -1, 64))
		}
	}
	p.Text((panelLeft+panelRight)/2, top+panelHigh+38, `text-anchor="middle" fill="#555"`, "percentile")
	var points [][2]float64
	for i := 0.0; i <= 120; i++ {
		percentile := 100 * (1 - math.Pow(10, -i/120*nines))
		points = append(points, [2]float64{x(percentile), y.At(float64(h.ValueAtPercentile(percentile)) / 1000)})
	}
	p.Path(svg.Colours[0], points)
}

// throughput draws requests, refusals and errors over time.
func (p plot) throughput(top float64) {
	most := 0.0
	each := func(value func(*Point) uint64) (rates []float64) {
		for i := range p.r.Points {
			rate := float64(value(&p.r.Points[i])) / max(p.r.Points[i].length.Seconds(), 1e-9)
			rates = append(rates, rate)
			most = max(most, rate)
		}
		return rates
	}
	answered := each(func(at *Point) uint64 { return at.Requests })
	refused := each(func(at *Point) uint64 { return at.Refused })
	failed := each(func(at *Point) uint64 { return at.Errors })
	p.overTime(top, "requests per second", svg.Linear(top+panelHigh, top, most),
		series{"answered", answered}, series{"refused", refused}, series{"errors", failed})
}

// latencies draws percentiles over time.
func (p plot) latencies(top float64) {
	each := func(value func(*Point) int64) (ms []float64) {
		for i := range p.r.Points {
			ms = append(ms, float64(value(&p.r.Points[i]))/1000)
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
	p.overTime(top, "latency over time, ms", svg.Logarithmic(top+panelHigh, top, min(least, highest), highest),
		series{"p50", p50}, series{"p99", p99}, series{"max", most})
}

// A series is a line with a value for each point of the report.
type series struct {
	name   string
	values []float64
}

// overTime draws a panel of lines over time, with each value at the middle of its step.
func (p plot) overTime(top float64, title string, y svg.Axis, lines ...series) {
	p.panel(top, title, y)
	elapsed := max(p.r.ElapsedS, 0.001)
	x := func(seconds float64) float64 {
		return panelLeft + (panelRight-panelLeft)*min(max(seconds/elapsed, 0), 1)
	}
	for _, t := range svg.Linear(0, 1, elapsed).Ticks {
		if t <= elapsed {
			p.below(x(t), top, svg.Number(t))
		}
	}
	p.Text((panelLeft+panelRight)/2, top+panelHigh+38, `text-anchor="middle" fill="#555"`, "time, s")
	for i, line := range lines {
		legend := float64(panelRight) - 250 + float64(i)*90
		p.Line(legend, top-14, legend+18, top-14, `stroke-width="3" stroke="`+svg.Colours[i]+`"`)
		p.Text(legend+23, top-10, "", line.name)
		points := make([][2]float64, len(line.values))
		for j, v := range line.values {
			at := &p.r.Points[j]
			points[j] = [2]float64{x(at.Seconds - at.length.Seconds()/2), y.At(v)}
		}
		p.Path(svg.Colours[i], points)
	}
}
