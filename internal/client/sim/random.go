package sim

import "math/bits"

// A random is a pseudorandom number generator whose output depends only on its seed, on
// every machine: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, OOPSLA 2014). It has only 8 bytes, so that each device can have its own.
type random uint64

// newRandom returns the n-th stream of a seed.
func newRandom(seed, n uint64) random {
	r := random(seed)
	r ^= random(n * 0xd1342543de82ef95)
	return random(r.next())
}

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to n-1. n must be positive.
func (r *random) below(n int64) int64 {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int64(hi)
}

// between returns a number from least to most, inclusive.
func (r *random) between(least, most int64) int64 { return least + r.below(most-least+1) }

// chance returns true with a probability of parts per million.
func (r *random) chance(parts int64) bool { return parts > 0 && r.below(1_000_000) < parts }

// normal returns an approximately normal number with mean 0 and standard deviation sd.
// It is the sum of 64 random bits plus a uniform fraction, so it is at most 8 sd from 0.
//
// It uses only integers: floating-point results may differ between machines with and
// without fused multiply-add, but a seed must give the same numbers everywhere.
func (r *random) normal(sd int64) int64 {
	x := int64(bits.OnesCount64(r.next())-32)*256 + int64(r.next()&255) - 128
	return x * sd / 1027 // 1027 is the standard deviation of x
}
