package report

import (
	"fmt"
	"strings"
	"time"
)

// A LoadCost has the cost of a request for the load generators. The first one is the
// baseline.
type LoadCost struct {
	Setting     Setting
	Peer        string // the first generator, with its version
	Connections int
	Duration    time.Duration // of one measurement
	Rounds      int
	Generators  []Generator
}

// A Generator is a load generator.
type Generator struct {
	Name      string
	Costs     []float64 // CPU time per request in µs, by round
	PerSecond []float64 // requests answered per second, by round
	Limit     float64   // limit for its cost divided by the first one's; 0: no limit
}

// Markdown formats the figures as the block of the page. Every generator must have
// figures for the same rounds, at least one.
func (l *LoadCost) Markdown() string {
	var b strings.Builder
	b.WriteString(l.Setting.markdown())
	fmt.Fprintf(&b, "- Peer: %s, one thread, with a Lua script\n", l.Peer)
	fmt.Fprintf(&b, "- Rounds: %d, in each of which every generator loads the same server for %v over %d connections, closed loop; the server stores nothing and shares the CPUs\n\n",
		l.Rounds, l.Duration, l.Connections)
	b.WriteString("CPU is user and system time of the generator's process, start and end included, divided by the requests that were answered. " +
		"Ratios are computed within a round. Figures are medians, with the range over the rounds in brackets.\n\n")
	b.WriteString("| generator | CPU per request, µs | / that of the first | requests/s |\n|---|--:|--:|--:|\n")
	var goals []goal
	for i := range l.Generators {
		g := &l.Generators[i]
		ratio := l.ratio(g)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.Name, SpreadOf(g.Costs).text("%.2f"), ratio.text("%.2f"), SpreadOf(g.PerSecond).text("%.0f"))
		if g.Limit > 0 {
			goals = append(goals, goal{what: g.Name + ": CPU per request / that of " + l.Generators[0].Name,
				limit: g.Limit, format: "%.2f", figure: ratio, known: true})
		}
	}
	goalsTable(&b, goals)
	return b.String()
}

// ratio returns the cost of g divided by that of the first generator.
func (l *LoadCost) ratio(g *Generator) Spread {
	values := make([]float64, len(g.Costs))
	for i := range values {
		values[i] = g.Costs[i] / l.Generators[0].Costs[i]
	}
	return SpreadOf(values)
}
