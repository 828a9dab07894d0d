// Package profile answers what one request costs a running Pulsegate server, and
// where.
//
// # How a report comes about
//
//  1. [Collect] asks the server's admin listener for its counters and profiles
//     before and after a window, and for the CPU profile of the window. The
//     result is a [Capture]. It may be saved to a folder and loaded again.
//  2. [Analyze] walks every stack of the capture, gives it to a [Part] by the
//     rules in parts.go, and adds up what belongs to each part, function and
//     source line. It divides by the requests of the window.
//  3. A [Report] is written as text, as JSON or as a flame graph. [Compare] sets
//     two reports side by side and tells differences from sampling error.
//
// # What the figures are
//
// A CPU profile is a sample: the kernel interrupts a thread after each 10 ms of
// CPU time it has used (runtime/pprof, 100 Hz) and the stack of that moment is
// counted. A row of n samples therefore carries a standard error of about √n
// samples, that of a Poisson count. A heap profile is a sample too: an allocation
// of s bytes is recorded with probability 1-exp(-s/rate), rate being 512 KiB
// unless the server says otherwise, and its record is scaled by the inverse.
// stat.go states the formulas and their sources.
//
// The samples say what the server did in the window. They say nothing of what the
// machine did beside it, nor of how another window would have gone; the noise of
// the machine comes on top of every error that is shown here.
//
// # Not here
//
// No load: cmd/pulsegate sim makes it. No profiling of other programs: the
// counters and the rules are Pulsegate's own. No symbolization: Go's profiles
// carry their symbols.
package profile
