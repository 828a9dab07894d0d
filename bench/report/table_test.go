package report_test

import (
	"io"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

// example has a floor, Pulsegate in one more round, and a row with another figure only.
func example() *report.Table {
	t := &report.Table{
		Text: "64 connections:", Head: "server | stores",
		Columns: []report.Column{
			{Title: "CPU, µs", Figure: "cpu", Format: "%.1f"},
			{Title: "x floor", Figure: "cpu", Format: "%.2f", Base: report.Floor},
			{Title: "p99, ms", Figure: "p99", Format: "%.0f", Show: report.Median},
			{Title: "peak", Figure: "peak", Format: "%.0f", Show: report.Max},
		},
	}
	for round, cpu := range []float64{10, 20, 10} {
		t.Add(io.Discard, round, report.Floor, "**floor** | no", report.Figures{"cpu": cpu, "p99": 4})
	}
	for round, cpu := range []float64{20, 60, 25, 1000} {
		t.Add(io.Discard, round, report.Own, "**pulsegate** | a <b> & c", report.Figures{"cpu": cpu, "p99": float64(round), "peak": cpu})
	}
	t.Add(io.Discard, 7, "late", "late | no", report.Figures{"cpu": 5})
	return t
}

// Ratios are computed within rounds: 20/10, 60/20 and 25/10.
func TestReportMarkdown(t *testing.T) {
	table := example()
	r := report.Report{
		Setting: report.Here("make bench-some"), Notes: []string{"a note"}, Text: "A text.",
		Tables: []*report.Table{table, {Text: "nothing was measured", Head: "server"}},
		Goals: table.Goals(
			report.Bar{What: "CPU / floor", Row: report.Own, Figure: "cpu", Base: report.Floor, Limit: 2.2, Format: "%.2f"},
			report.Bar{What: "p99", Row: report.Own, Figure: "p99", AtLeast: true, Limit: 1, Format: "%.0f"},
			report.Bar{What: "peak", Row: report.Floor, Figure: "peak", Limit: 1, Format: "%.0f"},
			report.Bar{What: "absent", Row: "absent", Figure: "cpu", Limit: 1, Format: "%.0f"},
			report.Bar{What: "other rounds", Row: "late", Figure: "cpu", Base: report.Floor, Limit: 1, Format: "%.0f"},
		),
		After: []string{"More."}, Left: []string{"ginpg, because PostgreSQL is not installed"},
	}
	text := r.Markdown()
	for _, want := range []string{
		"Written by `make bench-some` on ", "\n- a note\n\nA text.\n\n64 connections:\n\n| server | stores | CPU, µs | x floor | p99, ms | peak |\n|---|---|--:|--:|--:|--:|\n",
		"| **floor** | no | 10.0 [10.0–20.0] | 1.00 [1.00–1.00] | 4 | |\n",
		"| **pulsegate** | a <b> & c | 42.5 [20.0–1000.0] | 2.50 [2.00–3.00] | 2 | 1000 |\n",
		"| late | no | 5.0 [5.0–5.0] | | | |\n",
		"| CPU / floor | 2.50 [2.00–3.00] | at most 2.2 | not reached |\n",
		"| p99 | 2 [0–3] | at least 1 | reached |\n",
		"| peak |  | at most 1 | not measured |\n", "| absent |  | at most 1 | not measured |\n", "| other rounds |  | at most 1 | not measured |\n",
		"\nMore.\n\nLeft out: ginpg, because PostgreSQL is not installed.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "nothing was measured") {
		t.Errorf("a table without rows is in:\n%s", text)
	}
}
