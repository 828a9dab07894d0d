package report

// SpreadOf shows spread to the tests.
var SpreadOf = spread
