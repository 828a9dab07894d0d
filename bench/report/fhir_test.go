package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

func TestFHIRMarkdown(t *testing.T) {
	run := func(observations uint64) report.FHIRRun {
		r := report.FHIRRun{
			Observations: observations, Bytes: 800 * observations, Duration: 2 * time.Second, CPU: time.Second / 2, BeforeBytes: 50 << 20, PeakBytes: 60 << 20,
			Latencies: []time.Duration{9 * time.Millisecond, time.Millisecond, 3 * time.Millisecond},
		}
		r.Sort()
		return r
	}
	f := &report.FHIR{
		Setting: report.Here("make bench-fhir"), Rounds: 2, Readings: 43_200, Senders: 10,
		Searches: []report.FHIRSearch{{Count: 100, Runs: []report.FHIRRun{run(300_000), run(500_000)}}, {Count: 1000}},
		Bundles:  []report.FHIRBundle{{Type: "batch", Observations: 100, Runs: []report.FHIRRun{run(20_000)}}},
	}
	text := f.Markdown()
	for _, want := range []string{
		"all Observations of a patient with 43200 readings",
		"| 100 | 200000 [150000–250000] | 1.33 [1.00–1.67] | 800 | 3.00 | 3.00 | 50 [50–50] | 60 [60–60] |\n",
		"| batch of 100 | 10000 [10000–10000] | 25.00 [25.00–25.00] | 800 | 3.00 | 3.00 | 60 [60–60] |\n",
		"| search, 100 a page: Observations/s | 200000 [150000–250000] | at least 100000 | reached |\n",
		"| search, 1000 a page: Observations/s |  | at least 100000 | not measured |\n",
		"| batch of 100: durable Observations/s | 10000 [10000–10000] | at least 20000 | not reached |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
