package recording_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/vitals"
)

// maxFuzzBytes bounds the size of files; larger ones would not find more.
const maxFuzzBytes = 8 << 10

// FuzzCSV checks that no file and no mapping makes the reader panic or hang. Every row
// is a reading, or is counted as having no sign, or is rejected with a reason that does
// not quote it. The values of a reading agree with its cells according to a second
// parser and exact arithmetic.
//
// Seen to fail when a row with an invalid number is skipped, when a zero is kept, when
// the shift is missing, and when 62.55 is read as 62.5.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("time,device,gateway,heart_rate_bpm\n1767323045000,d,g,61.55\n"), "", "", int64(0))
	f.Add([]byte(
		"\ufefftime, HR ,O2\r\n2026-01-02T03:04:05.6789+01:00,\" 6.15e1\",0\r\n,1,1\n1,x,1\n1,61.555,\n1\n2,,97\n"),
		"heart_rate_bpm=HR,spo2_pct=O2", "bed-7", int64(1000))
	f.Add([]byte(
		"time,device,utc_offset_minutes,spo2_pct\n1,d,-210,97\n1,d,1440,97\n2026-01-02T03:04:05+01:00,d,60,97\n"+
			"2026-01-02T03:04:05+01:00,d,61,97\n"), "", "", int64(0))
	f.Add([]byte(
		"device,time,utc_offset_minutes,spo2_pct\nd,2026-11-21 10:00:00.123456+00:00,120.0,97\nd,2026-11-21 10:00+00,,97\n"+
			"d,2026-11-21 12:00:00 +0200,120,97\n"), "", "", int64(0))
	f.Add([]byte("device,time,spo2_pct\nd,\"2026-01-02T03:04:05,5+00:00\",97\nd,2026-01-02T03:04:05."+strings.Repeat("1",
		50)+"+00:00,97\nd,\"2026-01-02 03:04:05,5 +01\",97\n"), "", "", int64(0))
	f.Add([]byte("\ufeff\"time\",\"heart_rate_bpm\",\"spo2_pct\",,\r\n\"1\",\"60\",\"null\",,\r\n"), "", "d", int64(0))
	f.Add([]byte("time,heart_rate_bpm\n1,\"6\n1\",\n1,\"6\"1\n"), "", "d", int64(-1))
	f.Fuzz(func(t *testing.T, file []byte, mapping, device string, shiftMs int64) {
		if len(file) > maxFuzzBytes || len(mapping) > maxFuzzBytes {
			return
		}
		m, err := recording.ParseMapping(vitals.NewSigns(), mapping)
		if err != nil {
			return
		}
		opt := recording.Options{Mapping: m, ShiftMs: shiftMs}
		opt.Device, _ = vitals.ParseName(device) // the zero Name is valid, too
		r, err := recording.NewCSV(bytes.NewReader(file), opt)
		if err != nil {
			return
		}
		model, fields := newCSVModel(t, file), recording.DefaultMapping(vitals.NewSigns())
		column := func(field string) string { return m[slices.Index(fields[:], field)] }
		checkReader(t, r, file, func(line int, got *vitals.Reading) {
			row, ok := model.rows[line]
			if !ok {
				t.Fatalf("line %d: no row starts there", line)
			}
			for s := range vitals.Sign(vitals.NumBuiltIn) {
				checkValue(t, line, s, model.cell(row, column(vitals.BuiltIn(s).Field)), got)
			}
			_, hasOffsets := model.columns[column("utc_offset_minutes")]
			checkTime(t, line, model.cell(row, column("time")), model.cell(row, column("utc_offset_minutes")), hasOffsets,
				shiftMs, got)
			wantDevice := model.cell(row, column("device"))
			if wantDevice == "" {
				wantDevice = opt.Device.String()
			}
			if got.Device.String() != wantDevice || got.Gateway.String() != model.cell(row, column("gateway")) {
				t.Errorf("line %d: device %q by %q, want %q by %q", line, got.Device, got.Gateway, wantDevice,
					model.cell(row, column("gateway")))
			}
		})
		if n := r.Counts().Rows; n != model.count {
			t.Errorf("%d rows were read, want %d", n, model.count)
		}
	})
}

// FuzzNDJSON is like FuzzCSV for NDJSON, with encoding/json as the second parser.
//
// Seen to fail when the shift is missing, and when an unknown member is ignored.
func FuzzNDJSON(f *testing.F) {
	f.Add([]byte(
		`{"device":"d","time":1,"utc_offset_minutes":-210,"spo2_pct":97}`+"\n"+`{"device":"d",`+
			`"time":"2026-01-02T03:04:05+01:00","utc_offset_minutes":60,"spo2_pct":97}`), "", int64(0))
	f.Add([]byte(`{"device":"d","time":1767323045000,"heart_rate_bpm":61.55,"received":1,"flags":["x"]}`+"\n\n{\n"),
		"", int64(0))
	f.Add([]byte(
		`{"time":"2026-01-02T03:04:05.6789Z","spo2_pct":9.75e1,"heart_rate_bpm":0.0,"gateway":"g"}`+"\r\n"+`{"time":1,"sp02_pct":9,"spo2_pct":97}`), "bed-7", int64(1000))
	f.Add([]byte(`{"devic\u0065":"d","time":1,"spo2_pct":97}`+"\n"+`[]`+"\n"+`{"device":"d","device":"e"}{}`),
		"d", int64(-1))
	f.Fuzz(func(t *testing.T, file []byte, device string, shiftMs int64) {
		if len(file) > maxFuzzBytes || bytes.Contains(file, []byte(`{"rejected":`)) { // see TestRejected
			return
		}
		file = bytes.TrimPrefix(file, []byte("\ufeff"))
		opt := recording.Options{ShiftMs: shiftMs}
		opt.Device, _ = vitals.ParseName(device) // the zero Name is valid, too
		lines := bytes.Split(file, []byte("\n"))
		r := recording.NewNDJSON(io.MultiReader(strings.NewReader("\ufeff"), bytes.NewReader(file)), opt)
		checkReader(t, r, file, func(line int, got *vitals.Reading) {
			var members map[string]any
			dec := json.NewDecoder(bytes.NewReader(lines[line-1]))
			dec.UseNumber()
			if err := dec.Decode(&members); err != nil {
				t.Fatalf("line %d was accepted: %v", line, err)
			}
			text := func(name string) string {
				switch v := members[name].(type) {
				case json.Number:
					return v.String()
				case string:
					return v
				}
				return ""
			}
			for s := range vitals.Sign(vitals.NumBuiltIn) {
				checkValue(t, line, s, text(vitals.BuiltIn(s).Field), got)
			}
			checkTime(t, line, text("time"), text("utc_offset_minutes"), false, shiftMs, got)
			wantDevice := text("device")
			if wantDevice == "" {
				wantDevice = opt.Device.String()
			}
			if got.Device.String() != wantDevice || got.Gateway.String() != text("gateway") {
				t.Errorf("line %d: device %q by %q, want %q by %q", line, got.Device, got.Gateway, wantDevice, text("gateway"))
			}
			known := []string{"device", "gateway", "time", "utc_offset_minutes", "received", "flags"}
			for s := range vitals.Sign(vitals.NumBuiltIn) {
				known = append(known, vitals.BuiltIn(s).Field)
			}
			for name := range members {
				if !slices.Contains(known, name) {
					t.Errorf("line %d: the member %q was ignored", line, name)
				}
			}
		})
		rows := 0
		for _, line := range lines {
			if len(bytes.TrimSpace(line)) > 0 {
				rows++
			}
		}
		if n := r.Counts().Rows; n != rows {
			t.Errorf("%d rows were read, want %d", n, rows)
		}
	})
}

// checkReader reads r to its end, compares its counts with what it returned, and passes
// every reading to check.
func checkReader(t *testing.T, r recording.Reader, file []byte, check func(line int, got *vitals.Reading)) {
	t.Helper()
	returned, last := 0, 0
	for range len(file) + 2 {
		reading, line, err := r.Next()
		var row *recording.RowError
		if err == io.EOF {
			if got := r.Counts(); got.Rows != returned+got.NoSign {
				t.Errorf("counts %+v, and %d readings and errors were returned", got, returned)
			}
			return
		}
		if line <= last {
			t.Fatalf("line %d was returned after line %d", line, last)
		}
		last = line
		returned++
		switch {
		case errors.As(err, &row):
			if row.Line != line || !isFixed(row.Err) {
				t.Errorf("line %d: rejected as line %d with %v, want a reason that does not quote the file", line,
					row.Line, row.Err)
			}
		case err != nil:
			t.Fatalf("line %d: %v", line, err)
		default:
			if reading.Device.IsZero() || reading.Values.IsZero() {
				t.Errorf("line %d: a reading without a device or without a sign", line)
			}
			check(line, &reading)
		}
	}
	t.Fatal("the reader does not reach the end")
}

// isFixed reports whether an error has a fixed text, which cannot quote the file.
func isFixed(err error) bool {
	for _, known := range []error{
		vitals.ErrNotObject, vitals.ErrUnknownField, vitals.ErrType, vitals.ErrMissing, vitals.ErrName,
		vitals.ErrTimeFormat, vitals.ErrTimeZone, vitals.ErrPast, vitals.ErrFuture, vitals.ErrNumber,
		vitals.ErrPrecision, vitals.ErrRange, vitals.ErrNoSignal, vitals.ErrPair, vitals.ErrPressureOrder,
		vitals.ErrSyntax, vitals.ErrTooManyReadings, vitals.ErrReadingTooLong,
		csv.ErrFieldCount, csv.ErrQuote, csv.ErrBareQuote,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return slices.Contains([]string{"not valid JSON", "more than one JSON value on the line", "not one JSON object",
		"not a whole number of minutes from -1439 to 1439", "not the offset from UTC of the time"}, err.Error())
}

// checkValue compares a value with its text, which may be empty.
func checkValue(t *testing.T, line int, s vitals.Sign, text string, got *vitals.Reading) {
	t.Helper()
	value, has := got.Values.Get(s)
	if text == "" {
		if has {
			t.Errorf("line %d: %s has a value, but its cell is empty", line, s)
		}
		return
	}
	// Rat parses numbers of any size, but a large exponent is expensive.
	if i := strings.IndexAny(text, "eE"); i >= 0 && len(text)-i > 4 {
		return
	}
	want, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Errorf("line %d: %s was read from an invalid number", line, s)
		return
	}
	if want.Sign() == 0 {
		if has {
			t.Errorf("line %d: %s has a value, but its text is zero", line, s)
		}
		return
	}
	if !has || want.Cmp(big.NewRat(int64(value), 100)) != 0 {
		t.Errorf("line %d: %s differs from its text", line, s)
	}
}

// checkTime compares the time and its offset from UTC with their texts. The time wraps around
// like the sum of time and shift. An offset after a blank is not that of the reading, and one of 0 is that of the
// offset's text, and unknown if the file has a column for it.
func checkTime(t *testing.T, line int, text, offset string, hasOffsets bool, shiftMs int64, got *vitals.Reading) {
	t.Helper()
	offset = strings.TrimSuffix(offset, ".0")
	want, err := strconv.ParseInt(text, 10, 64)
	wantOffset := ""
	if err != nil {
		at, err := parseTime(text)
		if err != nil {
			t.Errorf("line %d: a time was read from an invalid text: %v", line, err)
			return
		}
		want = at.UnixMilli()
		_, seconds := at.Zone()
		if hasT := text[10] == 'T' || text[10] == 't'; hasT && (seconds != 0 || strings.Contains(text, "+") && !hasOffsets) {
			wantOffset = strconv.Itoa(seconds / 60)
		}
	}
	if offset != "" && (wantOffset == "" || wantOffset == "0") {
		wantOffset = offset
	}
	gotOffset := ""
	if minutes, ok := got.UTCOffset.Minutes(); ok {
		gotOffset = strconv.Itoa(minutes)
	}
	if gotOffset != wantOffset && !(gotOffset == "0" && wantOffset == "-0") ||
		offset != "" && offset != "-0" && offset != gotOffset {
		t.Errorf("line %d: offset %q, want %q", line, gotOffset, wantOffset)
	}
	if got.TimeUnixMs != want+shiftMs {
		t.Errorf("line %d: time %d, want %d", line, got.TimeUnixMs, want+shiftMs)
	}
}

// parseTime parses a time as RFC 3339 has it, or in another spelling with an offset.
func parseTime(text string) (at time.Time, err error) {
	text = strings.ToUpper(text) // time.Parse requires capital T and Z
	if at, err = time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, zone := range []string{"Z07:00", "Z0700", "Z07", " Z07:00", " Z0700", " Z07", "UTC", " UTC"} {
		for _, start := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
			if at, err = time.Parse(start+zone, text); err == nil {
				return at, nil
			}
		}
	}
	return at, err
}

// A csvModel is a CSV file read with only the standard library.
type csvModel struct {
	columns map[string]int
	rows    map[int][]string // by the line on which they start
	count   int              // number of rows, including malformed ones
}

func newCSVModel(t *testing.T, file []byte) *csvModel {
	t.Helper()
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(file, []byte("\ufeff"))))
	r.TrimLeadingSpace = true
	header, err := r.Read()
	if err != nil {
		t.Fatalf("a file without a header was accepted: %v", err)
	}
	m := &csvModel{columns: map[string]int{}, rows: map[int][]string{}}
	for i, name := range header {
		m.columns[strings.TrimSpace(name)] = i
	}
	for {
		row, err := r.Read()
		if err == io.EOF {
			return m
		}
		m.count++
		if err == nil {
			line, _ := r.FieldPos(0)
			m.rows[line] = row
		}
	}
}

// cell returns the text of a column, or "" if there is no such column.
func (m *csvModel) cell(row []string, column string) string {
	i, ok := m.columns[column]
	if !ok || column == "" {
		return ""
	}
	text := strings.TrimSpace(row[i])
	if text == "null" {
		return ""
	}
	return text
}
