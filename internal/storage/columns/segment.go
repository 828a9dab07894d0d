package columns

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// The first bytes, which have the version in their low half.
const (
	segmentTag = 0x11
	groupTag   = 0x21
)

// AppendSegment appends a segment of rows of one device to dst. It panics if there is no
// row or more than MaxRows, if the times are not strictly increasing, or if a row is
// invalid; see [Row].
func AppendSegment(dst []byte, rows []Row) []byte {
	if len(rows) == 0 || len(rows) > MaxRows {
		panic("columns: invalid number of rows")
	}
	if !inOrder(rows) {
		panic("columns: times are not in order")
	}
	start := len(dst)
	first := uint64(rows[0].TimeUnixMs)
	dst = append(dst, segmentTag)
	dst = binary.AppendUvarint(dst, uint64(len(rows)-1))
	dst = binary.AppendUvarint(dst, first)
	dst = binary.AppendUvarint(dst, uint64(rows[len(rows)-1].TimeUnixMs)-first)
	return appendChecksum(appendBody(dst, rows), start)
}

// DecodeSegment appends the rows of the segment b to dst. It allocates only if dst lacks
// the capacity for them. It does not retain b.
//
// It returns an error if the checksum is wrong, if b is not the encoding of valid rows with
// strictly increasing times, or if bytes follow. It accepts encodings of the same rows that
// AppendSegment would not write. With an error, it returns dst unchanged.
func DecodeSegment(b []byte, dst []Row) ([]Row, error) {
	h, r := decodeHeader(b)
	if r.err != nil {
		return dst, r.err
	}
	all, rows := growRows(dst, h.Count)
	rows[0].TimeUnixMs = h.FirstUnixMs
	r.body(rows)
	if err := r.end(); err != nil {
		return dst, err
	}
	if !inOrder(rows) || rows[len(rows)-1].TimeUnixMs != h.LastUnixMs {
		return dst, errTime
	}
	return all, nil
}

// A Header has the properties of a segment as a whole.
type Header struct {
	Count       int
	FirstUnixMs int64 // time of the first row
	LastUnixMs  int64 // time of the last row

	// Gateways has the numbers of all gateways of the rows, in no order and perhaps
	// repeatedly, but never 0.
	Gateways []uint32
}

// SegmentHeader returns the header of the segment b, with the gateways appended to dst. It
// checks the checksum, but does not decode the columns.
func SegmentHeader(b []byte, dst []uint32) (Header, error) {
	h, r := decodeHeader(b)
	h.Gateways = dst
	var column symbolColumn
	column.open(&r, gateways, r.byte()>>(2*gateways)&3)
	add := func(symbols []int64) {
		for _, x := range symbols {
			if n := len(h.Gateways); x != 0 && (n == len(dst) || h.Gateways[n-1] != uint32(x)) {
				h.Gateways = append(h.Gateways, uint32(x))
			}
		}
	}
	if column.form != symbolsPlain {
		add(column.table.symbols[:column.table.n])
	} else {
		var v block
		for n := h.Count; n > 0 && r.err == nil; n -= blockLen {
			k := min(n, blockLen)
			column.next(&r, v[:k])
			add(v[:k])
		}
	}
	if r.err != nil {
		return Header{}, r.err
	}
	return h, nil
}

// decodeHeader decodes a header without gateways. It returns a reader of the body.
func decodeHeader(b []byte) (h Header, r reader) {
	r = checked(b, segmentTag)
	n, first, length := r.uvarint(), r.uvarint(), r.uvarint()
	switch {
	case n >= MaxRows:
		r.fail(errCount)
	case first > 1<<63-1, length > 1<<63-1-first:
		r.fail(errTime)
	}
	return Header{Count: int(n) + 1, FirstUnixMs: int64(first), LastUnixMs: int64(first + length)}, r
}

// inOrder reports whether the times are strictly increasing and not negative.
func inOrder(rows []Row) bool {
	before, ok := int64(-1), true
	for i := range rows {
		ok = ok && rows[i].TimeUnixMs > before
		before = rows[i].TimeUnixMs
	}
	return ok
}

// growRows appends n zero rows to dst, which it also returns alone.
func growRows(dst []Row, n int) (all, added []Row) {
	all = slices.Grow(dst, n)[:len(dst)+n]
	added = all[len(dst):]
	for i := range added {
		added[i].Reset()
	}
	return all, added
}

// appendChecksum appends the checksum of dst from start on.
func appendChecksum(dst []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// checked returns a reader of what is between the tag and the checksum of b.
func checked(b []byte, tag byte) (r reader) {
	n := len(b) - checksumBytes
	switch {
	case n < 1:
		r.fail(errShort)
	case b[0] != tag:
		r.fail(errVersion)
	case binary.LittleEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], castagnoli):
		r.fail(errChecksum)
	default:
		r.b = b[1:n]
	}
	return r
}
