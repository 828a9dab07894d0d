package report

import (
	"fmt"
	"slices"
	"strings"
)

// A Mux has the figures of routers with sets of routes.
type Mux struct {
	Setting   Setting
	Rounds    int
	BenchTime string   // duration of one benchmark in one round, as for -test.benchtime
	Results   []Result // named Route/impl=…/set=…/req=…
}

// Kinds of requests.
const (
	fresh  = "fresh"  // as read from the connection
	reused = "reused" // served before
)

// route returns the name of a benchmark without its router.
func route(set, request string) string { return "Route/set=" + set + "/req=" + request }

// of returns the results of a router, by round.
func (m *Mux) of(impl, name string) []Result {
	var runs []Result
	for _, r := range m.Results {
		if i, n := r.Impl(); i == impl && n == name {
			runs = append(runs, r)
		}
	}
	return runs
}

// Markdown formats the figures as the block of the page.
func (m *Mux) Markdown() string {
	var b strings.Builder
	b.WriteString(m.Setting.markdown())
	fmt.Fprintf(&b, "- Rounds: %d, each with every router once for %s\n\n", m.Rounds, m.BenchTime)
	b.WriteString("Medians over the rounds in ns per request, with allocations in brackets. It is wall time: run it on a quiet machine, and compare within a table only. " +
		"Routers with a handler signature of their own (httprouter, gin, echo, bunrouter) hand variables over in an argument and so do less. A dash: the router cannot express the set.\n")
	for _, table := range []struct{ request, title string }{{fresh, "A fresh request each time"}, {reused, "A request that was served before"}} {
		fmt.Fprintf(&b, "\n### %s\n\n", table.title)
		m.table(&b, table.request)
	}
	goalsTable(&b, m.goals())
	m.floorTable(&b)
	return b.String()
}

// floor is the name of ServeMux with a copy of the request for the handler.
const floor = "servemux-copy"

// floorTable writes a table of the cost of copying the request.
func (m *Mux) floorTable(b *strings.Builder) {
	fmt.Fprintf(b, "\nThe cost of the copy of the request that gorilla/mux gives to handlers: %s is ServeMux with `r.WithContext`, so the first ratio minus 1 is the cost of the copy alone, without routing.\n\n", floor)
	fmt.Fprintf(b, "| set | %s / servemux | %s / %s |\n|---|--:|--:|\n", floor, Own, floor)
	for _, set := range variableSets {
		own, copied, shared := m.of(Own, route(set, fresh)), m.of(floor, route(set, fresh)), m.of("servemux", route(set, fresh))
		fmt.Fprintf(b, "| %s |", set)
		for _, pair := range [][2][]Result{{copied, shared}, {own, copied}} {
			if x, ok := timeRatio(pair[0], pair[1]); ok {
				fmt.Fprintf(b, " %s |", x.text("%.2f"))
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
}

func (m *Mux) table(b *strings.Builder, request string) {
	var impls, sets []string
	for i := range m.Results {
		impl, name := m.Results[i].Impl()
		set := strings.TrimSuffix(strings.TrimPrefix(name, "Route/set="), "/req="+request)
		if name != route(set, request) {
			continue
		}
		if !slices.Contains(impls, impl) {
			impls = append(impls, impl)
		}
		if !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
	}
	fmt.Fprintf(b, "| set | %s |\n|---|%s\n", strings.Join(impls, " | "), strings.Repeat("--:|", len(impls)))
	for _, set := range sets {
		fmt.Fprintf(b, "| %s |", set)
		for _, impl := range impls {
			runs := m.of(impl, route(set, request))
			if len(runs) == 0 {
				b.WriteString(" – |")
				continue
			}
			fmt.Fprintf(b, " %.0f (%.0f) |", times(runs).Median, resultFigure(runs, func(r *Result) float64 { return r.Allocs }).Median)
		}
		b.WriteString("\n")
	}
}

// ownShare is package mux with Router.ShareRequest.
const ownShare = Own + "-share"

// variableSets lists the route sets with variables that have goals.
var variableSets = []string{"github", "gplus", "parse", "one-variable", "five-variables"}

// goals returns the goals of package mux.
func (m *Mux) goals() []Goal {
	var goals []Goal
	add := func(what string, own, peer []Result, limit float64) {
		g := Goal{What: what, Limit: limit, Format: "%.2f"}
		g.Figure, g.Known = timeRatio(own, peer)
		goals = append(goals, g)
	}
	ratio := func(own, set, peer string, limit float64) {
		add(fmt.Sprintf("%s: %s / %s", set, own, peer), m.of(own, route(set, fresh)), m.of(peer, route(set, fresh)), limit)
	}
	ratio(Own, "one-static", "httprouter", 1.2)
	ratio(Own, "static", "httprouter", 1.2)
	for _, mode := range []struct {
		impl              string
		byChi, byServeMux float64
	}{{Own, 0.6, 1.5}, {ownShare, 0.4, 1}} {
		for _, set := range variableSets {
			ratio(mode.impl, set, "chi", mode.byChi)
			ratio(mode.impl, set, "servemux", mode.byServeMux)
		}
	}
	add("10,000 routes / 100 routes", m.of(Own, route("routes-10000", fresh)), m.of(Own, route("routes-100", fresh)), 1.5)
	return goals
}
