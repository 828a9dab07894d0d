package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestStoreMarkdown(t *testing.T) {
	run := func(round int, cpu time.Duration, diskBytes uint64) report.StoreRun {
		return report.StoreRun{Round: round, Readings: 1_000_000, Duration: 4 * time.Second, CPU: 1_000_000 * cpu, LoaderCPU: time.Second / 4,
			SentBytes: 100_000_000, WrittenBytes: 50_000_000, DiskBytes: diskBytes, SlowestRate: 200_000,
			P50: 10 * time.Millisecond, P99: 20 * time.Millisecond, P999: 150 * time.Millisecond, Refused: 2}
	}
	s := &report.Store{
		Setting: report.Here("make bench-store"), Rounds: 2, Readings: 30_000_000, Devices: 20_000, Batch: 1000, Senders: 10, Settled: 8 * time.Second, Kill: 10 * time.Second,
		Servers: []report.StoreServer{
			{Name: report.Own, Runs: []report.StoreRun{run(0, 2*time.Microsecond, 5_000_000), run(1, 3*time.Microsecond, 6_000_000)}},
			{Name: report.OwnTenth, Runs: []report.StoreRun{run(0, 2*time.Microsecond, 5_000_000)}},
			{Name: report.VictoriaMetrics, What: "a peer", Runs: []report.StoreRun{run(0, 4*time.Microsecond, 2_000_000), run(1, 4*time.Microsecond, 2_000_000)}},
			{Name: "absent", What: "nothing"},
		},
		Starts:   []report.StoreStart{{Readings: 31_234_000, Took: 1500 * time.Millisecond, CPU: 900 * time.Millisecond}},
		Year:     []report.StoreRead{{Format: "CSV", Requests: 2, Readings: 500_000, Took: 500 * time.Millisecond, CPU: 400 * time.Millisecond}},
		Scans:    []report.Result{{Name: "Aggregate/cache=store", Nanos: 50e6}, {Name: "Aggregate/cache=store", Nanos: 40e6}},
		ScanSize: 500_000,
		Left:     []string{"sqlite, because it is missing"},
	}
	text := s.Markdown()
	for _, want := range []string{
		"30 M readings of 20000 wearers",
		"| pulsegate | 1 | 2.50 [2.00–3.00] | 250000 [250000–250000] | 200000 | 5.50 [5.00–6.00] | 0.50 [0.50–0.50] | 10.0 | 20.0 | 150.0 | 2 | 0.25 |\n",
		"- victoria-metrics: a peer\n",
		"with 31.23 M readings stored: 1500 [1500–1500] ms until ready, with 900 [900–900] ms of CPU;",
		"| scan from the store's cache | 45.0 [40.0–50.0] | 11.25 [10.00–12.50] |\n",
		"| CSV | 250.0 [250.0–250.0] | 2.50 [2.50–2.50] |\n",
		"| pulsegate: bytes a reading on disk | 5.50 [5.00–6.00] | at most 6 | reached |\n",
		"| pulsegate, five signs: bytes a reading on disk |  | at most 11 | not measured |\n",
		"| pulsegate: CPU per reading / that of victoria-metrics | 0.62 [0.50–0.75] | at most 0.7 | reached |\n",
		"| pulsegate: p99.9 / p50 | 15.0 [15.0–15.0] | at most 10 | not reached |\n",
		"| CPU per reading of 100 M / that of 10 M |  | at most 1.15 | not measured |\n",
		"| start after kill -9 with 100 M readings, s |  | at most 2 | not measured |\n",
		"| a device-year of minutes scanned and aggregated, ms | 45.0 [40.0–50.0] | at most 60 | reached |\n",
		"Left out: sqlite, because it is missing.\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "absent") {
		t.Errorf("a server without figures is listed in:\n%s", text)
	}
	if block := s.Block(); block != "bench-store" {
		t.Errorf("block %s", block)
	}
	s.Readings = 100_000_000
	if block := s.Block(); block != "bench-store-large" {
		t.Errorf("block %s of a large store", block)
	}
	text = s.Markdown()
	for _, want := range []string{
		"| CPU per reading of 100 M / that of 10 M | 1.00 [1.00–1.00] | at most 1.15 | reached |\n",
		"| start after kill -9 with 100 M readings, s | 1.50 [1.50–1.50] | at most 2 | reached |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
