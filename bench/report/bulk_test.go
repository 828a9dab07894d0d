package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestBulkMarkdown(t *testing.T) {
	run := func(round int, cpu time.Duration) report.BulkRun {
		return report.BulkRun{Round: round, Readings: 1_000_000, Duration: 2 * time.Second, CPU: 1_000_000 * cpu, LoaderCPU: time.Second / 4,
			BodyBytes: 171_000, P50: 3 * time.Millisecond, P99: 9 * time.Millisecond}
	}
	b := &report.Bulk{
		Setting: report.Here("make bench-ingest"), Rounds: 3, Readings: 1000, Senders: 10,
		Forms: []report.BulkForm{
			{Name: "array", Judged: true, Runs: []report.BulkRun{run(0, 2*time.Microsecond), run(1, 5*time.Microsecond), run(2, 3*time.Microsecond)}},
			{Name: "ndjson", Judged: true},
			{Name: "array+gzip", Runs: []report.BulkRun{run(0, 4*time.Microsecond)}},
		},
	}
	text := b.Markdown()
	for _, want := range []string{
		"10 connections, each of which posts batches of 1000 readings",
		"| array | 171000 | 3.00 [2.00–5.00] | 500000 [500000–500000] | 0.25 | 3.00 | 9.00 |\n",
		"| array+gzip | 171000 | 4.00 [4.00–4.00] | 500000",
		"| array: CPU per reading, µs | 3.00 [2.00–5.00] | at most 4 | reached |\n",
		"| array: readings/s | 500000 [500000–500000] | at least 350000 | reached |\n",
		"| ndjson: readings/s |  | at least 350000 | not measured |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "array+gzip: ") {
		t.Errorf("a form without goals has a goal:\n%s", text)
	}
}

func TestIdleMarkdown(t *testing.T) {
	d := &report.Idle{
		Setting: report.Here("make bench-ingest"), Rounds: 2, Connections: 10_000, Wait: time.Minute,
		Servers: []report.IdleServer{
			{Name: "nethttp", What: "goroutines", Runs: []report.IdleRun{{None: 30 << 20, All: 200 << 20}}},
			{Name: report.Own, What: "a loop", Runs: []report.IdleRun{{None: 30 << 20, All: 32 << 20}, {None: 30 << 20, All: 34 << 20}}},
			{Name: report.Own + " over TLS", What: "a loop", Runs: []report.IdleRun{{None: 30 << 20, All: 120 << 20, Later: 90 << 20}}},
			{Name: "absent"},
		},
	}
	text := d.Markdown()
	for _, want := range []string{
		"| **nethttp**: goroutines | 30.0 [30.0–30.0] | 200.0 [200.0–200.0] | 170.0 [170.0–170.0] | 17826 |  |\n",
		"| **pulsegate**: a loop | 30.0 [30.0–30.0] | 33.0 [32.0–34.0] | 3.0 [2.0–4.0] | 315 |  |\n",
		"| 10000 idle connections: MiB more than with none | 3.0 [2.0–4.0] | at most 60 | reached |\n",
		"| 10000 idle connections over TLS: MiB more than with none, after 1m0s | 60.0 [60.0–60.0] | at most 100 | reached |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "absent") {
		t.Errorf("a server without figures is listed in:\n%s", text)
	}
}
