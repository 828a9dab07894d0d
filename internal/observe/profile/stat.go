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
