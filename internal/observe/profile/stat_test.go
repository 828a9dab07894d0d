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

// TestPoissonPValue compares all small counts with sums over all outcomes.
func TestPoissonPValue(t *testing.T) {
	for _, exposures := range [][2]float64{{1, 1}, {1, 3}, {250, 7}} {
		q := exposures[0] / (exposures[0] + exposures[1])
		for a := range int64(25) {
			for b := range int64(25) {
				lower, upper := 0.0, 0.0
				for k := range a + b + 1 {
					p := binomial(a+b, k, q)
					if k <= a {
						lower += p
					}
					if k >= a {
						upper += p
					}
				}
				want := min(1, 2*min(lower, upper))
				got := pg.PoissonPValue(a, b, exposures[0], exposures[1])
				if math.Abs(got-want) > 1e-9 {
					t.Fatalf("%d and %d with exposures %v: got %v, want %v", a, b, exposures, got, want)
				}
			}
		}
	}
}

func TestPoissonPValueLarge(t *testing.T) {
	for _, tt := range []struct {
		a, b   int64
		lo, hi float64
	}{
		{0, 0, 1, 1},
		{100_000, 100_000, 0.99, 1},
		{1_000_000, 1_000_000, 0.99, 1},
		{50_000, 51_000, 0.001, 0.002}, // 3.15 standard errors
		{50_000, 60_000, 0, 1e-100},
		{0, 5, 0.0625, 0.0625},
		{0, 1_000, 0, 1e-200},
	} {
		got := pg.PoissonPValue(tt.a, tt.b, 1, 1)
		if !(got >= tt.lo-1e-9 && got <= tt.hi+1e-9) {
			t.Errorf("%d and %d: got %v, want from %v to %v", tt.a, tt.b, got, tt.lo, tt.hi)
		}
		if swapped := pg.PoissonPValue(tt.b, tt.a, 1, 1); math.Abs(got-swapped) > 1e-9 {
			t.Errorf("%d and %d: got %v, swapped %v", tt.a, tt.b, got, swapped)
		}
	}
}

func TestNormalPValue(t *testing.T) {
	for _, tt := range []struct{ difference, variance, want float64 }{
		{0, 0, 1}, {0, 4, 1}, {1, 0, 0}, {-1, 0, 0},
		{1.959963984540054, 1, 0.05}, {-3.919927969080108, 4, 0.05}, // quantiles of the normal distribution
	} {
		if got := pg.NormalPValue(tt.difference, tt.variance); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%v with variance %v: got %v, want %v", tt.difference, tt.variance, got, tt.want)
		}
	}
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
