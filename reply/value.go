package reply

import (
	"strconv"
	"strings"
)

// smallInts is the number of integers whose texts are kept: 0 to smallInts-1.
// It covers the Content-Length of most answers of an API and every Retry-After
// up to an hour.
const smallInts = 4096

// Value makes a header value, to be prepared once and set often:
//
//	noStore := reply.Value("no-store")            // at start
//	w.Header()["Cache-Control"] = noStore         // per request
//
// The key must be in canonical form. The slice must not be modified; any number
// of headers may hold it at the same time, and for as long as they like. Value
// panics if s is not a valid field value.
func Value(s string) []string {
	mustFieldValue(s)
	return bucket(s)
}

// IntValue returns n in decimal as a header value. From 0 to 4,095 it does not
// allocate: the slice comes from a table that is never written again. Others are
// made anew. The slice must not be modified.
func IntValue(n int) []string {
	if uint(n) < smallInts {
		return intTable[n : n+1 : n+1]
	}
	return bucket(strconv.Itoa(n))
}

// bucket returns a slice that has room for s only: an append to it copies.
func bucket(s string) []string {
	return []string{s}[:1:1]
}

// intTable holds the decimal texts of the small integers. It is never written
// after its initialization, which takes some 30 µs and 80 KiB.
var intTable = newIntTable()

func newIntTable() *[smallInts]string {
	// One string holds all digits, so that the table is two objects and not four
	// thousand.
	var all strings.Builder
	all.Grow(4 * smallInts)
	var digits [4]byte
	table := new([smallInts]string)
	for n := range table {
		from := all.Len()
		all.Write(AppendInt(digits[:0], int64(n)))
		table[n] = all.String()[from:]
	}
	return table
}
