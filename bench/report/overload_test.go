package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Ratios are computed within rounds: at 5x, 900 of 1000 and 400 of 400 per second,
// regardless of the closed loop in the other round.
func TestOverloadMarkdown(t *testing.T) {
	run := func(stored, tries uint64) report.OverloadRun {
		return report.OverloadRun{
			Duration: time.Second, Stored: stored, Tries: tries, Refused: tries - stored,
			P50: time.Millisecond, P99: 20 * time.Millisecond, ServerCPU: 500 * time.Millisecond, LoaderCPU: 250 * time.Millisecond, PeakRSSBytes: 40 << 20,
			Health: report.Answers{Asked: 20, Took: []time.Duration{time.Millisecond, 30 * time.Millisecond}},
		}
	}
	refusing, other := run(900, 5000), run(400, 2000)
	refusing.RetryAfter = map[string]uint64{"1": 3, "2": 1}
	other.RetryAfter = map[string]uint64{"1": 1, "2": 1, "3": 1, "4": 1}
	o := report.Overload{
		Setting: report.Here("make overload"), Rounds: 2, Duration: time.Second, Connections: 100, Multiples: []float64{1, 5}, MemoryLimitBytes: 64 << 20,
		Scenarios: []report.Scenario{{Name: "rude", What: "short", Rounds: []report.OverloadRound{
			{Base: run(1000, 1000), Runs: []report.OverloadRun{run(990, 1000), refusing}},
			{Base: run(200, 200), Runs: []report.OverloadRun{run(200, 200), other}},
		}}},
	}
	text := o.Markdown()
	for _, want := range []string{
		"Written by `make overload`", "**rude**: short.",
		"| 5x | 3500 [2000–5000] | 81 % [80 %–82 %] | 650 [400–900] | 0.95 [0.90–1.00] | 1.0 [1.0–1.0] | 20.0 [20.0–20.0] |",
		" | 40 | 0 of 40, 30 ms | not asked |\n",
		"| rude: stored at 5x / best | 0.95 [0.90–1.00] | at least 0.8 | reached |\n",
		"| rude: unanswered requests | 0 [0–0] | at most 0 | reached |\n",
		"| rude: peak RSS, MiB | 40 [40–40] | at most 64 | reached |\n",
		"| rude: share of the most frequent Retry-After | 0.50 [0.25–0.75] | at most 0.3 | not reached |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	o.Scenarios[0].Rounds[0].Runs[1].RetryAfter = nil
	if text := o.Markdown(); strings.Contains(text, "Retry-After |") {
		t.Errorf("a goal for refusals without refusals:\n%s", text)
	}
}
