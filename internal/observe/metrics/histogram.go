package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Histogram counts values in fixed buckets. It is safe for concurrent use.
type Histogram struct {
	// bounds are the inclusive upper bounds of the buckets, in ascending order, in the
	// unit of the values. They are not modified.
	bounds []int64

	// counts has one counter per bound, and one for larger values.
	counts []atomic.Uint64

	// sum is the sum of all values. It overflows at 2⁶³: in nanoseconds, after 292
	// years.
	sum atomic.Int64

	// perUnit converts values to the exported unit by division: 1e9 to export
	// nanoseconds as seconds.
	perUnit float64
}

// NewHistogram returns a Histogram with the given upper bounds, which must not be
// modified. Exported values are divided by perUnit: 1e9 to export nanoseconds as
// seconds.
func NewHistogram(bounds []int64, perUnit float64) Histogram {
	return Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1), perUnit: perUnit}
}

// Observe counts v. It does not allocate.
func (h *Histogram) Observe(v int64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(v)
}

// Metric returns the current state of h.
//
// Invariant: the count is the sum of the buckets, even during concurrent calls of
// Observe. TestHistogram checks it.
func (h *Histogram) Metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.bounds))
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
		if i < len(h.bounds) {
			buckets[float64(h.bounds[i])/h.perUnit] = total
		}
	}
	return prometheus.MustNewConstHistogram(desc, total, float64(h.sum.Load())/h.perUnit, buckets, labels...)
}

// DurationBounds returns bounds in nanoseconds: first, 2.5 times first, 5 times first, and
// so on for each decade, up to and including last.
func DurationBounds(first, last time.Duration) []int64 {
	var bounds []int64
	for decade := first; decade <= last; decade *= 10 {
		for _, d := range []time.Duration{decade, decade * 5 / 2, decade * 5} {
			if d <= last {
				bounds = append(bounds, d.Nanoseconds())
			}
		}
	}
	return bounds
}
