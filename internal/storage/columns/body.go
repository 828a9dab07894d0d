package columns

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/pulsegate/pulsegate/vitals"
)

// maxUTCOffset is the largest valid vitals.UTCOffset as an integer.
const maxUTCOffset = 2*vitals.MaxUTCOffsetMinutes + 1

// buffers are blocks for the two predictions of a column. To zero new ones for each column would take
// longer than to encode a few rows.
type buffers [2]block

// appendBody appends the columns of rows. The time of the first row is known to the decoder.
func appendBody(dst []byte, rows []Row) []byte {
	first := &rows[0]
	union := uint32(0)
	completed := 0 // rows
	var differ [numSymbols]bool
	for i := range rows {
		r := &rows[i]
		present := r.Values.Present()
		if present == 0 || r.UTCOffset < 0 || r.UTCOffset > maxUTCOffset {
			panic("columns: invalid row")
		}
		union |= present
		differ[gateways] = differ[gateways] || r.Gateway != first.Gateway
		differ[offsets] = differ[offsets] || r.UTCOffset != first.UTCOffset
		differ[marks] = differ[marks] || r.marks() != first.marks()
		if r.CompletedMs != 0 {
			completed++
		}
		differ[presence] = differ[presence] || present != first.Values.Present()
	}
	forms := len(dst)
	dst = append(dst, 0)
	var b buffers
	for c := range numSymbols {
		form := byte(symbolsZero)
		if differ[c] {
			dst, form = appendSymbols(dst, c, rows, &b)
		} else if x := c.of(first); x != 0 {
			dst, form = binary.AppendUvarint(dst, uint64(x)), symbolsOne
		}
		dst[forms] |= form << (2 * c)
	}
	dst = appendTimes(dst, rows, &b)
	dst = appendReceipts(dst, rows, &b)
	if completed > 0 {
		dst = appendCompletions(dst, rows, completed, &b)
	}
	var few [MaxRows]vitals.Value
	values := few[:0]
	for ; union != 0; union &= union - 1 {
		values = gather(values, vitals.Sign(bits.TrailingZeros32(union)), rows)
		dst = appendValues(dst, values, &b)
	}
	return dst
}

// appendTimes appends the times of all rows but the first.
func appendTimes(dst []byte, rows []Row, b *buffers) []byte {
	deltas, line := &b[0], &b[1]
	before := rows[0].TimeUnixMs
	for rows = rows[1:]; len(rows) > 0; {
		n := min(len(rows), blockLen)
		mean := (rows[n-1].TimeUnixMs - before) / int64(n)
		step := round(mean, 1000)
		if fine := round(mean, 50); fine != step && spread(rows[:n], fine) < spread(rows[:n], step) {
			step = fine
		}
		t, onLine := before, before
		for i := range rows[:n] {
			onLine += step
			deltas[i], line[i] = rows[i].TimeUnixMs-t, rows[i].TimeUnixMs-onLine
			t = rows[i].TimeUnixMs
		}
		p, q := makePlan(deltas[:n]), makePlan(line[:n])
		if q.bytes+varintLen(step) < p.bytes {
			at := len(dst)
			dst = binary.AppendVarint(append(dst, blockSecond), step)
			dst = appendBlock(dst, at, line[:n], q)
		} else {
			dst = appendBlock(append(dst, 0), len(dst), deltas[:n], p)
		}
		before = t
		rows = rows[n:]
	}
	return dst
}

// round returns x rounded to a multiple of unit.
func round(x, unit int64) int64 {
	if x < 0 {
		return (x - unit/2) / unit * unit
	}
	return (x + unit/2) / unit * unit
}

// spread returns the difference between the greatest and the least distance of the times
// from a line with the step.
func spread(rows []Row, step int64) uint64 {
	least := rows[0].TimeUnixMs
	most := least
	onLine := int64(0)
	for i := range rows {
		x := rows[i].TimeUnixMs - onLine
		least, most = min(least, x), max(most, x)
		onLine += step
	}
	return uint64(most - least)
}

// appendReceipts appends the times of receipt.
func appendReceipts(dst []byte, rows []Row, b *buffers) []byte {
	lags, deltas := &b[0], &b[1]
	before := rows[0].TimeUnixMs
	for len(rows) > 0 {
		n := min(len(rows), blockLen)
		for i := range rows[:n] {
			r := &rows[i]
			lags[i], deltas[i] = r.ReceivedUnixMs-r.TimeUnixMs, r.ReceivedUnixMs-before
			before = r.ReceivedUnixMs
		}
		dst = appendCheaper(dst, lags[:n], deltas[:n])
		rows = rows[n:]
	}
	return dst
}

// appendCompletions appends the completions of the n rows that have one.
func appendCompletions(dst []byte, rows []Row, n int, b *buffers) []byte {
	before := int64(0)
	for n > 0 {
		k := min(n, blockLen)
		direct, deltas := b[0][:k], b[1][:k]
		for i := 0; i < k; rows = rows[1:] {
			if x := rows[0].CompletedMs; x != 0 {
				direct[i], deltas[i] = x, x-before
				before = x
				i++
			}
		}
		dst = appendCheaper(dst, direct, deltas)
		n -= k
	}
	return dst
}

// gather returns the values of s, in the memory of values if there is enough.
func gather(values []vitals.Value, s vitals.Sign, rows []Row) []vitals.Value {
	values = slices.Grow(values[:0], len(rows))[:len(rows)]
	bit, n := uint32(1)<<s, 0
	for i := range rows {
		v := &rows[i].Values
		if values[n], _ = v.Get(s); v.Present()&bit != 0 {
			n++
		}
	}
	return values[:n]
}

// appendValues appends the values of a sign.
func appendValues(dst []byte, values []vitals.Value, b *buffers) []byte {
	d := makeDivisor(values)
	dst = binary.AppendUvarint(dst, d.n)
	before := int64(0)
	for len(values) > 0 {
		n := min(len(values), blockLen)
		direct, deltas := b[0][:n], b[1][:n]
		for i, v := range values[:n] {
			x := d.quotient(v)
			direct[i], deltas[i] = x, x-before
			before = x
		}
		dst = appendCheaper(dst, direct, deltas)
		values = values[n:]
	}
	return dst
}

// A divisor is the greatest common divisor of values. It divides without a division: for x and n of 32 bits, the upper
// half of the product of x and 2^64/n, rounded up, is x/n, and the lower half is below 2^64/n if nothing remains (D.
// Lemire, O. Kaser and N. Kurz: Faster remainder by direct computation, 2019, section 3).
type divisor struct{ n, inverse uint64 } // inverse is 0 if n is 1

// makeDivisor returns the greatest common divisor of values, or 1 if all are 0.
func makeDivisor(values []vitals.Value) (d divisor) {
	for _, v := range values {
		x := magnitude(v)
		if d.n != 0 && x*d.inverse <= d.inverse-1 {
			continue
		}
		for x != 0 {
			d.n, x = x, d.n%x
		}
		if d.n != 0 {
			d.inverse = math.MaxUint64/d.n + 1
		}
	}
	d.n = max(d.n, 1)
	return d
}

// quotient returns v divided by d, which divides it.
func (d divisor) quotient(v vitals.Value) int64 {
	if d.inverse == 0 {
		return int64(v)
	}
	x, _ := bits.Mul64(magnitude(v), d.inverse)
	sign := int64(v) >> 63
	return int64(x) ^ sign - sign
}

// magnitude returns the absolute value of v.
func magnitude(v vitals.Value) uint64 {
	sign := int64(v) >> 63
	return uint64(int64(v) ^ sign - sign)
}

// body decodes the columns that appendBody wrote into rows, which are zero but for the
// time of the first.
func (r *reader) body(rows []Row) {
	forms := r.byte()
	var counts counts
	for c := range numSymbols {
		r.symbols(c, forms>>(2*c)&3, rows, &counts)
	}
	r.times(rows)
	r.receipts(rows)
	if counts.completed > 0 && r.err == nil {
		r.completions(counts.completed, rows)
	}
	for s := range vitals.Sign(vitals.MaxSigns) {
		if n := counts.of(s); n > 0 && r.err == nil {
			r.values(s, n, rows)
		}
	}
}

// counts has the number of completed rows, and those of rows by presence, for the first presences, and by each sign of
// others.
type counts struct {
	completed int
	table     table
	rows      [maxTable]int
	signs     [vitals.MaxSigns]int
}

func (c *counts) add(present uint32) {
	if i, ok := c.table.find(int64(present)); ok {
		c.rows[i]++
		return
	}
	for ; present != 0; present &= present - 1 {
		c.signs[bits.TrailingZeros32(present)]++
	}
}

// of returns the number of rows that have s.
func (c *counts) of(s vitals.Sign) int {
	n := c.signs[s]
	for i, present := range c.table.symbols[:c.table.n] {
		if present>>s&1 != 0 {
			n += c.rows[i]
		}
	}
	return n
}

// symbols decodes a column of symbols into rows. It counts the rows by presence, and the completed ones.
func (r *reader) symbols(c symbols, form byte, rows []Row, counts *counts) {
	var column symbolColumn
	if column.open(r, c, form); form == symbolsZero {
		return
	}
	var v block
	for len(rows) > 0 && r.err == nil {
		n := min(len(rows), blockLen)
		if column.next(r, v[:n]); r.err != nil {
			return
		}
		for i := range rows[:n] {
			row, x := &rows[i], v[i]
			switch c {
			case gateways:
				row.Gateway = uint32(x)
			case offsets:
				row.UTCOffset = vitals.UTCOffset(x)
			case marks:
				row.Shared = x&markShared != 0
				row.CompletedMs = x & markCompleted // until it is decoded
				counts.completed += int(x) / markCompleted
			case presence:
				if x == 0 {
					r.fail(errSymbols)
					return
				}
				counts.add(uint32(x))
				row.Values.SetPresent(uint32(x))
			}
		}
		rows = rows[n:]
	}
}

// times decodes the times of all rows but the first.
func (r *reader) times(rows []Row) {
	var v block
	before := rows[0].TimeUnixMs
	for rows = rows[1:]; len(rows) > 0 && r.err == nil; {
		n := min(len(rows), blockLen)
		step := int64(0)
		if onLine := r.block(v[:n], &step); onLine {
			for i, x := range v[:n] {
				before += step
				rows[i].TimeUnixMs = before + x
			}
			before = rows[n-1].TimeUnixMs
		} else {
			for i, x := range v[:n] {
				before += x
				rows[i].TimeUnixMs = before
			}
		}
		rows = rows[n:]
	}
}

// receipts decodes the times of receipt.
func (r *reader) receipts(rows []Row) {
	var v block
	before := rows[0].TimeUnixMs
	for len(rows) > 0 && r.err == nil {
		n := min(len(rows), blockLen)
		if deltas := r.block(v[:n], nil); deltas {
			for i, x := range v[:n] {
				before += x
				rows[i].ReceivedUnixMs = before
			}
		} else {
			for i, x := range v[:n] {
				rows[i].ReceivedUnixMs = rows[i].TimeUnixMs + x
			}
			before = rows[n-1].ReceivedUnixMs
		}
		rows = rows[n:]
	}
}

// completions decodes the completions of the n rows that have one.
func (r *reader) completions(n int, rows []Row) {
	var v block
	before := int64(0)
	for ; n > 0 && r.err == nil; n -= blockLen {
		k := min(n, blockLen)
		deltas := r.block(v[:k], nil)
		for i := 0; i < k && r.err == nil; rows = rows[1:] {
			if rows[0].CompletedMs == 0 {
				continue
			}
			x := v[i]
			if deltas {
				x += before
			}
			if x == 0 {
				r.fail(errCompletion)
			}
			rows[0].CompletedMs, before = x, x
			i++
		}
	}
}

// values decodes the n values of s into the rows that have it.
func (r *reader) values(s vitals.Sign, n int, rows []Row) {
	const bias, width = -math.MinInt32, 32
	u := r.uvarint()
	if u == 0 || u > bias {
		r.fail(errValue)
	}
	d := int64(u)
	var v block
	before, all := int64(0), n == len(rows)
	for ; n > 0 && r.err == nil; n -= blockLen {
		k := min(n, blockLen)
		deltas := r.block(v[:k], nil)
		if r.err != nil {
			return
		}
		outside := uint64(0)
		for j, x := range v[:k] {
			if deltas {
				x += before
			}
			before = x
			v[j] = x * d
			outside |= uint64(x+bias)>>width | uint64(x*d+bias)>>width
		}
		if outside != 0 {
			r.fail(errValue)
			return
		}
		if all {
			for j, x := range v[:k] {
				rows[j].Values.Set(s, vitals.Value(x))
			}
			rows = rows[k:]
			continue
		}
		for j := 0; j < k; {
			if row := &rows[0]; row.Values.Has(s) {
				row.Values.Set(s, vitals.Value(v[j]))
				j++
			}
			rows = rows[1:]
		}
	}
}
