package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Ratios are computed within rounds: of ingest's CPU, 10/10 and 24/20. A commit of 100 ns
// is 1 % and 0.5 % of a reading.
func TestReadMarkdown(t *testing.T) {
	live := func(us, share float64) report.LiveRun {
		return report.LiveRun{Readings: 1000, CPU: time.Duration(us * 1000 * float64(time.Microsecond)), StreamShare: share, Events: 10_000}
	}
	gets := func(us ...float64) (runs []report.Run) {
		for round, v := range us {
			runs = append(runs, report.Run{Round: round, Requests: 1000, Duration: time.Second, CPU: time.Duration(v * 1000 * float64(time.Microsecond))})
		}
		return runs
	}
	r := report.Read{
		Setting: report.Here("make bench-read"), Rounds: 2, Duration: 2 * time.Second, Readings: 25_000_000, Devices: 20_000, Connections: 64, Subscribers: 1000, Rate: 5000,
		Latest:  []report.Server{{Name: report.Own, Runs: gets(30, 40)}, {Name: "nethttp", Runs: gets(10, 20)}},
		Without: []report.LiveRun{live(10, 0), live(20, 0)},
		With:    []report.LiveRun{live(20, 0.5), live(32, 0.25)},
		Publish: []report.Result{{Nanos: 100}, {Nanos: 100}},
	}
	text := r.Markdown()
	for _, want := range []string{
		"25 M readings of 20000 devices",
		"| **pulsegate**:  | 35.0 [30.0–40.0] | 2.50 [2.00–3.00] | 1000 [1000–1000] |",
		"| 1000 | 26.0 [20.0–32.0] | 9.0 [8.0–10.0] | 17.0 [10.0–24.0] | 5000 | 0 |\n",
		"64 connections: CPU per request, µs | 35.0 [30.0–40.0] | at most 35 | reached |",
		"ingest's CPU per reading / that without | 1.10 [1.00–1.20] | at most 1.25 | reached |",
		"the dispatcher's part of the CPU per reading, % | 0.750 [0.500–1.000] | at most 2 | reached |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
