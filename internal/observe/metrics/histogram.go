package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Histogram counts values in fixed buckets. Several goroutines may observe.
type Histogram struct {
	// bounds are the upper bounds of the buckets, inclusive and rising, in the
	// values' own unit. They are not modified.
	bounds []int64

	// counts holds one counter for each bound, and one for what lies above.
	counts []atomic.Uint64

	// sum is that of all values. It wraps after 2⁶³ of the unit, which are 292
	// years of nanoseconds.
	sum atomic.Int64

	// perUnit is the number of the values' units in the unit that is shown:
	// 1e9 for nanoseconds that are shown as seconds.
	perUnit float64
}

// NewHistogram returns a Histogram of values in some unit, with upper bounds in that
// unit, which must not be modified. It shows perUnit of them as 1: of nanoseconds that
// are shown as seconds, 1e9.
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

// Metric returns h as it is now.
//
// Invariant: the count is the sum of the buckets, whatever is observed
// meanwhile. TestHistogram checks it.
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

// DurationBounds returns, in nanoseconds, 1, 2.5, 5 in each decade from first to last, both
// included if they are of that form.
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
