package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Ratios are computed within rounds: 4/4, 12/6 and 12/10, with the median 1.2. The
// ratio of the medians would be 2.
func TestLoadCostMarkdown(t *testing.T) {
	l := report.LoadCost{
		Setting: report.Here("make bench-sim"), Peer: "wrk 4.1", Connections: 1000, Duration: 5 * time.Second, Rounds: 3,
		Generators: []report.Generator{
			{Name: "wrk", Costs: []float64{4, 6, 10}, PerSecond: []float64{100, 100, 100}},
			{Name: "sim", Costs: []float64{4, 12, 12}, PerSecond: []float64{90, 80, 70}, Limit: 1.5},
		},
	}
	text := l.Markdown()
	for _, want := range []string{
		"Written by `make bench-sim`",
		"| wrk | 6.00 [4.00–10.00] | 1.00 [1.00–1.00] | 100 [100–100] |\n",
		"| sim | 12.00 [4.00–12.00] | 1.20 [1.00–2.00] | 80 [70–90] |\n",
		"| sim: CPU per request / that of wrk | 1.20 [1.00–2.00] | at most 1.5 | reached |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Count(text, "at most") != 1 {
		t.Errorf("a generator without a limit has a goal in:\n%s", text)
	}
}
