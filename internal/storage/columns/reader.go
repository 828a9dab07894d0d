package columns

import "encoding/binary"

// A reader decodes integers and blocks, one after the other. After its first error it has no bytes
// left, and returns zeros.
type reader struct {
	b   []byte
	err error
}

// fail notes an error, unless there is one.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

// take returns the next n bytes, or nil if there are fewer.
func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.fail(errShort)
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	x := r.b[0]
	r.b = r.b[1:]
	return x
}

// uvarint decodes an integer that binary.AppendUvarint wrote.
func (r *reader) uvarint() uint64 {
	u, n := binary.Uvarint(r.b)
	switch {
	case n == 0:
		r.fail(errShort)
		return 0
	case n < 0, n > 1 && r.b[n-1] == 0:
		r.fail(errVarint)
		return 0
	}
	r.b = r.b[n:]
	return u
}

// varint decodes an integer that binary.AppendVarint wrote.
func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// end returns the first error, or one if bytes are left.
func (r *reader) end() error {
	if len(r.b) > 0 {
		return errLong
	}
	return r.err
}

// block decodes a block into v, and reports whether it has the second prediction. If step is not
// nil, such a block has a step, which it sets.
func (r *reader) block(v []int64, step *int64) (second bool) {
	first := r.byte()
	second = first&blockSecond != 0
	if second && step != nil {
		*step = r.varint()
	}
	w := uint(first & blockWidth)
	if w > maxWidth {
		r.fail(errBlock)
	}
	base := r.varint()
	rest := r.b
	packed := r.take((len(v)*int(w) + 7) / 8)
	if r.err != nil {
		return second
	}
	if used := len(v) * int(w) % 8; used > 0 && packed[len(packed)-1]>>used != 0 {
		r.fail(errBlock)
		return second
	}
	unpack(v, rest, w, base)
	if first&blockExceptions == 0 {
		return second
	}
	n := int(r.byte())
	if n == 0 {
		r.fail(errBlock)
	}
	for last := -1; n > 0; n-- {
		i := int(r.byte())
		high := r.varint()
		if i <= last || i >= len(v) || high == 0 {
			r.fail(errBlock)
			return second
		}
		v[i] += high << w
		last = i
	}
	return second
}
