package main

import (
	"strings"
	"testing"
)

// TestSim runs one short round of all generators and writes the page.
func TestSim(t *testing.T) {
	t.Parallel()
	needWrk(t)
	_, text := runPage(t, []string{"bench-sim"}, "sim", "--rounds=1", "--seconds=1", "--connections=1", "--programs="+built(t))
	for _, want := range []string{"make bench-sim ROUNDS=1 SECONDS=1", "\n| wrk with Lua | ", "\n| `pulsegate sim` | ", "\n| `pulsegate sim` with a ledger | ", "at most 1.5"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}
