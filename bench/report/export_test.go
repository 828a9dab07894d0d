package report

// SpreadOf shows spread to the tests.
var SpreadOf = spread

// Ticks returns the ticks of an axis that holds low and high.
func Ticks(low, high float64) []float64 { return newAxis(low, high).ticks() }
