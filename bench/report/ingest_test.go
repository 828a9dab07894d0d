package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// run returns a Run of 1,000 requests with the given CPU time each.
func run(round, connections int, cost time.Duration) report.Run {
	return report.Run{Round: round, Connections: connections, Requests: 1000, Duration: 2 * time.Second,
		CPU: 1000 * cost, P50: 3 * time.Millisecond, P99: 9 * time.Millisecond}
}

func example() *report.Ingest {
	const µs = time.Microsecond
	return &report.Ingest{
		Setting:     report.Here("make bench-ingest"),
		Loader:      "wrk",
		Rounds:      3,
		Connections: []int{64, 1000},
		Servers: []report.Server{
			{Name: report.Floor, What: "nothing", Stores: "no", Runs: []report.Run{run(0, 64, 10*µs), run(1, 64, 20*µs), run(2, 64, 10*µs), run(0, 1000, 12*µs)}},
			{Name: report.Own, What: "a <b> & c", Stores: "durable", Runs: []report.Run{run(2, 64, 25*µs), run(0, 64, 20*µs), run(1, 64, 60*µs), run(1, 1000, 30*µs)}},
			{Name: "absent", What: "failed in every round", Stores: "no"},
		},
		Left: []string{"ginpg, because PostgreSQL is not installed"},
	}
}

func TestRun(t *testing.T) {
	r := run(0, 64, 17*time.Microsecond)
	if got := r.CPUPerRequest(); got != 17 {
		t.Errorf("CPUPerRequest() = %v µs, want 17", got)
	}
	if got := r.PerSecond(); got != 500 {
		t.Errorf("PerSecond() = %v, want 500", got)
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   report.Spread
	}{
		{[]float64{3}, report.Spread{Median: 3, Min: 3, Max: 3}},
		{[]float64{5, 1}, report.Spread{Median: 3, Min: 1, Max: 5}},
		{[]float64{9, 1, 2}, report.Spread{Median: 2, Min: 1, Max: 9}},
		{[]float64{4, 3, 2, 1}, report.Spread{Median: 2.5, Min: 1, Max: 4}},
	} {
		if got := report.SpreadOf(tt.values); got != tt.want {
			t.Errorf("spread of %v: got %+v, want %+v", tt.values, got, tt.want)
		}
	}
}

// Over TLS there are other goals, and no plot.
func TestIngestMarkdownTLS(t *testing.T) {
	in := example()
	apart := func(name string, requests uint64) report.Server {
		return report.Server{Name: name, What: "what", Runs: []report.Run{{
			Requests: requests, Duration: 10 * time.Second, CPU: 9 * time.Second, LoaderCPU: 3 * time.Second, P50: time.Millisecond, P99: 2 * time.Millisecond,
		}}}
	}
	in.TLS = &report.TLS{
		Handshakes: []float64{0.9}, Flooded: []float64{1, 4, 4},
		ApartConnections: 1000, Apart: []report.Server{apart("full lane", 100_000), apart("pulsegate", 300_000)},
	}
	text := in.Markdown("")
	for _, want := range []string{
		"| full handshakes per CPU time / those of crypto/tls alone | 0.90 [0.90–0.90] | at least 0.85 | reached |\n",
		"| 64 connections: p99 with a flood of handshakes / without | 4.00 [1.00–4.00] | at most 3 | not reached |\n",
		"| 1000 connections: requests/s / that of full lane |  | at least 2.5 | not measured |\n",
		"| **pulsegate**: what | 30.0 [30.0–30.0] | 30000 [30000–30000] | 1.00 | 2.00 | 90 [90–90] | 30 [30–30] |\n",
		"| 1000 connections, apart: requests/s / that of full lane | 3.00 [3.00–3.00] | at least 2.5 | reached |\n",
		"| 64 connections, apart: p99 with a flood of handshakes / without |  | at most 3 | not measured |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "![") {
		t.Errorf("there is a plot:\n%s", text)
	}
}

// Ratios are computed within rounds: 20/10, 60/20 and 25/10, with the median 2.5. The
// ratio of the medians would also be 2.5, but not that of the ranges.
func TestIngestMarkdown(t *testing.T) {
	in := example()
	in.Servers[1].Runs[3].Allocated = report.Allocated{Objects: 2500, Bytes: 31_000}.Since(report.Allocated{Objects: 2000, Bytes: 1000})
	in.Profile = "  part    CPU µs\n  kernel    9.71"
	text := in.Markdown("plot.svg")
	for _, want := range []string{
		"with 1000 connections, as reported by `pulsegate profile` for a load after the rounds",
		"\n```\n  part    CPU µs\n  kernel    9.71\n```\n",
		"\nThe whole process of pulsegate allocates 0.50 [0.50–0.50] objects of 30 [30–30] bytes for each request",
		"Written by `make bench-ingest`",
		"![CPU time per request of each server](plot.svg)",
		"\n64 connections:\n", "\n1000 connections:\n",
		"| **floor**: nothing | no | 10.0 [10.0–20.0] | 1.00 [1.00–1.00] | 500 [500–500] | 3.00 | 9.00 |\n",
		"| **pulsegate**: a <b> & c | durable | 25.0 [20.0–60.0] | 2.50 [2.00–3.00] | 500 [500–500] | 3.00 | 9.00 |\n",
		"| **pulsegate**: a <b> & c | durable | 30.0 [30.0–30.0] |  | 500", // no round has both
		"| 64 connections: CPU per request / that of floor | 2.50 [2.00–3.00] | at most 2.2 | not reached |\n",
		"| 1000 connections: requests/s / that of before |  | at least 1.5 | not measured |\n",
		"Left out: ginpg, because PostgreSQL is not installed.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "absent") {
		t.Errorf("a server without figures is listed in:\n%s", text)
	}
}

func TestPlot(t *testing.T) {
	svg := example().Plot()
	var floors, texts int
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, svg)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "stroke-dasharray" {
				floors++
			}
			if a.Name.Local == "href" || a.Name.Local == "src" {
				t.Errorf("the plot refers to %s", a.Value)
			}
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
				t.Errorf("%s %s = %q", e.Name.Local, a.Name.Local, a.Value)
			}
		}
		if e.Name.Local == "text" {
			texts++
		}
	}
	if floors != 3 { // one per number of connections, and one in the legend
		t.Errorf("%d lines of the floor, want 3", floors)
	}
	for _, want := range []string{">pulsegate<", ">25.0 µs<", ">2.5 x floor<", ">1000 connections<"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%s is missing in the plot", want)
		}
	}
	if bytes.Contains(svg, []byte("absent")) {
		t.Error("a server without figures is in the plot")
	}
	(&report.Ingest{}).Plot() // must not panic
}
