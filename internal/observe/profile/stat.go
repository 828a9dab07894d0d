package profile

import "math"

// A count is a number of CPU samples and the CPU time that they represent.
//
// Sampling error: samples are taken at fixed intervals of CPU time, independently of
// the code, so that the number n of samples in one part is approximately a Poisson
// count with the standard error √n. That is an upper bound: given the window's total N,
// the counts are multinomial with the variance n(1-n/N), which is smaller for large
// parts and 0 for the total (Johnson, Kotz, Balakrishnan: Discrete Multivariate
// Distributions, 1997, chapter 35).
type count struct {
	samples int64
	nanos   int64 // CPU time
}

func (c *count) add(samples, nanos int64) {
	c.samples += samples
	c.nanos += nanos
}

// stdErr returns the standard error of c.nanos.
func (c count) stdErr() float64 {
	if c.samples <= 0 {
		return 0
	}
	return float64(c.nanos) / math.Sqrt(float64(c.samples))
}

// A sum is an estimate of allocated bytes or objects, with its variance.
//
// Sampling error: the runtime records an allocation of s bytes with probability
// p = 1-exp(-s/rate), and pprof scales each record by 1/p. That is a
// Horvitz-Thompson estimator: for n records of the value y each (s bytes or one
// object) it is n·y/p, and n·y²(1-p)/p² is an unbiased estimate of its variance
// (Horvitz, Thompson: A Generalization of Sampling Without Replacement from a
// Finite Universe, JASA 47, 1952, for independent drawings).
type sum struct{ value, variance float64 }

func (s *sum) add(o sum) {
	s.value += o.value
	s.variance += o.variance
}

func (s sum) stdErr() float64 { return math.Sqrt(s.variance) }

// heapSums returns the estimates for one record of a heap profile that is already
// scaled: objects with a mean size of bytes/objects, sampled at rate.
func heapSums(objects, bytes int64, rate int64) (o, b sum) {
	o.value, b.value = float64(objects), float64(bytes)
	if objects <= 0 || bytes <= 0 || rate <= 1 {
		return o, b // every allocation was recorded
	}
	size := b.value / o.value
	p := -math.Expm1(-size / float64(rate))
	n := o.value * p // records
	o.variance = n * (1 - p) / (p * p)
	b.variance = o.variance * size * size
	return o, b
}

// poissonPValue returns the probability that two Poisson counts are at least as far
// apart as a and b, in either direction, if their rates per unit of exposure are the
// same.
//
// It is the conditional test: given a+b, a is binomial with the probability
// exposureA/(exposureA+exposureB). The result is twice the smaller tail. Unlike a
// normal approximation, it is exact for small counts, including 0. (Przyborowski,
// Wilenski: Homogeneity of Results in Testing Samples from Poisson Series, Biometrika
// 31, 1940.)
func poissonPValue(a, b int64, exposureA, exposureB float64) float64 {
	n := a + b
	if n == 0 || !(exposureA > 0) || !(exposureB > 0) {
		return 1
	}
	q := exposureA / (exposureA + exposureB)
	lower := binomialTail(n, a, q, -1)
	upper := binomialTail(n, a, q, +1)
	return min(1, 2*min(lower, upper))
}

// binomialTail returns the probability that a binomial count of n with probability q is
// at most k if direction is -1, or at least k if it is +1.
func binomialTail(n, k int64, q float64, direction int64) float64 {
	logQ, logNotQ := math.Log(q), math.Log1p(-q)
	logProbability := func(i int64) float64 {
		return lgamma(n+1) - lgamma(i+1) - lgamma(n-i+1) + float64(i)*logQ + float64(n-i)*logNotQ
	}
	mode := int64(q * float64(n+1))
	sum := 0.0
	for i := k; i >= 0 && i <= n; i += direction {
		p := math.Exp(logProbability(i))
		sum += p
		// Beyond the mode the terms shrink, by a growing factor.
		if past := (i - mode) * direction; past > 0 && p < sum*1e-12 {
			break
		}
	}
	return min(1, sum)
}

func lgamma(n int64) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}

// normalPValue returns the probability of a difference of at least the given size if
// the true difference is 0 and the error is normal with the given variance.
func normalPValue(difference, variance float64) float64 {
	switch {
	case difference == 0:
		return 1
	case variance <= 0:
		return 0
	}
	return math.Erfc(math.Abs(difference) / math.Sqrt(2*variance))
}
