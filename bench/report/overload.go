package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// An Overload has the figures of a server under overload.
type Overload struct {
	Setting          Setting
	Rounds           int
	Duration         time.Duration // of one run
	Connections      int
	Multiples        []float64 // requested multiples of the capacity
	MemoryLimitBytes int64     // GOMEMLIMIT of the servers
	Scenarios        []Scenario
}

// A Scenario is a server configuration with its clients.
type Scenario struct {
	Name   string
	What   string // the server's flags and the clients' behaviour
	Rounds []OverloadRound
}

// An OverloadRound is one round of a scenario.
type OverloadRound struct {
	Base OverloadRun   // the closed loop, whose rate is the capacity
	Runs []OverloadRun // one for each of Overload.Multiples
}

// An OverloadRun is the result of one run.
type OverloadRun struct {
	Duration     time.Duration
	Stored       uint64            // acknowledged readings
	Tries        uint64            // requests sent
	Refused      uint64            // of these, rejected with 503
	RetryAfter   map[string]uint64 // refusals by Retry-After in seconds
	P50, P99     time.Duration     // of accepted tries, from sending
	ServerCPU    time.Duration
	LoaderCPU    time.Duration
	PeakRSSBytes int64   // of the server
	Health       Answers // requests for its readiness, each on a new connection
	Reads        Answers // requests for readings
}

// Answers are the results of requests during a run.
type Answers struct {
	Asked, Failed int
	Took          []time.Duration
}

// StoredPerSecond returns the goodput.
func (r *OverloadRun) StoredPerSecond() float64 { return float64(r.Stored) / r.Duration.Seconds() }

// TriesPerSecond returns the requests sent per second.
func (r *OverloadRun) TriesPerSecond() float64 { return float64(r.Tries) / r.Duration.Seconds() }

// ServerCPUPerStored returns the server's CPU time per stored reading in µs, including
// the cost of refusals.
func (r *OverloadRun) ServerCPUPerStored() float64 {
	return float64(r.ServerCPU.Nanoseconds()) / 1e3 / float64(r.Stored)
}

// best returns the largest goodput of a round.
func (r *OverloadRound) best() float64 {
	best := r.Base.StoredPerSecond()
	for i := range r.Runs {
		best = max(best, r.Runs[i].StoredPerSecond())
	}
	return best
}

// Markdown formats the figures as the block of the page. Every scenario must have at
// least one round, with a run for each multiple.
func (o *Overload) Markdown() string {
	var b strings.Builder
	b.WriteString(o.Setting.markdown())
	fmt.Fprintf(&b, "- Load: `pulsegate sim`, one thread, %d connections, single readings, each different, on the same CPUs\n", o.Connections)
	fmt.Fprintf(&b, "- Rounds: %d. In each, every row has a new server with an empty directory and GOMEMLIMIT=%dMiB. A closed loop of %v determines the capacity; open loops of %v request multiples of it\n",
		o.Rounds, o.MemoryLimitBytes>>20, o.Duration, o.Duration)
	b.WriteString("- During each run, `/readyz` is requested on new connections and readings are requested on one connection, every 50 ms\n\n")
	b.WriteString("Figures are medians over the rounds, with their range in brackets; maxima are of all rounds. " +
		"Stored / best is computed within a round; best is the largest goodput of the same generator with that setting. " +
		"Latency is that of accepted tries, from the time of sending. CPU is that of the process, in cores; the server's CPU per stored reading includes the cost of its refusals.\n")
	for i := range o.Scenarios {
		o.table(&b, &o.Scenarios[i])
	}
	goalsTable(&b, o.goals())
	return b.String()
}

// table writes the rows of a scenario.
func (o *Overload) table(b *strings.Builder, s *Scenario) {
	fmt.Fprintf(b, "\n**%s**: %s.\n\n", s.Name, s.What)
	b.WriteString("| asked for | tries/s | refused | stored/s | stored / best | p50, ms | p99, ms | server, cores | server, µs per stored | loader, cores | peak RSS, MiB | readyz: failed, slowest | reads: failed, slowest |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	o.row(b, s, "closed loop", func(r *OverloadRound) *OverloadRun { return &r.Base })
	for i, m := range o.Multiples {
		o.row(b, s, fmt.Sprintf("%gx", m), func(r *OverloadRound) *OverloadRun { return &r.Runs[i] })
	}
}

func (o *Overload) row(b *strings.Builder, s *Scenario, name string, pick func(*OverloadRound) *OverloadRun) {
	of := func(f func(*OverloadRun) float64) Spread { return overRounds(s, pick, f) }
	ratio := make([]float64, len(s.Rounds))
	for i := range s.Rounds {
		ratio[i] = pick(&s.Rounds[i]).StoredPerSecond() / s.Rounds[i].best()
	}
	cores := func(d, all time.Duration) float64 { return d.Seconds() / all.Seconds() }
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %.0f | %s | %s |\n", name,
		of((*OverloadRun).TriesPerSecond).text("%.0f"),
		of(func(r *OverloadRun) float64 { return 100 * float64(r.Refused) / float64(r.Tries) }).text("%.0f %%"),
		of((*OverloadRun).StoredPerSecond).text("%.0f"),
		SpreadOf(ratio).text("%.2f"),
		of(func(r *OverloadRun) float64 { return milliseconds(r.P50) }).text("%.1f"),
		of(func(r *OverloadRun) float64 { return milliseconds(r.P99) }).text("%.1f"),
		of(func(r *OverloadRun) float64 { return cores(r.ServerCPU, r.Duration) }).text("%.2f"),
		of((*OverloadRun).ServerCPUPerStored).text("%.1f"),
		of(func(r *OverloadRun) float64 { return cores(r.LoaderCPU, r.Duration) }).text("%.2f"),
		of(func(r *OverloadRun) float64 { return float64(r.PeakRSSBytes) / (1 << 20) }).Max,
		answersText(s, pick, func(r *OverloadRun) *Answers { return &r.Health }),
		answersText(s, pick, func(r *OverloadRun) *Answers { return &r.Reads }))
}

// overRounds returns a figure over the rounds.
func overRounds(s *Scenario, pick func(*OverloadRound) *OverloadRun, f func(*OverloadRun) float64) Spread {
	values := make([]float64, len(s.Rounds))
	for i := range s.Rounds {
		values[i] = f(pick(&s.Rounds[i]))
	}
	return SpreadOf(values)
}

func answersText(s *Scenario, pick func(*OverloadRound) *OverloadRun, of func(*OverloadRun) *Answers) string {
	var all Answers
	for i := range s.Rounds {
		one := of(pick(&s.Rounds[i]))
		all.Asked += one.Asked
		all.Failed += one.Failed
		all.Took = append(all.Took, one.Took...)
	}
	if all.Asked == 0 {
		return "not asked"
	}
	return fmt.Sprintf("%d of %d, %.0f ms", all.Failed, all.Asked, milliseconds(slices.Max(all.Took)))
}

// goals returns the goals for an overloaded server.
func (o *Overload) goals() []goal {
	var goals []goal
	for i := range o.Scenarios {
		s := &o.Scenarios[i]
		last := len(o.Multiples) - 1
		var ratio, outside, failed, peak []float64
		for j := range s.Rounds {
			r := &s.Rounds[j]
			ratio = append(ratio, r.Runs[last].StoredPerSecond()/r.best())
			outside = append(outside, unspread(r.Runs[last].RetryAfter))
			failed = append(failed, float64(r.Runs[last].Health.Failed+r.Runs[last].Reads.Failed))
			for k := range r.Runs {
				peak = append(peak, float64(r.Runs[k].PeakRSSBytes)/(1<<20))
			}
		}
		goals = append(goals,
			goal{what: fmt.Sprintf("%s: stored at %gx / best", s.Name, o.Multiples[last]), atLeast: true, limit: 0.8, format: "%.2f", figure: SpreadOf(ratio), known: true},
			goal{what: s.Name + ": unanswered requests", limit: 0, format: "%.0f", figure: SpreadOf(failed), known: true},
			goal{what: s.Name + ": peak RSS, MiB", limit: float64(o.MemoryLimitBytes >> 20), format: "%.0f", figure: SpreadOf(peak), known: true},
		)
		if !slices.ContainsFunc(outside, math.IsNaN) {
			goals = append(goals, goal{what: s.Name + ": share of the most frequent Retry-After", limit: 0.3, format: "%.2f", figure: SpreadOf(outside), known: true})
		}
	}
	return goals
}

// unspread returns the share of the most frequent value, or NaN if there is none.
func unspread(counts map[string]uint64) float64 {
	var all, most uint64
	for _, n := range counts {
		all += n
		most = max(most, n)
	}
	return float64(most) / float64(all)
}
