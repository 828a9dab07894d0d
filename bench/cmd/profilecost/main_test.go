package main

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

// One short pair of windows, from the sources to the figures.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"-rounds=1", "-seconds=1", "-connections=8", "-root=../../.."}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !regexp.MustCompile(`\nratio of CPU per request: median [0-9.]+, mean .*\nratio of requests/s: +median [0-9.]+, mean .*\n$`).MatchString(out.String()) {
		t.Errorf("the figures are missing in:\n%s", out.String())
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 2}, 2},
	} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v: got %v, want %v", tt.values, got, tt.want)
		}
	}
}

func TestGeometric(t *testing.T) {
	mean, factor := geometric([]float64{0.5, 2, 1, 1})
	// The logarithms' variance is 2·ln²2/3, and four of them make the mean.
	if want := math.Exp(math.Ln2 * math.Sqrt(2.0/3/4)); math.Abs(mean-1) > 1e-9 || math.Abs(factor-want) > 1e-9 {
		t.Errorf("got %v and %v, want 1 and %v", mean, factor, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, arg := range []string{"-rounds=0", "-seconds=0", "-connections=-1"} {
		if _, err := parse([]string{arg}); err == nil {
			t.Errorf("%s is taken", arg)
		}
	}
}
