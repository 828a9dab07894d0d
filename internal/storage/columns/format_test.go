package columns_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

// heartRates returns a row for each of the times, received 1 ms later, with the heart rate 60.
func heartRates(times ...int64) (rows []columns.Row) {
	for _, t := range times {
		r := columns.Row{TimeUnixMs: t, ReceivedUnixMs: t + 1}
		r.Values.Set(vitals.HeartRate, 60_00)
		rows = append(rows, r)
	}
	return rows
}

// sealed returns the bytes of parts, of hexadecimal digits and spaces, with a checksum.
func sealed(t *testing.T, parts ...string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
	try(t, err)
	b = append(b, 0, 0, 0, 0)
	seal(b)
	return b
}

// An example by the package comment.
//
//	segment: rows-1 2, time 10, last-time 11; presence 0x08;
//	times 5, 6; lags 1; divisor 6000, values 1
const (
	exampleHead     = "11 02 0a 0b"
	exampleSymbols  = "40 08"
	exampleTimes    = "01 0a 02"
	exampleReceipts = "00 02"
	exampleSign     = "f0 2e 00 02"
)

func TestSegmentExample(t *testing.T) {
	rows := heartRates(10, 15, 21)
	got := columns.AppendSegment(nil, rows)
	if want := sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts,
		exampleSign); !bytes.Equal(got, want) {
		t.Errorf("segment %x, want %x", got, want)
	}
}

// Rows of which the last signs came 5 ms after the first ones: marks 2, completions 5.
const (
	completedSymbols = "50 02 08"
	completions      = "00 0a"
)

func TestCompletedExample(t *testing.T) {
	rows := heartRates(10, 15, 21)
	for i := range rows {
		rows[i].CompletedMs = 5
	}
	got := columns.AppendSegment(nil, rows)
	if want := sealed(t, exampleHead, completedSymbols, exampleTimes, exampleReceipts, completions,
		exampleSign); !bytes.Equal(got, want) {
		t.Errorf("segment %x, want %x", got, want)
	}
}

func TestGroupExample(t *testing.T) {
	runs := []columns.Run{{Device: mustName("ppg-07"), Rows: 1}, {Device: mustName("ppg-123"), Rows: 2}}
	got := columns.AppendGroup(nil, runs, heartRates(10, 15, 21))
	// lengths 0, 1; names; time; then the body of the segment.
	want := sealed(t, "21 02 01", "01 00 02", "05", hex.EncodeToString([]byte("ppg-07")), "22",
		hex.EncodeToString([]byte("123")), "0a",
		exampleSymbols, exampleTimes, exampleReceipts, exampleSign)
	if !bytes.Equal(got, want) {
		t.Errorf("group %x, want %x", got, want)
	}
}

// Segments with the right checksum that the encoder does not write.
func TestSegmentRejects(t *testing.T) {
	const tail = exampleSymbols + exampleTimes + exampleReceipts + exampleSign
	const afterTimes = exampleReceipts + exampleSign
	for _, tt := range []struct {
		name string
		b    []byte
		want string // part of the error's text; empty: the rows are valid, and written differently
	}{
		{"empty", sealed(t), "too short"},
		{"a group", sealed(t, "21 02 0a 0b", tail), "kind or version"},
		{"a later version", sealed(t, "12 02 0a 0b", tail), "kind or version"},
		{"long varint", sealed(t, "11 82 00 0a 0b", tail), "shortest varint"},
		{"too long varint", sealed(t, "11 ff ff ff ff ff ff ff ff ff 02 0a 0b", tail), "shortest varint"},
		{"too many rows", sealed(t, "11 80 08 0a 0b", tail), "number of rows"},
		{"time too great", sealed(t, "11 02 80 80 80 80 80 80 80 80 80 01 0b", tail), "times"},
		{"last time too great", sealed(t, "11 02 0a fe ff ff ff ff ff ff ff 7f", tail), "times"},
		{"another last time", sealed(t, "11 02 0a 0c", tail), "times"},
		{"bytes follow", sealed(t, exampleHead, tail, "00"), "after the end"},
		{"equal times", sealed(t, "11 02 0a 05", exampleSymbols, "40 0a 01 01 09", afterTimes), "times"},
		{"times in reverse", sealed(t, exampleHead, exampleSymbols, "01 15 01", afterTimes), "times"},
		{"no body", sealed(t, exampleHead), "too short"},
		{"presence by default", sealed(t, exampleHead, "00", exampleTimes, afterTimes), "symbols"},
		{"no presence", sealed(t, exampleHead, "40 00", exampleTimes, afterTimes), "symbols"},
		{"presence too great", sealed(t, exampleHead, "40 80 80 80 80 10", exampleTimes, afterTimes), "symbols"},
		{"gateway 0", sealed(t, exampleHead, "41 00 08", exampleTimes, afterTimes), "symbols"},
		{"gateway too great", sealed(t, exampleHead, "41 80 80 80 80 10 08", exampleTimes, afterTimes), "symbols"},
		{"marks too great", sealed(t, exampleHead, "50 04 08", exampleTimes, afterTimes), "symbols"},
		{"completion 0", sealed(t, exampleHead, completedSymbols, exampleTimes, exampleReceipts, "00 00", exampleSign),
			"completion"},
		{"no completions", sealed(t, exampleHead, completedSymbols, exampleTimes, exampleReceipts), "too short"},
		{"completions from the one before", sealed(t, exampleHead, completedSymbols, exampleTimes, exampleReceipts,
			"c0 00 01 00 0a", exampleSign), ""},
		{"offset too great", sealed(t, exampleHead, "44 c0 16 08", exampleTimes, afterTimes), "symbols"},
		{"table of one", sealed(t, exampleHead, "42 01 07 00 00 08", exampleTimes, afterTimes), "symbols"},
		{"table of 33", sealed(t, exampleHead, "42 21", strings.Repeat("07", 33), "00 00 08", exampleTimes, afterTimes),
			"symbols"},
		{"position outside", sealed(t, exampleHead, "42 02 07 08 00 04 08", exampleTimes, afterTimes), "symbols"},
		{"negative position", sealed(t, exampleHead, "42 02 07 08 00 01 08", exampleTimes, afterTimes), "symbols"},
		{"gateways unused", sealed(t, exampleHead, "42 02 07 08 00 02 08", exampleTimes, afterTimes), ""},
		{"presence 0 in a table", sealed(t, exampleHead, "80 02 08 00 00 02", exampleTimes, afterTimes), "symbols"},
		{"presence 0 as an integer", sealed(t, exampleHead, "c0 00 00", exampleTimes, afterTimes), "symbols"},
		{"presence as integers", sealed(t, exampleHead, "c0 00 10", exampleTimes, afterTimes), ""},
		{"width too great", sealed(t, exampleHead, exampleSymbols, "39 0a", strings.Repeat("00", 15), afterTimes), "block"},
		{"unused bits", sealed(t, exampleHead, exampleSymbols, "01 0a 06", afterTimes), "block"},
		{"greater width", sealed(t, exampleHead, exampleSymbols, "02 0a 04", afterTimes), ""},
		{"no exceptions", sealed(t, exampleHead, exampleSymbols, "41 0a 02 00", afterTimes), "block"},
		{"exception 0", sealed(t, exampleHead, exampleSymbols, "41 0a 02 01 01 00", afterTimes), "block"},
		{"exception outside", sealed(t, exampleHead, exampleSymbols, "41 0a 02 01 02 02", afterTimes), "block"},
		{"exceptions in reverse", sealed(t, exampleHead, exampleSymbols, "41 0a 02 02 01 02 00 02", afterTimes), "block"},
		{"exception", sealed(t, exampleHead, exampleSymbols, "40 0a 01 01 02", afterTimes), ""},
		{"a block ends early", sealed(t, exampleHead, exampleSymbols, "38 0a 02"), "too short"},
		{"exceptions end early", sealed(t, exampleHead, exampleSymbols, "41 0a 02"), "too short"},
		{"an exception ends early", sealed(t, exampleHead, exampleSymbols, "41 0a 02 01"), "too short"},
		{"no times", sealed(t, exampleHead, exampleSymbols), "too short"},
		{"no step", sealed(t, exampleHead, exampleSymbols, "80"), "too short"},
		{"no receipts", sealed(t, exampleHead, exampleSymbols, exampleTimes), "too short"},
		{"no sign", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts), "too short"},
		{"no values", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts, "01"), "too short"},
		{"divisor 0", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts, "00 00 02"), "value"},
		{"divisor too great", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts, "81 80 80 80 08 00 00"),
			"value"},
		{"value too great", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts, "80 80 80 80 08 00 02"),
			"value"},
		{"value too small", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts, "80 80 80 80 08 00 03"),
			"value"},
		{"value too great before it is multiplied", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts,
			"01 00 80 80 80 80 10"), "value"},
		{"another divisor", sealed(t, exampleHead, exampleSymbols, exampleTimes, exampleReceipts, "64 00 78"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows, err := columns.DecodeSegment(tt.b, nil)
			checkRejected(t, err, tt.want)
			if err == nil && bytes.Equal(columns.AppendSegment(nil, rows), tt.b) {
				t.Error("the encoder writes it")
			}
			checkSegment(t, tt.b)
		})
	}
}

// checkRejected checks the error of decoding.
func checkRejected(t *testing.T, err error, want string) {
	t.Helper()
	if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

// Groups with the right checksum that the encoder does not write.
func TestGroupRejects(t *testing.T) {
	const (
		lengths = "01 00 02"
		names   = "00 61 10 62" // a, b
		body    = exampleSymbols + exampleTimes + exampleReceipts + exampleSign
		rest    = "0a" + body
	)
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"a segment", sealed(t, "11 02 01", lengths, names, rest), "kind or version"},
		{"a later version", sealed(t, "22 02 01", lengths, names, rest), "kind or version"},
		{"no number", sealed(t, "21"), "too short"},
		{"no devices", sealed(t, "21 02"), "too short"},
		{"too many rows", sealed(t, "21 80 80 40 01", lengths, names, rest), "number of rows"},
		{"no device", sealed(t, "21 02 03", lengths, names, rest), "number of rows"},
		{"fewer rows", sealed(t, "21 02 01", "00 00", names, rest), "number of rows"},
		{"more rows", sealed(t, "21 02 01", "00 02", names, rest), "number of rows"},
		{"negative number of rows", sealed(t, "21 02 01", "02 01 0c", names, rest), "number of rows"},
		// 2^63 + 2^63 + 6 rows are 6 modulo 2^64.
		{"numbers of rows that wrap around",
			sealed(t, "21 05 03", "40 0a 02 00 f4 ff ff ff ff ff ff ff ff 01 01 f4 ff ff ff ff ff ff ff ff 01", names, "10 63",
				rest), "number of rows"},
		{"lengths predicted twice", sealed(t, "21 02 01", "81 00 02", names, rest), "block"},
		{"lengths end early", sealed(t, "21 05 05 38 00"), "too short"},
		{"equal names", sealed(t, "21 02 01", lengths, "00 61 10 61", rest), "not a name"},
		{"names in reverse", sealed(t, "21 02 01", lengths, "00 62 10 61", rest), "not a name"},
		{"cut more than there is", sealed(t, "21 02 01", lengths, "00 61 20 62", rest), "not a name"},
		{"not a name", sealed(t, "21 02 01", lengths, "00 61 10 7b", rest), "not a name"},
		{"name too long", sealed(t, "21 02 01", lengths, "00 61 0f 31", strings.Repeat("61", 64), rest), "not a name"},
		{"a name ends early", sealed(t, "21 02 01", lengths, "00 61 13 62"), "too short"},
		{"no length of a name", sealed(t, "21 02 01", lengths, "00 61 ff"), "too short"},
		{"no second name", sealed(t, "21 02 01", lengths, "00 61"), "too short"},
		{"no time", sealed(t, "21 02 01", lengths, names), "too short"},
		{"negative time", sealed(t, "21 02 01", lengths, names, "ff ff ff ff ff ff ff ff ff 01", body), "times"},
		{"times of a device", sealed(t, "21 02 01", lengths, names, "0a", exampleSymbols, "40 0a 01 01 13", exampleReceipts,
			exampleSign), "times"},
		{"no body", sealed(t, "21 02 01", lengths, names, "0a"), "too short"},
		{"bytes follow", sealed(t, "21 02 01", lengths, names, rest, "00"), "after the end"},
		{"greater width", sealed(t, "21 02 01", "02 00 04", names, rest), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs, rows, err := columns.DecodeGroup(tt.b, nil, nil)
			checkRejected(t, err, tt.want)
			if err == nil && bytes.Equal(columns.AppendGroup(nil, runs, rows), tt.b) {
				t.Error("the encoder writes it")
			}
			checkGroup(t, tt.b)
		})
	}
}
