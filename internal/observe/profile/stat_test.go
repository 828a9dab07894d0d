package profile_test

import (
	"math"
	"testing"

	pg "github.com/pulsegate/pulsegate/internal/observe/profile"
)

// binomial returns the probability of k out of n by multiplication, without the
// logarithms of the code under test.
func binomial(n, k int64, q float64) float64 {
	p := 1.0
	for i := range k {
		p *= q * float64(n-i) / float64(k-i)
	}
	return p * math.Pow(1-q, float64(n-k))
}

// TestHeapSums takes the mean over all possible samples of n allocations: the mean of
// the estimated variance must be the variance of the estimate.
func TestHeapSums(t *testing.T) {
	const rate = 1000
	for _, size := range []int64{1, 10, 700, 1000, 5000} {
		p := -math.Expm1(-float64(size) / rate)
		const n = 12
		var mean, meanSquare, meanVariance float64
		for k := range int64(n + 1) {
			// pprof's scaled value for k records, before rounding.
			objects := float64(k) / p
			probability := binomial(n, k, p)
			mean += probability * objects
			meanSquare += probability * objects * objects
			const scale = 1 << 20 // keeps the digits that rounding would lose
			_, b := pg.HeapSums(int64(objects*scale), int64(objects*scale)*size, rate)
			meanVariance += probability * b[1] / scale
		}
		variance := (meanSquare - mean*mean) * float64(size*size)
		if math.Abs(mean-n) > 1e-9 {
			t.Errorf("size %d: the estimates have the mean %v, want %d", size, mean, n)
		}
		if math.Abs(meanVariance-variance) > 1e-4*variance {
			t.Errorf("size %d: the mean of the estimated variance is %v, the variance %v", size, meanVariance, variance)
		}
	}
	for _, tt := range []struct{ objects, bytes, rate int64 }{{0, 0, 1000}, {3, 30, 1}, {-2, -20, 1000}, {3, 30, 0}} {
		o, b := pg.HeapSums(tt.objects, tt.bytes, tt.rate)
		if o != [2]float64{float64(tt.objects), 0} || b != [2]float64{float64(tt.bytes), 0} {
			t.Errorf("%+v: got %+v and %+v, want them unchanged", tt, o, b)
		}
	}
}
