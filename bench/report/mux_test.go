package report_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

// The median of the ratios within rounds decides about a goal, even if the fastest
// rounds suggest otherwise.
func TestMuxMarkdown(t *testing.T) {
	m := &report.Mux{Setting: report.Here("make bench-mux"), Rounds: 3, BenchTime: "200ms"}
	for round, nanos := range []float64{10, 20, 30} {
		add := func(name string, ns float64) {
			m.Results = append(m.Results, report.Result{Round: round, Name: name, Nanos: ns, Allocs: 1})
		}
		add("Route/impl=pulsegate/set=one-static/req=fresh", nanos)
		add("Route/impl=httprouter/set=one-static/req=fresh", 10)
		add("Route/impl=pulsegate/set=gplus/req=fresh", 8)
		add("Route/impl=servemux-copy/set=gplus/req=fresh", 10)
		add("Route/impl=pulsegate/set=regexp/req=fresh", 7)
		add("Route/impl=pulsegate/set=regexp/req=reused", 5)
	}
	text := m.Report().Markdown()
	for _, want := range []string{
		"Written by `make bench-mux`",
		"\n| router | one-static | gplus | regexp |\n|---|--:|--:|--:|\n| pulsegate | 20 (1) | 8 (1) | 7 (1) |\n| httprouter | 10 (1) | | |\n| servemux-copy | | 10 (1) | |\n",
		"\n| router | regexp |\n|---|--:|\n| pulsegate | 5 (1) |\n",
		"| one-static: pulsegate / httprouter | 2.00 [1.00–3.00] | at most 1.2 | not reached |\n",
		"\n| pulsegate / servemux-copy | | 0.80 [0.80–0.80] | | | |\n",
		"| github: pulsegate / chi |  | at most 0.6 | not measured |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
