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

const (
	// copying is ServeMux with a copy of the request for the handler.
	copying = "servemux-copy"

	// ownShare is package mux with Router.ShareRequest.
	ownShare = Own + "-share"

	many, few, growth = "routes-10000", "routes-100", "10,000 routes / 100 routes"
)

// variableSets lists the route sets with variables that have goals.
var variableSets = []string{"github", "gplus", "parse", "one-variable", "five-variables"}

// Report returns the report of the results.
func (m *Mux) Report() *Report {
	fresh, reused := m.table("fresh"), m.table("reused")
	fresh.Text, reused.Text = "### A fresh request each time", "### A request that was served before"
	copied := &Table{
		Text: "The cost of the copy of the request that gorilla/mux gives to handlers: " + copying +
			" is ServeMux with `r.WithContext`, so the first ratio minus 1 is the cost of the copy alone, without routing.",
		Head:    "routers",
		Columns: columnsOf(variableSets, Column{Format: "%.2f"}),
	}
	copied.addRatios(fresh, copying, "servemux", variableSets)
	copied.addRatios(fresh, Own, copying, variableSets)
	report := &Report{
		Setting: m.Setting,
		Notes:   []string{fmt.Sprintf("Rounds: %d, each with every router once for %s", m.Rounds, m.BenchTime)},
		Text: "Medians over the rounds in ns per request, with allocations in brackets. It is wall time: run it on a quiet " +
			"machine, and compare within a table only. " +
			"Routers with a handler signature of their own (httprouter, gin, echo, bunrouter) hand variables over in an " +
			"argument and so do less. Nothing: the router cannot express the set.",
		Tables: []*Table{fresh, reused, copied},
	}
	add := func(impl, set, peer string, limit float64) {
		report.Goals = append(report.Goals,
			fresh.Goals(Bar{What: set + ": " + impl + " / " + peer, Row: impl, Figure: set, Base: peer, Limit: limit,
				Format: "%.2f"})...)
	}
	add(Own, "one-static", "httprouter", 1.2)
	add(Own, "static", "httprouter", 1.2)
	for _, set := range variableSets {
		add(Own, set, "chi", 0.6)
		add(Own, set, "servemux", 1.5)
		add(ownShare, set, "chi", 0.4)
		add(ownShare, set, "servemux", 1)
	}
	if own := fresh.row(Own); own != nil {
		for _, one := range own.runs {
			if ns, ok := one.figures[many]; ok {
				one.figures[growth] = ns / one.figures[few]
			}
		}
	}
	report.Goals = append(report.Goals,
		fresh.Goals(Bar{What: growth, Row: Own, Figure: growth, Limit: 1.5, Format: "%.2f"})...)
	return report
}

// table returns the table of a kind of request: fresh, or one that was served before.
func (m *Mux) table(request string) *Table {
	var sets []string
	t := tableOf(m.Results, func(r *Result) (row, figure string) {
		impl, name := r.Impl()
		set, ok := strings.CutSuffix(strings.TrimPrefix(name, "Route/set="), "/req="+request)
		if !ok {
			return "", ""
		}
		if !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
		return impl, set
	})
	t.Head, t.Columns = "router", columnsOf(sets, Column{Format: "%.0f", Show: Median})
	for i := range t.Columns {
		t.Columns[i].Beside = []string{sets[i] + " allocations"}
	}
	return t
}

// columnsOf returns columns of figures that are like a column.
func columnsOf(figures []string, like Column) (columns []Column) {
	for _, name := range figures {
		like.Title, like.Figure = name, name
		columns = append(columns, like)
	}
	return columns
}
