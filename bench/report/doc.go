// Package report writes the results of the benchmarks to bench/results:
//
//  1. A command of bench/cmd/bench measures and fills the tables of a [Report].
//  2. [Report.Markdown] formats the figures, with the machine, the Go version, the
//     command and the date.
//  3. [WriteFile] replaces the file of that run.
//
// # Honest numbers
//
// Figures are medians over rounds, with the range over the rounds. A ratio is computed
// within each round, of two servers that ran minutes apart, before its median is taken:
// if the machine slows down for one round, it affects both.
//
// # Not here
//
// No measurements. benchstat decides whether two microbenchmarks differ; the tables of
// goals only compare medians with limits.
package report
