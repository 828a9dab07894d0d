package report

import (
	"fmt"
	"slices"
)

// A Spread is the median and the range of a figure over the rounds.
type Spread struct {
	Median, Min, Max float64
}

// SpreadOf returns the Spread of values. There must be at least one. The median of an
// even number of values is the mean of the middle two.
func SpreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{
		Median: (sorted[(n-1)/2] + sorted[n/2]) / 2,
		Min:    sorted[0],
		Max:    sorted[n-1],
	}
}

// text formats the median and the range with format.
func (s Spread) text(format string) string {
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", s.Median, s.Min, s.Max)
}
