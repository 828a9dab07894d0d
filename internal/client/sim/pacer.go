package sim

import (
	"math"
	"time"
)

// Bounds of the rate of a pacer, in requests per second.
const (
	minRate = 1e-6
	maxRate = 10_000_000
)

// A pacer is the schedule of an open loop: requests at a constant rate, in requests per
// second, whether or not earlier ones were answered. It uses no clock. The zero pacer
// never sends.
//
// The intended send time of request k, counted from 0, is k/rate after the start. A run
// of length d has the requests with k/rate < d.
type pacer float64

// intended returns the intended send time of request k since the start, rounded up to a
// nanosecond.
func (p pacer) intended(k uint64) time.Duration {
	ns := math.Ceil(float64(k) / float64(p) * 1e9)
	if !(ns < math.MaxInt64) || p == 0 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// total returns how many requests a run of length d has.
func (p pacer) total(d time.Duration) uint64 {
	n := uint64(float64(p) * d.Seconds())
	for p.intended(n) < d {
		n++
	}
	for n > 0 && p.intended(n-1) >= d {
		n--
	}
	return n
}
