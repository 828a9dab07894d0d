package report_test

import (
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/bench/report"
)

const output = `goos: linux
goarch: amd64
pkg: example.com/bench/answers
cpu: some CPU
BenchmarkHeaders/impl=before/set=fixed-2         	  289978	       400 ns/op	      48 B/op	       3 allocs/op
BenchmarkHeaders/impl=after/set=fixed-2          	 1893273	       100 ns/op	       0 B/op	       0 allocs/op
BenchmarkHeaders/impl=pulsegate/set=fixed-2      	 2393271	       50 ns/op	       0 B/op	       0 allocs/op
PASS

pkg: example.com/reply
BenchmarkProblem/impl=reply-2	 1000	 9 ns/op	 64 B/op	 2 allocs/op
PASS

pkg: example.com/other
BenchmarkDecode/shape=single-2	 1000	 1.5 ns/op	 100 MB/s	 7 B/op	 1 allocs/op
BenchmarkEncode 	 1000	 2 ns/op
PASS
`

// micro returns two rounds, the second of which took 10 % longer.
func micro(t *testing.T) *report.Micro {
	t.Helper()
	m := &report.Micro{Rounds: 2, BenchTime: "1s", Compared: "benchstat's words\n"}
	for round := range 2 {
		results, err := report.ReadResults(strings.NewReader(output), round)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			results[i].Nanos *= 1 + float64(round)/10
		}
		m.Results = append(m.Results, results...)
	}
	return m
}

func TestMicroMarkdown(t *testing.T) {
	text := micro(t).Report().Markdown()
	for _, want := range []string{
		"| before | 420.0 (48, 3) |\n| after | 105.0 (0, 0) |\n| pulsegate | 52.5 (0, 0) |\n", "| pulsegate / before | 0.12 [0.12–0.12] |\n| pulsegate / after | 0.50 [0.50–0.50] |\n",
		"| healthz: time / that of the after form |  | at most 0.5 | not measured |\n",
		"| three header fields: time / that of the shared slices, which are a data race | 0.50 [0.50–0.50] | at most 1.1 | reached |\n",
		"| three header fields: allocations | 0 [0–0] | at most 0 | reached |\n",
		"| a problem with field and reason: allocations | 2 [2–2] | at most 0 | not reached |\n",
		"Noise (A/A)", "```\nbenchstat's words\n```",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
