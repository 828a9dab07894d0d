package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const output = `goos: linux
BenchmarkRoute/impl=pulsegate/set=one-static/req=fresh-2   	  100	  20.0 ns/op	  0 B/op	  0 allocs/op
BenchmarkRoute/impl=httprouter/set=one-static/req=fresh-2  	  100	  16.0 ns/op	  0 B/op	  0 allocs/op
PASS
`

func TestRender(t *testing.T) {
	r := parseRound(output)
	if len(r.order) != 2 || r.samples[key{"pulsegate", "one-static", "fresh"}].ns != 20 {
		t.Fatalf("parsed %+v", r)
	}
	text := render([]round{r, r}, "a machine", options{rounds: 2, benchTime: 200 * time.Millisecond})
	for _, want := range []string{
		"| set | pulsegate | httprouter |",
		"| one-static | 20 (0) | 16 (0) |",
		"`make bench-mux ROUNDS=2 BENCHTIME=200ms`",
		"| one static route / httprouter | 1.25 | 1.25–1.25 | at most 1.5: reached | 1.25 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
}

// The median decides about a goal, also where the fastest rounds say otherwise.
func TestGoalsByMedian(t *testing.T) {
	pair := func(own, peer float64) round {
		return round{samples: map[key]sample{
			{"pulsegate", "one-static", "fresh"}:  {ns: own},
			{"httprouter", "one-static", "fresh"}: {ns: peer},
		}}
	}
	text := renderGoals([]round{pair(10, 10), pair(20, 10), pair(30, 10)})
	const want = "| one static route / httprouter | 2.00 | 1.00–3.00 | at most 1.5: not reached | 1.00 |\n"
	if !strings.Contains(text, want) {
		t.Errorf("no line %q in\n%s", want, text)
	}
}

func TestReplaceSection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	for _, tt := range []struct{ before, want string }{
		{"", beginMark + "\nnew\n" + endMark},
		{"# Other\n", "# Other\n\n" + beginMark + "\nnew\n" + endMark + "\n"},
		{"a\n" + beginMark + "\nold\n" + endMark + "\nb\n", "a\n" + beginMark + "\nnew\n" + endMark + "\nb\n"},
	} {
		if err := os.WriteFile(file, []byte(tt.before), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := replaceSection(file, "new\n"); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
