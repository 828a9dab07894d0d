package columns_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/vitals"
)

func TestSegmentRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := anyRows(columns.MaxRows).Draw(t, "rows")
		b := columns.AppendSegment([]byte("before"), rows)[len("before"):]
		got, err := columns.DecodeSegment(b, used(1, columns.MaxRows+1))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "rows", got[1:], rows)
		h, err := columns.SegmentHeader(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkHeader(t, h, rows)
		var want []uint32
		for _, r := range rows {
			if r.Gateway != 0 {
				want = append(want, r.Gateway)
			}
		}
		slices.Sort(want)
		slices.Sort(h.Gateways)
		equal(t, "gateways", slices.Compact(h.Gateways), slices.Compact(want))
	})
}

func TestGroupRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs, rows := anyGroup(t)
		b := columns.AppendGroup([]byte("before"), runs, rows)[len("before"):]
		gotRuns, gotRows, err := columns.DecodeGroup(b, make([]columns.Run, 1, 5), used(2, 500))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "runs", gotRuns[1:], runs)
		equal(t, "rows", gotRows[2:], rows)
	})
}

// used returns n zero rows, with other rows in the memory after them.
func used(n, capacity int) []columns.Row {
	rows := shapes[len(shapes)-1].rows(newRand(), capacity)
	for i := range rows {
		rows[i].UTCOffset, rows[i].Shared = vitals.MakeUTCOffset(60), true
	}
	clear(rows[:n])
	return rows[:n]
}

// anyGroup draws a group.
func anyGroup(t *rapid.T) (runs []columns.Run, rows []columns.Row) {
	names := rapid.OneOf(
		rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9A-Za-z._:-]{1,64}`), 1, 20, rapid.ID),
		rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(0, 9999),
			func(n int) string { return fmt.Sprintf("ward:%040d-%d", n/7, n) }), 1, 300, rapid.ID),
		rapid.SliceOfNDistinct(rapid.StringMatching(`a{1,64}`), 1, 30, rapid.ID),
	).Draw(t, "names")
	slices.Sort(names)
	most := rapid.SampledFrom([]int{1, 2, 50}).Draw(t, "most rows")
	for _, name := range names {
		of := anyRows(most).Draw(t, "rows")
		runs = append(runs, columns.Run{Device: mustName(name), Rows: len(of)})
		rows = append(rows, of...)
	}
	return runs, rows
}

// Every encoding that differs from a segment in one bit is rejected.
func TestSegmentDetectsEveryBit(t *testing.T) {
	for _, s := range shapes {
		eachDamage(columns.AppendSegment(nil, s.rows(newRand(), 40)), func(what string, b []byte) {
			if _, err := columns.DecodeSegment(b, nil); err == nil {
				t.Errorf("%s: %s: no error", s.name, what)
			}
			if _, err := columns.SegmentHeader(b, nil); err == nil {
				t.Errorf("%s: %s: no error of the header", s.name, what)
			}
		})
	}
}

func TestGroupDetectsEveryBit(t *testing.T) {
	for _, s := range shapes {
		runs, rows := s.group(newRand(), 40)
		eachDamage(columns.AppendGroup(nil, runs, rows), func(what string, b []byte) {
			if _, _, err := columns.DecodeGroup(b, nil, nil); err == nil {
				t.Errorf("%s: %s: no error", s.name, what)
			}
		})
	}
}

// eachDamage calls f with b truncated to every length, extended, and with each bit changed.
func eachDamage(b []byte, f func(what string, b []byte)) {
	for n := range b {
		f(fmt.Sprintf("%d of %d bytes", n, len(b)), b[:n:n])
	}
	f("one byte more", append(slices.Clip(b), 0))
	for i := range 8 * len(b) {
		b[i/8] ^= 1 << (i % 8)
		f(fmt.Sprintf("bit %d", i), b)
		b[i/8] ^= 1 << (i % 8)
	}
}

// seal gives b a valid checksum.
func seal(b []byte) {
	if n := len(b) - 4; n >= 0 {
		binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
	}
}

// checkSegment checks what holds for any bytes: damage that the checksum does not show is an error,
// or the rows are valid nevertheless.
func checkSegment(t rapid.TB, b []byte) {
	before := make([]columns.Row, 1, 3)
	rows, err := columns.DecodeSegment(b, before)
	h, headerErr := columns.SegmentHeader(b, nil)
	if err != nil {
		if len(rows) != 1 {
			t.Fatalf("%d rows with error %v", len(rows)-1, err)
		}
		return
	}
	rows = rows[1:]
	checkRows(t, rows)
	if headerErr != nil {
		t.Fatalf("header of %d rows: %v", len(rows), headerErr)
	}
	checkHeader(t, h, rows)
	again, err := columns.DecodeSegment(columns.AppendSegment(nil, rows), nil)
	if err != nil {
		t.Fatalf("written again: %v", err)
	}
	equal(t, "rows", again, rows)
}

// checkHeader compares the header of a segment with its rows.
func checkHeader(t rapid.TB, h columns.Header, rows []columns.Row) {
	if h.Count != len(rows) || h.FirstUnixMs != rows[0].TimeUnixMs || h.LastUnixMs != rows[len(rows)-1].TimeUnixMs {
		t.Fatalf("header %+v of %d rows", h, len(rows))
	}
}

// checkGroup checks what holds for any bytes.
func checkGroup(t rapid.TB, b []byte) {
	runs, rows, err := columns.DecodeGroup(b, make([]columns.Run, 1), make([]columns.Row, 1))
	if err != nil {
		if len(runs) != 1 || len(rows) != 1 {
			t.Fatalf("%d runs and %d rows with error %v", len(runs)-1, len(rows)-1, err)
		}
		return
	}
	runs, rows = runs[1:], rows[1:]
	rest := rows
	for i := range runs {
		checkRows(t, rest[:runs[i].Rows])
		rest = rest[runs[i].Rows:]
	}
	againRuns, again, err := columns.DecodeGroup(columns.AppendGroup(nil, runs, rows), nil, nil)
	if err != nil {
		t.Fatalf("written again: %v", err)
	}
	equal(t, "runs", againRuns, runs)
	equal(t, "rows", again, rows)
}

// checkRows checks the rows of one device.
func checkRows(t rapid.TB, rows []columns.Row) {
	for i, r := range rows {
		minutes, known := r.UTCOffset.Minutes()
		switch {
		case r.Values.IsZero():
			t.Fatalf("row %d without values", i)
		case known && (minutes < vitals.MinUTCOffsetMinutes || minutes > vitals.MaxUTCOffsetMinutes):
			t.Fatalf("row %d has offset %d", i, minutes)
		case r.TimeUnixMs < 0, i > 0 && r.TimeUnixMs <= rows[i-1].TimeUnixMs:
			t.Fatalf("row %d has time %d", i, r.TimeUnixMs)
		}
	}
}

// The files pin the format: stored bytes must remain readable.
func TestGolden(t *testing.T) {
	others := shape{name: "other-signs", intervalMs: minuteMs, jitterMs: 500, otherSigns: true, gateways: 1}
	for _, s := range append(slices.Clone(shapes), others) {
		rows := s.rows(newRand(), 150)
		rows[3].Shared, rows[7].UTCOffset = true, vitals.MakeUTCOffset(120)
		rows[3].CompletedMs, rows[140].CompletedMs = 1500, 7*24*60*minuteMs
		got := columns.AppendSegment(nil, rows)
		want := golden(t, strings.ReplaceAll(s.name, "/", "-")+".segment", got)
		decoded, err := columns.DecodeSegment(want, nil)
		try(t, err)
		equal(t, "rows", decoded, rows)

		runs, rows := s.group(newRand(), 150)
		got = columns.AppendGroup(nil, runs, rows)
		want = golden(t, strings.ReplaceAll(s.name, "/", "-")+".group", got)
		decodedRuns, decoded, err := columns.DecodeGroup(want, nil, nil)
		try(t, err)
		equal(t, "runs", decodedRuns, runs)
		equal(t, "rows", decoded, rows)
	}
}

var update = flag.Bool("update", false, "write the golden files of a new format")

// golden returns the file's content, which got must equal.
func golden(t *testing.T, name string, got []byte) []byte {
	path := filepath.Join("testdata", "golden", name)
	if *update {
		try(t, os.WriteFile(path, got, 0o666))
	}
	want, err := os.ReadFile(path)
	try(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the encoder wrote other bytes", name)
	}
	return want
}

// Rows that cannot be decoded are not encoded.
func TestInvalidRowsPanic(t *testing.T) {
	valid := func() []columns.Row { return shapes[0].rows(newRand(), 3) }
	with := func(f func(rows []columns.Row)) []columns.Row {
		rows := valid()
		f(rows)
		return rows
	}
	one, two := columns.Run{Device: mustName("one"), Rows: 1}, columns.Run{Device: mustName("two"), Rows: 2}
	for _, tt := range []struct {
		name string
		runs []columns.Run // nil: a segment
		rows []columns.Row
	}{
		{"no rows", nil, nil},
		{"too many rows", nil, shapes[0].rows(newRand(), columns.MaxRows+1)},
		{"equal times", nil, with(func(rows []columns.Row) { rows[1].TimeUnixMs = rows[0].TimeUnixMs })},
		{"negative time", nil, with(func(rows []columns.Row) { rows[0].TimeUnixMs = -1 })},
		{"no values", nil, with(func(rows []columns.Row) { rows[2].Values = vitals.Values{} })},
		{"offset", nil,
			with(func(rows []columns.Row) { rows[2].UTCOffset = vitals.MakeUTCOffset(vitals.MaxUTCOffsetMinutes) + 1 })},
		{"negative offset", nil, with(func(rows []columns.Row) { rows[2].UTCOffset = -1 })},
		{"no runs", []columns.Run{}, valid()},
		{"no runs and rows", []columns.Run{}, nil},
		{"runs with fewer rows", []columns.Run{one}, valid()},
		{"runs with more rows", []columns.Run{one, two, {Device: mustName("x"), Rows: 1}}, valid()},
		{"a run without rows", []columns.Run{one, two, {Device: mustName("x")}}, valid()},
		{"names not in order", []columns.Run{two, one}, valid()},
		{"equal names", []columns.Run{one, {Device: one.Device, Rows: 2}}, valid()},
		{"no name", []columns.Run{{Rows: 1}, two}, valid()},
		{"times of a run", []columns.Run{one, two},
			with(func(rows []columns.Row) { rows[2].TimeUnixMs = rows[1].TimeUnixMs })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			if tt.runs == nil {
				columns.AppendSegment(nil, tt.rows)
			} else {
				columns.AppendGroup(nil, tt.runs, tt.rows)
			}
		})
	}
}

// A group that claims to have many rows or devices does not allocate memory for them.
func TestGroupClaims(t *testing.T) {
	for _, b := range [][]byte{
		append([]byte{0x21, 0xff, 0xff, 0x3f, 0xff, 0xff, 0x3f}, make([]byte, 100)...), // rows of one device
		append([]byte{0x21, 0x80, 0x80, 0x04, 0x00}, make([]byte, 6000)...),            // as many devices
	} {
		seal(b)
		if allocs := testing.AllocsPerRun(10, func() {
			if _, _, err := columns.DecodeGroup(b, nil, nil); err == nil {
				t.Error("no error")
			}
		}); allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	}
}

// TestRow checks that no field of a row is forgotten by its methods.
func TestRow(t *testing.T) {
	var full columns.Row
	full.Values.Set(9, 7)
	for v, i := reflect.ValueOf(&full).Elem(), 0; i < v.NumField(); i++ {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint32:
			f.SetUint(1)
		case reflect.Int64, reflect.Int16:
			f.SetInt(1)
		}
		var copied columns.Row
		if copied.CopyFrom(&full); copied != full || !copied.Equal(&full) {
			t.Errorf("CopyFrom makes %+v, want %+v", copied, full)
		}
		reflect.ValueOf(&copied).Elem().Field(i).SetZero()
		if copied.Equal(&full) {
			t.Errorf("Equal does not compare %s", v.Type().Field(i).Name)
		}
		if copied.CopyFrom(&full); copied != full {
			t.Errorf("CopyFrom makes %+v, want %+v", copied, full)
		}
		if copied.Reset(); copied != (columns.Row{}) {
			t.Errorf("Reset makes %+v", copied)
		}
	}
}
