package columns

import (
	"encoding/binary"
	"slices"
)

// How a column of symbols is written.
const (
	symbolsZero  = 0 // all are 0
	symbolsOne   = 1 // all are equal: the symbol
	symbolsTable = 2 // a table of the symbols, and for each row its position in it
	symbolsPlain = 3 // the symbols as integers
)

// maxTable is the maximum length of a table of symbols.
const maxTable = 32

// A symbols is a column with few distinct values: in most segments there is one.
type symbols uint8

// The columns of symbols, in their order.
const (
	gateways symbols = iota
	offsets
	marks
	presence

	numSymbols
)

// limits has the largest symbol of each column. It is never modified.
var limits = [numSymbols]uint64{gateways: 1<<32 - 1, offsets: maxUTCOffset, marks: markShared | markCompleted,
	presence: 1<<32 - 1}

// of returns r's symbol.
func (c symbols) of(r *Row) int64 {
	switch c {
	case gateways:
		return int64(r.Gateway)
	case offsets:
		return int64(r.UTCOffset)
	case marks:
		return r.marks()
	default:
		return int64(r.Values.Present())
	}
}

// The bits of a row's marks.
const (
	markShared    = 1
	markCompleted = 2 // it has a CompletedMs
)

func (r *Row) marks() (x int64) {
	if r.Shared {
		x = markShared
	}
	if r.CompletedMs != 0 {
		x |= markCompleted
	}
	return x
}

// A table has the distinct symbols of a column, in the order of their first rows.
type table struct {
	symbols [maxTable]int64
	n       int
	hints   [64]uint8 // by the low bits of a symbol that was found last: its position, plus 1
}

// find returns the position of symbol, which it adds if it is new. It returns false if the
// table is full.
func (t *table) find(symbol int64) (int64, bool) {
	hint := &t.hints[uint64(symbol)%uint64(len(t.hints))]
	if i := int64(*hint) - 1; i >= 0 && t.symbols[i] == symbol {
		return i, true
	}
	i := slices.Index(t.symbols[:t.n], symbol)
	if i < 0 {
		if t.n == maxTable {
			return 0, false
		}
		i = t.n
		t.symbols[i] = symbol
		t.n++
	}
	*hint = uint8(i + 1)
	return int64(i), true
}

// fill makes t the table of the column. It returns false if there are too many symbols.
func (t *table) fill(c symbols, rows []Row) bool {
	last := int64(-1)
	for i := range rows {
		if symbol := c.of(&rows[i]); symbol != last {
			if _, ok := t.find(symbol); !ok {
				return false
			}
			last = symbol
		}
	}
	return true
}

// appendSymbols appends a column of different symbols, and returns how it was written.
func appendSymbols(dst []byte, c symbols, rows []Row, b *buffers) ([]byte, byte) {
	var t table
	form := byte(symbolsPlain)
	if t.fill(c, rows) {
		form = symbolsTable
		dst = append(dst, byte(t.n))
		for _, x := range t.symbols[:t.n] {
			dst = binary.AppendUvarint(dst, uint64(x))
		}
	}
	direct, delta := &b[0], &b[1]
	before := int64(0)
	for len(rows) > 0 {
		n := min(len(rows), blockLen)
		for i := range rows[:n] {
			x := c.of(&rows[i])
			if form == symbolsTable {
				x, _ = t.find(x)
			}
			direct[i], delta[i] = x, x-before
			before = x
		}
		dst = appendCheaper(dst, direct[:n], delta[:n])
		rows = rows[n:]
	}
	return dst, form
}

// A symbolColumn reads a column of symbols.
type symbolColumn struct {
	form   byte
	table  table // of symbolsOne and symbolsTable
	limit  uint64
	before int64
}

// open reads what comes before the rows' symbols.
func (s *symbolColumn) open(r *reader, c symbols, form byte) {
	s.form, s.limit = form, limits[c]
	n := 0
	switch form {
	case symbolsOne:
		n = 1
	case symbolsTable:
		if n = int(r.byte()); n < 2 || n > maxTable {
			r.fail(errSymbols)
			return
		}
	}
	for i := range n {
		u := r.uvarint()
		if u > s.limit {
			r.fail(errSymbols)
		}
		s.table.symbols[i] = int64(u)
	}
	s.table.n = n
	if form == symbolsOne && s.table.symbols[0] == 0 || form == symbolsZero && c == presence {
		r.fail(errSymbols)
	}
}

// next decodes the symbols of the next rows into v, of at most blockLen. If all rows have the same
// one, no block follows.
func (s *symbolColumn) next(r *reader, v []int64) {
	if s.form <= symbolsOne {
		for i := range v {
			v[i] = s.table.symbols[0]
		}
		return
	}
	second := r.block(v, nil)
	limit := s.limit
	if s.form == symbolsTable {
		limit = uint64(s.table.n - 1)
	}
	for i, x := range v {
		if second {
			x += s.before
		}
		s.before = x
		if uint64(x) > limit {
			r.fail(errSymbols)
			return
		}
		if s.form == symbolsTable {
			x = s.table.symbols[x]
		}
		v[i] = x
	}
}
