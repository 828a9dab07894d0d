package report

import "slices"

// A Spread is the middle and the range of a figure over the rounds.
type Spread struct {
	Median, Min, Max float64
}

// SpreadOf returns the Spread of values, of which there must be at least one. The
// median of an even number is the mean of the middle two.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		Min:    sorted[0],
		Max:    sorted[n-1],
	}
}
