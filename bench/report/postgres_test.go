package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestPostgresMarkdown(t *testing.T) {
	run := func(round int, node, database time.Duration) report.PostgresRun {
		return report.PostgresRun{Round: round, Readings: 1_000_000, Duration: 20 * time.Second, NodeCPU: 1_000_000 * node, DatabaseCPU: 1_000_000 * database,
			LoaderCPU: time.Second / 4, P50: 3 * time.Millisecond, P99: 9 * time.Millisecond}
	}
	p := &report.Postgres{Setting: report.Here("make bench-postgres"), Loader: "wrk 4", Database: "version 15", Rounds: 2, Connections: 1000,
		Batch: 1000, Senders: 10, Devices: 10_000, Table: 200_000, Duration: 10 * time.Second, WarmUp: time.Second}
	p.Add(report.PostgresInsert, run(0, 80*time.Microsecond, 120*time.Microsecond))
	p.Add(report.PostgresOwnDir, run(0, 10*time.Microsecond, 0))
	p.Add(report.PostgresSingle, run(0, 12*time.Microsecond, 8*time.Microsecond))
	p.Add(report.PostgresSingle, run(1, 14*time.Microsecond, 8*time.Microsecond))
	p.Add(report.PostgresBatches, run(0, 2*time.Microsecond, 8*time.Microsecond))
	p.Add(report.PostgresRows(report.SmallTable), run(0, 2*time.Microsecond, 8*time.Microsecond))
	p.Add(report.PostgresRows(report.LargeTable), run(0, 2*time.Microsecond, 12*time.Microsecond))
	text := p.Markdown()
	for _, want := range []string{
		"Single readings: wrk 4, one thread, 1000 connections\n",
		"get 200000 readings in each round",
		"| pulsegate, PostgreSQL | 13.00 [12.00–14.00] | 8.00 [8.00–8.00] | 21.00 [20.00–22.00] | 50000 [50000–50000] | 0.25 | 3.0 | 9.0 |\n",
		"| batches: into a table of 50 M rows | 2.00 [2.00–2.00] | 12.00",
		"that of gin, one INSERT per request | 0.100 [0.100–0.100] | at most 0.15 | reached |\n",
		"that of one with its own directory | 1.200 [1.200–1.200] | at most 1.4 | reached |\n",
		"| batches: pulsegate, PostgreSQL: readings/s | 50000 [50000–50000] | at least 40000 | reached |\n",
		"two standbys, ANY 1: readings/s |  | at least 30000 | not measured |\n",
		"| two servers: readings/s / those of one |  | at least 1 | not measured |\n",
		"| CPU with 50 M rows / with 1 M | 1.400 [1.400–1.400] | at most 1.3 | not reached |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
