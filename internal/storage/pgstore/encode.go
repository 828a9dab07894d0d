package pgstore

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// An array is a parameter in the binary format of PostgreSQL's arrays, which is filled element
// by element. Encoding it here costs a fraction of what the general encoders of pgx cost for
// each reading.
type array struct {
	buf   []byte
	n     int32
	nulls bool
}

// arrayHead is the length of an array's head: dimensions, whether there are nulls, the type of
// the elements, and for the one dimension its length and lower bound.
const arrayHead = 20

// reset empties a.
func (a *array) reset() {
	a.buf = append(a.buf[:0], make([]byte, arrayHead)...)
	a.n, a.nulls = 0, false
}

func (a *array) null() {
	a.n++
	a.nulls = true
	a.buf = binary.BigEndian.AppendUint32(a.buf, 0xFFFFFFFF)
}

func (a *array) int16(v int16) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, 2)
	a.buf = binary.BigEndian.AppendUint16(a.buf, uint16(v))
}

func (a *array) int32(v int32) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, 4)
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(v))
}

func (a *array) bool(v bool) {
	a.n++
	a.buf = append(a.buf, 0, 0, 0, 1, 0)
	if v {
		a.buf[len(a.buf)-1] = 1
	}
}

func (a *array) int64(v int64) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, 8)
	a.buf = binary.BigEndian.AppendUint64(a.buf, uint64(v))
}

func (a *array) name(n *vitals.Name) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(n.Len()))
	a.buf = n.AppendTo(a.buf)
}

// bytes returns the parameter: an array of elements of type oid. It is valid until reset.
func (a *array) bytes(oid uint32) []byte {
	h := a.buf[:arrayHead]
	binary.BigEndian.PutUint32(h[0:], 1)
	binary.BigEndian.PutUint32(h[4:], 0)
	if a.nulls {
		binary.BigEndian.PutUint32(h[4:], 1)
	}
	binary.BigEndian.PutUint32(h[8:], oid)
	binary.BigEndian.PutUint32(h[12:], uint32(a.n))
	binary.BigEndian.PutUint32(h[16:], 1)
	return a.buf
}

// Types of the elements of parameters of the statements that the lanes send. settleTypes are followed by those of
// signs.
var (
	settleTypes = [...]uint32{pgtype.TextOID, pgtype.Int8OID, pgtype.Int8OID, pgtype.Int2OID, pgtype.BoolOID,
		pgtype.TextOID, pgtype.Int8OID}
	findTypes = [...]uint32{pgtype.TextOID, pgtype.Int8OID}
)

// A params holds the parameters of one statement.
type params struct {
	arrays []array
	values [][]byte
}

// reset empties p, and gives it n parameters.
func (p *params) reset(n int) {
	p.arrays = slices.Grow(p.arrays[:0], n)[:n]
	for i := range p.arrays {
		p.arrays[i].reset()
	}
}

// rows returns the number of elements of the arrays.
func (p *params) rows() int { return int(p.arrays[0].n) }

// encode returns the parameters; types has the types of their elements.
func (p *params) encode(types []uint32) [][]byte {
	p.values = p.values[:0]
	for i, oid := range types {
		p.values = append(p.values, p.arrays[i].bytes(oid))
	}
	return p.values
}

// binaryFormat requests and declares the binary format for all values.
var binaryFormat = []int16{1}

// Lengths of the columns that are decoded here, in bytes: text has any, and those that may be NULL
// have the complement.
const (
	text      = 0
	nullText  = ^0
	nullInt16 = ^2
	nullInt64 = ^8
)

var (
	settledSizes    = []int{text, 8}
	generationSizes = []int{8, 1, 4}
	recordSizes     = []int{8, 8, nullInt16, 1, nullText, nullInt64} // and signs
)

// checkSizes returns an error if the values of a row do not have these lengths: somebody has changed
// a table, or the server is another program.
func checkSizes(row [][]byte, sizes []int) error {
	ok := len(row) == len(sizes)
	for i := 0; ok && i < len(row); i++ {
		size := sizes[i]
		switch {
		case row[i] == nil:
			ok = size < 0
		default:
			size = max(size, ^size)
			ok = size == text || len(row[i]) == size
		}
	}
	if !ok {
		return errTypes
	}
	return nil
}

var errTypes = fmt.Errorf("%w: PostgreSQL returned values of other types than the schema has", storage.ErrCorrupt)

func decodeInt16(b []byte) int16 { return int16(binary.BigEndian.Uint16(b)) }
func decodeInt32(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
func decodeInt64(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
