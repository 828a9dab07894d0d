package report

import (
	"fmt"
	"strings"
)

// A Goal is a figure that the project wants to reach.
type Goal struct {
	What    string
	AtLeast bool // Limit is a lower limit
	Limit   float64
	Format  string // of the figure, such as "%.2f"
	Figure  Spread
	Known   bool // Figure was measured
}

// reached reports whether the median is within the limit.
func (g *Goal) reached() bool {
	if g.AtLeast {
		return g.Figure.Median >= g.Limit
	}
	return g.Figure.Median <= g.Limit
}

// goalsTable writes a table of goals, each compared with the median over the rounds.
func goalsTable(b *strings.Builder, goals []Goal) {
	b.WriteString("\nGoals, judged by the medians:\n\n| figure | measured | goal | |\n|---|--:|--:|---|\n")
	for i := range goals {
		g := &goals[i]
		bar := "at most "
		if g.AtLeast {
			bar = "at least "
		}
		measured, verdict := "", "not measured"
		if g.Known {
			measured, verdict = g.Figure.text(g.Format), "not reached"
			if g.reached() {
				verdict = "reached"
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s%g | %s |\n", g.What, measured, bar, g.Limit, verdict)
	}
}

// goals returns the goals for prepared answers.
func (m *Micro) goals() []Goal {
	const own, after = len(forms) - 1, 1
	var goals []Goal
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
		goals = append(goals, Goal{What: bar.what + ": time / that of " + bar.peer, Limit: bar.limit, Format: "%.2f", Figure: ratio, Known: ok})
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
func allocated(what string, runs []Result) []Goal {
	bytes, allocs := Goal{What: what + ": B", Format: "%.0f"}, Goal{What: what + ": allocations", Format: "%.0f"}
	if len(runs) > 0 {
		bytes.Known, allocs.Known = true, true
		bytes.Figure = resultFigure(runs, func(r *Result) float64 { return r.Bytes })
		allocs.Figure = resultFigure(runs, func(r *Result) float64 { return r.Allocs })
	}
	return []Goal{bytes, allocs}
}

func resultFigure(runs []Result, of func(*Result) float64) Spread {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = of(&runs[i])
	}
	return SpreadOf(values)
}
