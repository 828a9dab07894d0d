package main

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

// TestProfileCost runs one short pair of windows and prints the figures.
func TestProfileCost(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), []string{"profile-cost", "--rounds=1", "--seconds=1", "--connections=1", "--programs=" + built(t)}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !regexp.MustCompile(`\nratio of CPU per request: median [0-9.]+, mean .*\nratio of requests/s: +median [0-9.]+, mean .*\n$`).MatchString(out.String()) {
		t.Errorf("the figures are missing in:\n%s", out.String())
	}
}

func TestGeometric(t *testing.T) {
	mean, factor := geometric([]float64{0.5, 2, 1, 1})
	// The variance of the logarithms is 2·ln²2/3, and the mean is of four values.
	if want := math.Exp(math.Ln2 * math.Sqrt(2.0/3/4)); math.Abs(mean-1) > 1e-9 || math.Abs(factor-want) > 1e-9 {
		t.Errorf("got %v and %v, want 1 and %v", mean, factor, want)
	}
}
