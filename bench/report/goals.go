package report

import (
	"fmt"
	"strings"
)

// A goal is a figure that the project wants to reach.
type goal struct {
	what    string
	atLeast bool // limit is a lower limit
	limit   float64
	format  string // of the figure, such as "%.2f"
	figure  Spread
	known   bool // figure was measured
}

// reached reports whether the median is within the limit.
func (g *goal) reached() bool {
	if g.atLeast {
		return g.figure.Median >= g.limit
	}
	return g.figure.Median <= g.limit
}

// goalsTable writes a table of goals, each compared with the median over the rounds.
func goalsTable(b *strings.Builder, goals []goal) {
	b.WriteString("\nGoals, judged by the medians:\n\n| figure | measured | goal | |\n|---|--:|--:|---|\n")
	for i := range goals {
		g := &goals[i]
		bar := "at most "
		if g.atLeast {
			bar = "at least "
		}
		measured, verdict := "", "not measured"
		if g.known {
			measured, verdict = g.figure.text(g.format), "not reached"
			if g.reached() {
				verdict = "reached"
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s%g | %s |\n", g.what, measured, bar, g.limit, verdict)
	}
}

// goals returns the goals for prepared answers.
func (m *Micro) goals() []goal {
	const own, after = len(forms) - 1, 1
	var goals []goal
	for _, bar := range []struct {
		point, what, peer string
		limit             float64
	}{
		{"Healthz", "healthz", "the after form", 0.5},
		{"Headers/set=fixed", "three header fields", "the shared slices, which are a data race", 1.1},
		{"Headers/set=dynamic", "three header fields, one of them dynamic", "the shared slices, which are a data race", 1.1},
	} {
		var runs, base []Result
		for _, p := range m.startingPoints() {
			if p.name == bar.point {
				runs, base = p.runs[own], p.runs[after]
			}
		}
		ratio, ok := timeRatio(runs, base)
		goals = append(goals, goal{what: bar.what + ": time / that of " + bar.peer, limit: bar.limit, format: "%.2f", figure: ratio, known: ok})
		goals = append(goals, allocated(bar.what, runs)...)
	}
	var problems []Result
	for _, r := range m.Results {
		if impl, name := r.Impl(); strings.HasSuffix(r.Package, "/reply") && name == "Problem" && impl == "reply" {
			problems = append(problems, r)
		}
	}
	return append(goals, allocated("a problem with field and reason", problems)...)
}

// allocated returns the goals of an operation that must not allocate.
func allocated(what string, runs []Result) []goal {
	bytes, allocs := goal{what: what + ": B", format: "%.0f"}, goal{what: what + ": allocations", format: "%.0f"}
	if len(runs) > 0 {
		bytes.known, allocs.known = true, true
		bytes.figure = resultFigure(runs, func(r *Result) float64 { return r.Bytes })
		allocs.figure = resultFigure(runs, func(r *Result) float64 { return r.Allocs })
	}
	return []goal{bytes, allocs}
}

func resultFigure(runs []Result, of func(*Result) float64) Spread {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = of(&runs[i])
	}
	return SpreadOf(values)
}

// A bar is a goal for a figure of Pulsegate in relation to that of a peer.
type bar struct {
	connections int
	what        string
	of          func(*Run) float64
	peer        string
	atLeast     bool
	limit       float64
}

// goals returns the goals for one reading per request.
func (in *Ingest) goals() []goal {
	if in.TLS != nil {
		goals := in.ratioGoals([]bar{
			{1000, "CPU per request", (*Run).CPUPerRequest, Floor, false, 1.5},
			{1000, "CPU per request", (*Run).CPUPerRequest, "nethttp", false, 0.8},
			{1000, "requests/s", (*Run).PerSecond, FullLane, true, 2.5},
			{1000, "CPU per request", (*Run).CPUPerRequest, Proxy, false, 0.6},
		})
		g := goal{what: fmt.Sprintf("%d connections, apart: requests/s / that of %s", in.TLS.ApartConnections, FullLane), atLeast: true, limit: 2.5, format: "%.2f"}
		apart := Ingest{Servers: in.TLS.Apart}
		if own, peer := apart.server(Own), apart.server(FullLane); own != nil && peer != nil {
			g.figure, g.known = ratios(own.Runs, peer.Runs, (*Run).PerSecond)
		}
		goals = append(goals, g)
		for _, f := range []struct {
			goal
			figures []float64
		}{
			{goal{what: "full handshakes per CPU time / those of crypto/tls alone", atLeast: true, limit: 0.85}, in.TLS.Handshakes},
			{goal{what: "64 connections: p99 with a flood of handshakes / without", limit: 3}, in.TLS.Flooded},
			{goal{what: "64 connections, apart: p99 with a flood of handshakes / without", limit: 3}, in.TLS.FloodedApart},
		} {
			if f.format, f.known = "%.2f", len(f.figures) > 0; f.known {
				f.figure = SpreadOf(f.figures)
			}
			goals = append(goals, f.goal)
		}
		return goals
	}
	return in.ratioGoals([]bar{
		{1000, "CPU per request", (*Run).CPUPerRequest, Floor, false, 1.6},
		{1000, "CPU per request", (*Run).CPUPerRequest, "fasthttp", false, 1},
		{1000, "requests/s", (*Run).PerSecond, "before", true, 1.5},
		{1000, "requests/s", (*Run).PerSecond, "ginpg", true, 7},
		{64, "CPU per request", (*Run).CPUPerRequest, Floor, false, 2.2},
		{1000, "p99", func(r *Run) float64 { return milliseconds(r.P99) }, "fasthttp", false, 1.5},
	})
}

func (in *Ingest) ratioGoals(bars []bar) (goals []goal) {
	for _, bar := range bars {
		g := goal{
			what:    fmt.Sprintf("%d connections: %s / that of %s", bar.connections, bar.what, bar.peer),
			atLeast: bar.atLeast,
			limit:   bar.limit,
			format:  "%.2f",
		}
		own, peer := in.server(Own), in.server(bar.peer)
		if own != nil && peer != nil {
			g.figure, g.known = ratios(own.at(bar.connections), peer.at(bar.connections), bar.of)
		}
		goals = append(goals, g)
	}
	return goals
}
