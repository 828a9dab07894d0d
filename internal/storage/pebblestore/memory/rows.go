package memory

import (
	"slices"
	"sort"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

// A windowRows holds the rows of a window, in the order in which they were added.
type windowRows struct {
	n          int
	chunks     [][]windowRow    // of windowChunkRows each
	values     [][]vitals.Value // of windowChunkValues each; the rows' values, and completions in two each
	valuesUsed int              // of the last of these
}

// A windowRow is a row whose values are in the window's values.
type windowRow struct {
	timeUnixMs     int64
	receivedUnixMs int64
	present        uint32 // bit s is set if the row has a value of sign s
	values         uint32 // place of the first of the values, which are in the order of their signs
	gateway        uint32
	utcOffset      vitals.UTCOffset
	shared         bool
	completed      bool // columns.Row.CompletedMs, which most rows do not have, follows the values
}

// completionValues is the number of values that a completion takes.
const completionValues = 2

// at returns a row by its number.
func (w *windowRows) at(i uint32) *windowRow {
	return &w.chunks[i/windowChunkRows][i%windowChunkRows]
}

// unpack makes dst a row with its values.
func (w *windowRows) unpack(dst *columns.Row, r *windowRow) {
	dst.TimeUnixMs, dst.ReceivedUnixMs, dst.Gateway, dst.UTCOffset, dst.Shared = r.timeUnixMs, r.receivedUnixMs, r.gateway,
		r.utcOffset, r.shared
	values := w.values[r.values/windowChunkValues][r.values%windowChunkValues:]
	dst.Values.Unpack(r.present, values)
	dst.CompletedMs = 0
	if r.completed {
		after := values[dst.Values.Len():]
		dst.CompletedMs = int64(after[0])<<32 | int64(uint32(after[1]))
	}
}

// appendTo appends a row with its values to dst.
func (w *windowRows) appendTo(dst []columns.Row, r *windowRow) []columns.Row {
	n := len(dst)
	dst = slices.Grow(dst, 1)[:n+1]
	w.unpack(&dst[n], r)
	return dst
}

// add adds a row and returns its number.
func (w *windowRows) add(r *columns.Row) uint32 {
	i := uint32(w.n)
	if i%windowChunkRows == 0 {
		w.chunks = append(w.chunks, make([]windowRow, windowChunkRows))
	}
	w.n++
	values, completed := r.Values.Len(), r.CompletedMs != 0
	if completed {
		values += completionValues
	}
	if len(w.values) == 0 || w.valuesUsed+values > windowChunkValues {
		w.values = append(w.values, make([]vitals.Value, windowChunkValues))
		w.valuesUsed = 0
	}
	last, at := len(w.values)-1, w.valuesUsed
	r.Values.Pack(w.values[last][at:])
	if completed {
		after := w.values[last][at+values-completionValues:]
		after[0], after[1] = vitals.Value(r.CompletedMs>>32), vitals.Value(r.CompletedMs)
	}
	w.valuesUsed += values
	*w.at(i) = windowRow{r.TimeUnixMs, r.ReceivedUnixMs, r.Values.Present(), uint32(last*windowChunkValues + at),
		r.Gateway, r.UTCOffset, r.Shared, completed}
	return i
}

// from returns the position of the first number whose row is not before timeUnixMs.
func (w *windowRows) from(index []uint32, timeUnixMs int64) int {
	return sort.Search(len(index), func(i int) bool { return w.at(index[i]).timeUnixMs >= timeUnixMs })
}

// after returns the position of the first number whose row is after timeUnixMs.
func (w *windowRows) after(index []uint32, timeUnixMs int64) int {
	return sort.Search(len(index), func(i int) bool { return w.at(index[i]).timeUnixMs > timeUnixMs })
}

// bytes returns the memory of the rows and their values.
func (w *windowRows) bytes() int {
	return w.n*windowRowBytes + (max(len(w.values)-1, 0)*windowChunkValues+w.valuesUsed)*windowValueBytes
}
