package columns

import (
	"encoding/binary"
	"math/bits"
)

const (
	blockLen = 128 // values of a block
	maxWidth = 56  // an unaligned 64-bit load has any value of that many bits

	// Bits of a block's first byte, above the width.
	blockExceptions = 0x40
	blockSecond     = 0x80 // predicted with the second predictor of its column
	blockWidth      = 0x3f
)

// A block has up to blockLen integers.
type block [blockLen]int64

// A plan is the cheapest way found to write a block.
type plan struct {
	base  int64
	width uint
	bytes int // expected length
}

// makePlan returns the plan for v. It considers two windows of the width of each power of
// two: from the smallest value up, and around a typical one.
func makePlan(v []int64) plan {
	least, most := v[0], v[0]
	for _, x := range v[1:] {
		least, most = min(least, x), max(most, x)
	}
	if least == most {
		return plan{base: least, bytes: 1 + varintLen(least)}
	}

	mid := typical(v)
	var up, around lengths
	for _, x := range v {
		up[bits.Len64(uint64(x-least))]++
		around[bits.Len64(zigzag(x-mid))]++
	}
	longest := bits.Len64(uint64(most - least))
	width, n := cheapest(&up, longest, len(v))
	best := plan{least, width, n + 1 + varintLen(least)}

	// Distances from mid are below twice those from least, unless they overflow.
	width, n = cheapest(&around, min(longest+1, 64), len(v))
	base := mid
	if width > 0 {
		base -= 1 << (width - 1)
	}
	if n += 1 + varintLen(base); n < best.bytes {
		best = plan{base, width, n}
	}
	return best
}

// A lengths has the numbers of integers by their length in bits.
type lengths [65]uint8

// cheapest returns the width at which n integers take the fewest bytes, and these bytes
// without header and base. longest is an upper bound of their lengths.
func cheapest(count *lengths, longest, n int) (width uint, bytes int) {
	// atLeast has the number of integers by their least length. A varint of an integer whose
	// high bits are h has one byte, and one more for each full 7 bits of h and the sign; more
	// has the sum of the latter, for widths instead of integers.
	var atLeast, more [65 + 7]uint16
	bytes = 1 << 30
	for w := longest; w >= 0; w-- {
		atLeast[w] = atLeast[w+1] + uint16(count[w])
		more[w] = atLeast[w+7] + more[w+7]
		exceptions := int(atLeast[w+1])
		if 2*exceptions >= bytes {
			break
		}
		cost := (n*w + 7) / 8
		if exceptions > 0 {
			cost += 1 + 2*exceptions + int(more[w])
		}
		if cost < bytes && w <= maxWidth {
			width, bytes = uint(w), cost
		}
	}
	return width, bytes
}

// typical returns a value near the median of v: the median of the medians of three times
// three values.
func typical(v []int64) int64 {
	at := func(i int) int64 { return v[i*(len(v)-1)/8] }
	return median(median(at(0), at(3), at(6)), median(at(1), at(4), at(7)), median(at(2), at(5), at(8)))
}

func median(a, b, c int64) int64 { return max(min(a, b), min(max(a, b), c)) }

// appendCheaper appends one of two predictions of the same values, whichever takes fewer
// bytes.
func appendCheaper(dst []byte, first, second []int64) []byte {
	p, q := makePlan(first), makePlan(second)
	if q.bytes < p.bytes {
		return appendBlock(append(dst, blockSecond), len(dst), second, q)
	}
	return appendBlock(append(dst, 0), len(dst), first, p)
}

// appendBlock appends a block except for its first byte, which is dst[at] and to which it
// adds the width.
func appendBlock(dst []byte, at int, v []int64, p plan) []byte {
	w, mask := p.width&63, uint64(1)<<p.width-1
	dst[at] |= byte(w)
	dst = binary.AppendVarint(dst, p.base)
	var word uint64
	var used uint
	var high int64
	for _, x := range v {
		d := x - p.base
		high |= d >> w
		low := uint64(d) & mask
		word |= low << (used & 63)
		if used += w; used >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, word)
			used -= 64
			word = low >> ((w - used) & 63)
		}
	}
	for i := uint(0); i < used; i += 8 {
		dst = append(dst, byte(word>>(i&63)))
	}
	if high == 0 {
		return dst
	}
	dst[at] |= blockExceptions
	count := len(dst)
	dst = append(dst, 0)
	for i, x := range v {
		if high := (x - p.base) >> w; high != 0 {
			dst[count]++
			dst = append(dst, byte(i))
			dst = binary.AppendVarint(dst, high)
		}
	}
	return dst
}

// unpack sets each value of v to base plus the next w bits of b.
func unpack(v []int64, b []byte, w uint, base int64) {
	if w == 0 {
		for i := range v {
			v[i] = base
		}
		return
	}
	w &= 63 // spares the shifts a comparison
	mask := uint64(1)<<w - 1
	n := 0 // values at which a load of 64 bits is within b
	if len(b) >= 8 {
		n = min(len(v), int((uint(len(b)-8)*8+7)/w)+1)
	}
	i, bit := 0, uint(0)
	if w <= 16 { // a load has four values: with 15 bits, they begin at bit 0 or 4 of a byte
		for ; i < n && i+4 <= len(v); i += 4 {
			x := binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7)
			four := v[i : i+4 : i+4]
			four[0] = base + int64(x&mask)
			four[1] = base + int64(x>>w&mask)
			four[2] = base + int64(x>>(2*w&63)&mask)
			four[3] = base + int64(x>>(3*w&63)&mask)
			bit += 4 * w
		}
	}
	for ; i < n; i++ {
		v[i] = base + int64(binary.LittleEndian.Uint64(b[bit>>3:])>>(bit&7)&mask)
		bit += w
	}
	for ; i < len(v); i++ {
		var last [8]byte
		copy(last[:], b[bit>>3:])
		v[i] = base + int64(binary.LittleEndian.Uint64(last[:])>>(bit&7)&mask)
		bit += w
	}
}

// zigzag maps integers of small magnitude to small ones, like the varints of
// encoding/binary.
func zigzag(x int64) uint64 { return uint64(x)<<1 ^ uint64(x>>63) }

// varintLen returns the length of x as a varint.
func varintLen(x int64) int { return (bits.Len64(zigzag(x)|1) + 6) / 7 }
