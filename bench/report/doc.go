// Package report writes docs/benchmarks.md from what the benchmarks measured:
//
//  1. A command of bench/cmd/bench measures and fills in an [Ingest], a [Micro] or
//     one of their like.
//  2. Its Markdown method lays the figures out, with the machine, the Go
//     version, the command and the date that they belong to.
//  3. [UpdatePage] puts that text between two markers of the page. What people
//     wrote around the markers stays.
//
// # Honest numbers
//
// Figures are medians over rounds, and the range over the rounds stands beside
// them. A ratio is made within each round, of two servers that ran minutes
// apart, before its median is taken: a machine that slows down for one round
// does so for both.
//
// # Not here
//
// Nothing is measured here. Whether two microbenchmarks differ is benchstat's to
// say; the tables of goals only hold medians against limits.
package report
