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

	var up, around [65]uint8
	for _, x := range v {
		up[bits.Len64(uint64(x-least))]++
	}
	width, n := cheapest(&up, bits.Len64(uint64(most-least)), len(v))
	best := plan{least, width, n + 1 + varintLen(least)}

	mid := typical(v)
	for _, x := range v {
		around[bits.Len64(zigzag(x-mid))]++
	}
	width, n = cheapest(&around, max(bits.Len64(zigzag(least-mid)), bits.Len64(zigzag(most-mid))), len(v))
	base := mid
	if width > 0 {
		base -= 1 << (width - 1)
	}
	if n += 1 + varintLen(base); n < best.bytes {
		best = plan{base, width, n}
	}
	return best
}

// cheapest returns the width at which n integers take the fewest bytes, and these bytes
// without header and base. count has the number of integers by their length in bits, of
// which longest is the greatest.
func cheapest(count *[65]uint8, longest, n int) (width uint, bytes int) {
	bytes = 1 << 30
	exceptions := 0
	for l := longest + 1; l <= 64; l++ { // lengths that wrapped around
		exceptions += int(count[l])
	}
	for w := longest; w >= 0; w-- {
		if w < longest {
			exceptions += int(count[w+1])
		}
		if w > maxWidth {
			continue
		}
		cost := (n*w + 7) / 8
		if 2*exceptions+cost >= bytes {
			if 2*exceptions >= bytes {
				break
			}
			continue
		}
		if exceptions > 0 {
			cost++
			for l := w + 1; l <= longest; l++ {
				cost += int(count[l]) * (1 + (l-w+7)/7)
			}
		}
		if cost < bytes {
			width, bytes = uint(w), cost
		}
	}
	return width, bytes
}

// typical returns the median of a sample of v.
func typical(v []int64) int64 {
	const samples = 15
	var s [samples]int64
	n := min(len(v), samples)
	for i := range n {
		x := v[i*len(v)/n]
		j := i
		for ; j > 0 && s[j-1] > x; j-- {
			s[j] = s[j-1]
		}
		s[j] = x
	}
	return s[n/2]
}

// appendCheaper appends one of two predictions of the same values, whichever takes fewer
// bytes.
func appendCheaper(dst []byte, first, second []int64) []byte {
	p, q := makePlan(first), makePlan(second)
	if q.bytes < p.bytes {
		return appendBlock(append(dst, q.first(second)|blockSecond), second, q)
	}
	return appendBlock(append(dst, p.first(first)), first, p)
}

// appendOnly appends the values of a column with a single predictor.
func appendOnly(dst []byte, v []int64) []byte {
	p := makePlan(v)
	return appendBlock(append(dst, p.first(v)), v, p)
}

// first returns the first byte of a block of v.
func (p plan) first(v []int64) byte {
	var any int64
	for _, x := range v {
		any |= (x - p.base) >> p.width
	}
	if any != 0 {
		return byte(p.width) | blockExceptions
	}
	return byte(p.width)
}

// appendBlock appends a block except for its first byte.
func appendBlock(dst []byte, v []int64, p plan) []byte {
	dst = binary.AppendVarint(dst, p.base)
	w, mask := p.width, uint64(1)<<p.width-1
	exceptions := 0
	var word uint64
	var at uint
	for _, x := range v {
		d := x - p.base
		if d>>w != 0 {
			exceptions++
		}
		low := uint64(d) & mask
		word |= low << at
		if at += w; at >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, word)
			at -= 64
			word = low >> (w - at)
		}
	}
	for ; at > 0; at -= min(at, 8) {
		dst = append(dst, byte(word))
		word >>= 8
	}
	if exceptions == 0 {
		return dst
	}
	dst = append(dst, byte(exceptions))
	for i, x := range v {
		if high := (x - p.base) >> w; high != 0 {
			dst = append(dst, byte(i))
			dst = binary.AppendVarint(dst, high)
		}
	}
	return dst
}

// decodeBlock decodes a block, from its base on, into v. It returns the bytes after it.
func decodeBlock(b []byte, first byte, v []int64) ([]byte, error) {
	w := uint(first & blockWidth)
	if w > maxWidth {
		return nil, errBlock
	}
	base, b, err := varint(b)
	if err != nil {
		return nil, err
	}
	packed := (len(v)*int(w) + 7) / 8
	if len(b) < packed {
		return nil, errShort
	}
	if used := len(v) * int(w) % 8; used > 0 && b[packed-1]>>used != 0 {
		return nil, errBlock
	}
	unpack(v, b, w, base)
	if b = b[packed:]; first&blockExceptions == 0 {
		return b, nil
	}
	if len(b) == 0 {
		return nil, errShort
	}
	n := int(b[0])
	b = b[1:]
	if n == 0 {
		return nil, errBlock
	}
	for last := -1; n > 0; n-- {
		if len(b) == 0 {
			return nil, errShort
		}
		i := int(b[0])
		var high int64
		if high, b, err = varint(b[1:]); err != nil {
			return nil, err
		}
		if i <= last || i >= len(v) || high == 0 {
			return nil, errBlock
		}
		v[i] += high << w
		last = i
	}
	return b, nil
}

// unpack sets each value of v to base plus the next w bits of b.
func unpack(v []int64, b []byte, w uint, base int64) {
	if w == 0 {
		for i := range v {
			v[i] = base
		}
		return
	}
	mask := uint64(1)<<w - 1
	n := 0 // values that a load within b has
	if len(b) >= 8 {
		n = min(len(v), int((uint(len(b)-8)*8+7)/w)+1)
	}
	bit := uint(0)
	for i := range v[:n] {
		v[i] = base + int64(binary.LittleEndian.Uint64(b[bit>>3:])>>(bit&7)&mask)
		bit += w
	}
	for i := n; i < len(v); i++ {
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

// varint decodes an integer that binary.AppendVarint wrote.
func varint(b []byte) (int64, []byte, error) {
	u, b, err := uvarint(b)
	return int64(u>>1) ^ -int64(u&1), b, err
}

// uvarint decodes an integer that binary.AppendUvarint wrote.
func uvarint(b []byte) (uint64, []byte, error) {
	u, n := binary.Uvarint(b)
	switch {
	case n == 0:
		return 0, nil, errShort
	case n < 0, n > 1 && b[n-1] == 0:
		return 0, nil, errVarint
	}
	return u, b[n:], nil
}
