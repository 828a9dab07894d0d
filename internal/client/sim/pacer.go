package sim

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Bounds of the rate of a [Pacer], in requests per second.
const (
	minRate = 1e-6
	maxRate = 10_000_000
)

// A Pacer is the schedule of an open loop: requests at a constant rate, whether or not
// earlier ones were answered. It uses integer arithmetic and no clock. The zero Pacer
// never sends.
//
// The intended send time of request k, counted from 0, is k/rate after the start. A run
// of length d has the requests with k/rate < d.
type Pacer struct {
	microHz uint64 // requests per 1,000,000 s
}

// NewPacer returns a schedule of perSecond requests per second, rounded to six
// decimals.
func NewPacer(perSecond float64) (Pacer, error) {
	if !(perSecond >= minRate && perSecond <= maxRate) {
		return Pacer{}, fmt.Errorf("%w: the rate must be from %g to %d requests/s", ErrOptions, minRate, maxRate)
	}
	return Pacer{uint64(math.Round(perSecond * 1e6))}, nil
}

// Intended returns the intended send time of request k since the start, rounded up to a
// nanosecond.
func (p Pacer) Intended(k uint64) time.Duration {
	if p.microHz == 0 {
		return math.MaxInt64
	}
	// k/rate in ns is k × 10^15 / microHz.
	hi, lo := bits.Mul64(k, 1e15)
	lo, carry := bits.Add64(lo, p.microHz-1, 0)
	hi += carry
	if hi >= p.microHz {
		return math.MaxInt64
	}
	ns, _ := bits.Div64(hi, lo, p.microHz)
	return time.Duration(min(ns, math.MaxInt64))
}

// Due returns how many requests are due at elapsed: the number of k with Intended(k) <=
// elapsed.
func (p Pacer) Due(elapsed time.Duration) uint64 {
	if elapsed < 0 || p.microHz == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(elapsed), p.microHz)
	n, _ := bits.Div64(hi, lo, 1e15) // hi < 1e15: 2^63 ns × 10^13 µHz / 2^64 is 5×10^12
	return n + 1
}

// Total returns how many requests a run of length d has: the number of k with
// Intended(k) < d.
func (p Pacer) Total(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return p.Due(d - 1)
}
