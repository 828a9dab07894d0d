package main

import (
	"strings"
	"testing"
)

// TestMicro runs one round of one package and writes the results, including benchstat's
// comparison.
func TestMicro(t *testing.T) {
	t.Parallel()
	_, text := runResults(t, []string{"micro"}, "micro", "--rounds=1", "--time=1ms", "--match=^BenchmarkHea", "--own=")
	for _, want := range []string{" | Headers/set=fixed | Headers/set=dynamic |", "\n| before | ",
		"\n| pulsegate / after | ", "sec/op"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

// TestMux runs one round of the routers with one set.
func TestMux(t *testing.T) {
	t.Parallel()
	_, text := runResults(t, []string{"mux"}, "mux", "--rounds=1", "--time=1ms", "--match=Route/impl/set=one-static$")
	for _, want := range []string{"make bench-mux ROUNDS=1 BENCHTIME=1ms", "\n| router | one-static |", "\n| pulsegate | ",
		"| one-static: pulsegate / httprouter | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestNothingToRun(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--own=", "--peers="}, {"--match=^BenchmarkNone$", "--own="}, {"--own=./no/such/package", "--peers="},
	} {
		if err := run(t.Context(), append([]string{"micro", "--rounds=1", "--results=", "--root=../../.."}, args...),
			new(strings.Builder)); err == nil {
			t.Errorf("run(%q) returns nil", args)
		}
	}
}
