package reply

import (
	"strconv"
	"strings"
)

// smallInts is the number of integers with precomputed texts: 0 to smallInts-1. It
// covers the Content-Length of most API answers and every Retry-After up to an hour.
const smallInts = 4096

// Value returns a header value that can be prepared once and set often:
//
//	noStore := reply.Value("no-store")            // at start
//	w.Header()["Cache-Control"] = noStore         // per request
//
// The key must be in canonical form. The slice must not be modified; any number of
// headers may share it. Value panics if s is not a valid field value.
func Value(s string) []string {
	mustFieldValue(s)
	return bucket(s)
}

// IntValue returns n in decimal as a header value. For 0 to 4,095 it does not allocate,
// because the slices are precomputed. The slice must not be modified.
func IntValue(n int) []string {
	if uint(n) < smallInts {
		return intTable[n : n+1 : n+1]
	}
	return bucket(strconv.Itoa(n))
}

// bucket returns a slice with only s and no spare capacity, so that an append copies
// it.
func bucket(s string) []string {
	return []string{s}[:1:1]
}

// intTable has the decimal texts of the small integers. It is never modified after its
// initialization, which takes about 30 µs and 80 KiB.
var intTable = newIntTable()

func newIntTable() *[smallInts]string {
	// All texts share one string, so that the table is two objects instead of four
	// thousand.
	var all strings.Builder
	all.Grow(4 * smallInts)
	var digits [4]byte
	table := new([smallInts]string)
	for n := range table {
		from := all.Len()
		all.Write(strconv.AppendInt(digits[:0], int64(n), 10))
		table[n] = all.String()[from:]
	}
	return table
}
