package sim

import "math/bits"

// A random is a stream of numbers that depends on its seed alone, on every
// machine: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, OOPSLA 2014). It is 8 bytes, so that each device has its own.
type random uint64

// newRandom returns stream number n of a seed.
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

// below returns a number from 0 to n-1. n must be above 0.
func (r *random) below(n int64) int64 {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int64(hi)
}

// between returns a number from least to most, both included.
func (r *random) between(least, most int64) int64 { return least + r.below(most-least+1) }

// chance reports true in parts of a million cases.
func (r *random) chance(parts int64) bool { return parts > 0 && r.below(1_000_000) < parts }

// normal returns a number of mean 0 and standard deviation sd, at most 8 sd from
// 0. The sum of 64 fair bits is close to normal; a uniform part fills the gaps
// between its whole numbers.
//
// It is made of whole numbers only: what fused multiplications make of fractions
// differs between machines, and a seed must not.
func (r *random) normal(sd int64) int64 {
	x := int64(bits.OnesCount64(r.next())-32)*256 + int64(r.next()&255) - 128
	return x * sd / 1027 // 1027 is the standard deviation of x
}

// exponentialQuantiles holds the quantiles (i+1/2)/32 of the exponential
// distribution of mean 1,000. Their own mean is 989.
var exponentialQuantiles = [32]int64{
	16, 48, 81, 116, 152, 189, 227, 267, 309, 352, 398, 445, 495, 548, 604, 662,
	725, 792, 863, 940, 1023, 1114, 1214, 1326, 1451, 1594, 1761, 1962, 2213, 2549, 3060, 4159,
}

// exponential returns a number of roughly exponential distribution, its tail cut
// at 4.2 means.
func (r *random) exponential(mean int64) int64 {
	x := r.next()
	return mean * (exponentialQuantiles[x>>59] + int64(x&31) - 15) / 989
}
