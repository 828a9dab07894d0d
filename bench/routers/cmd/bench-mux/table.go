package main

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A key names one benchmark.
type key struct {
	impl, set, req string
}

type sample struct {
	ns, allocs float64
}

// A round is one run of all benchmarks. order has the keys as they came.
type round struct {
	samples map[key]sample
	order   []key
}

// parseRound reads the output of the testing package. Lines that are no results
// are passed over.
func parseRound(out string) round {
	r := round{samples: make(map[key]sample)}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkRoute/") {
			continue
		}
		var k key
		for part := range strings.SplitSeq(fields[0], "/") {
			name, value, _ := strings.Cut(part, "=")
			switch name {
			case "impl":
				k.impl = value
			case "set":
				k.set = value
			case "req":
				k.req, _, _ = strings.Cut(value, "-")
			}
		}
		var s sample
		for i := 2; i+1 < len(fields); i += 2 {
			// A number that does not parse stays zero and shows as such.
			value, _ := strconv.ParseFloat(fields[i], 64)
			switch fields[i+1] {
			case "ns/op":
				s.ns = value
			case "allocs/op":
				s.allocs = value
			}
		}
		r.samples[k] = s
		r.order = append(r.order, k)
	}
	return r
}

// distinct returns the values of one part of the keys, in order.
func (r *round) distinct(part func(key) string) []string {
	var values []string
	for _, k := range r.order {
		if v := part(k); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

func render(rounds []round, machine string, o options) string {
	first := &rounds[0]
	impls := first.distinct(func(k key) string { return k.impl })
	sets := first.distinct(func(k key) string { return k.set })
	var b strings.Builder
	fmt.Fprintf(&b, "%s, GOMAXPROCS %d, %s %s/%s, %s. ", machine, runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH, time.Now().UTC().Format(time.DateOnly))
	fmt.Fprintf(&b, "`make bench-mux ROUNDS=%d BENCHTIME=%v`: medians of the rounds, ns per request (allocations).\n", o.rounds, o.benchTime)
	fmt.Fprintf(&b, "It is the wall time of a machine that may have had other work; compare within the table only.\n")
	fmt.Fprintf(&b, "Routers with a handler signature of their own (httprouter, gin, echo, bunrouter) hand variables over in an argument and so do less. A dash: the router cannot express the set.\n")
	for _, req := range []string{"fresh", "reused"} {
		fmt.Fprintf(&b, "\n### %s\n\n", map[string]string{"fresh": "A fresh request each time", "reused": "A request that was served before"}[req])
		fmt.Fprintf(&b, "| set | %s |\n|---|%s\n", strings.Join(impls, " | "), strings.Repeat("---|", len(impls)))
		for _, set := range sets {
			cells := make([]string, len(impls))
			for i, impl := range impls {
				cells[i] = cell(rounds, key{impl, set, req})
			}
			fmt.Fprintf(&b, "| %s | %s |\n", set, strings.Join(cells, " | "))
		}
	}
	b.WriteString(renderGoals(rounds))
	return b.String()
}

func cell(rounds []round, k key) string {
	var ns, allocs []float64
	for _, r := range rounds {
		if s, ok := r.samples[k]; ok {
			ns, allocs = append(ns, s.ns), append(allocs, s.allocs)
		}
	}
	if len(ns) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f (%.0f)", median(ns), median(allocs))
}

// A goal bounds the ratio of two measurements.
type goal struct {
	text       string
	top, under key
	limit      float64
}

func goals() []goal {
	ratio := func(text, set, peer string, limit float64) goal {
		return goal{text, key{"pulsegate", set, "fresh"}, key{peer, set, "fresh"}, limit}
	}
	return []goal{
		ratio("one static route / httprouter", "one-static", "httprouter", 1.5),
		ratio("static 157 / httprouter", "static", "httprouter", 1.5),
		ratio("one variable / chi", "one-variable", "chi", 0.6),
		ratio("five variables / chi", "five-variables", "chi", 0.6),
		ratio("GitHub 203 / chi", "github", "chi", 0.6),
		ratio("one variable / ServeMux", "one-variable", "servemux", 1.2),
		ratio("GitHub 203 / ServeMux", "github", "servemux", 1.2),
		ratio("one variable / gorilla main", "one-variable", "gorilla-main", 1),
		{"10,000 routes / 100 routes", key{"pulsegate", "routes-10000", "fresh"}, key{"pulsegate", "routes-100", "fresh"}, 1.5},
	}
}

func renderGoals(rounds []round) string {
	var b strings.Builder
	b.WriteString("\n### Goals\n\nThe median of the rounds decides. The last ratio is that of the fastest rounds of the two: other work on the machine only ever adds time.\n\n")
	b.WriteString("| ratio | median of rounds | lowest–highest | goal | fastest rounds |\n|---|---|---|---|---|\n")
	for _, g := range goals() {
		var ratios, tops, unders []float64
		for _, r := range rounds {
			top, ok := r.samples[g.top]
			under, ok2 := r.samples[g.under]
			if ok && ok2 && under.ns > 0 {
				ratios = append(ratios, top.ns/under.ns)
				tops, unders = append(tops, top.ns), append(unders, under.ns)
			}
		}
		if len(ratios) == 0 {
			continue
		}
		middle := median(ratios)
		verdict := "reached"
		if middle > g.limit {
			verdict = "not reached"
		}
		fmt.Fprintf(&b, "| %s | %.2f | %.2f–%.2f | at most %.1f: %s | %.2f |\n",
			g.text, middle, slices.Min(ratios), slices.Max(ratios), g.limit, verdict, slices.Min(tops)/slices.Min(unders))
	}
	return b.String()
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
