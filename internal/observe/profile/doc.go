// Package profile measures what one request costs a running Pulsegate server, and
// where.
//
// # How a report is produced
//
//  1. [Collect] fetches counters and profiles from the server's admin listener before
//     and after a window, and the CPU profile of the window. The result is a [Capture],
//     which can be saved to a directory.
//  2. [Analyze] assigns every stack of the capture to a [Part] by the rules in
//     parts.go, and adds up the cost of each part, function and source line. It divides
//     by the number of requests in the window.
//  3. A [Report] is written as text or JSON.
//
// # Sampling error
//
// A CPU profile is a sample: the kernel interrupts a thread after every 10 ms of CPU
// time (runtime/pprof, 100 Hz), and the current stack is counted. A row of n samples
// therefore has a standard error of about √n samples, as a Poisson count has. A heap
// profile is a sample too: an allocation of s bytes is recorded with probability
// 1-exp(-s/rate), where rate is 512 KiB unless the profile says otherwise, and each
// record is scaled by the inverse. stat.go has the formulas and their sources.
//
// The errors shown cover only this sampling. Other work on the machine and differences
// between windows add to them.
//
// # Not here
//
// No load generation: use pulsegate sim. No profiling of other programs: the counters
// and the rules are specific to Pulsegate. No symbolization: Go's profiles contain
// their symbols. No graphs and no comparison of profiles: go tool pprof has both.
package profile
