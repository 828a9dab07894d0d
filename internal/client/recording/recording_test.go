package recording_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pulsegate/pulsegate/internal/api/shape"
	"github.com/pulsegate/pulsegate/internal/client/recording"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/vitals"
)

func name(t *testing.T, text string) vitals.Name {
	t.Helper()
	n, err := vitals.ParseName(text)
	try(t, err)
	return n
}

// readAll reads r to its end. It returns invalid rows as errors.
func readAll(t *testing.T, r recording.Reader) (readings []vitals.Reading, rows []*recording.RowError) {
	t.Helper()
	for {
		reading, _, err := r.Next()
		var row *recording.RowError
		switch {
		case err == io.EOF:
			return readings, rows
		case errors.As(err, &row):
			rows = append(rows, row)
		case err != nil:
			t.Fatal(err)
		default:
			readings = append(readings, reading)
		}
	}
}

// The numbers were counted in the original file with an independent program.
func TestMIMIC2(t *testing.T) {
	r, err := recording.NewCSV(strings.NewReader(recording.MIMIC2), recording.Options{Mapping: recording.MIMIC2Mapping(),
		Device: name(t, "d")})
	try(t, err)
	readings, rows := readAll(t, r)
	if len(rows) != 0 {
		t.Errorf("rejected %d rows, the first: %v", len(rows), rows[0])
	}
	got, want := r.Counts(), recording.Counts{Rows: 1936, NoSign: 42, Zeros: 772}
	if got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	rules, err := vitals.NewValidator(vitals.NewSigns().DefaultLimits())
	try(t, err)
	accepted, values, refused := 0, 0, 0
	for _, reading := range readings {
		if err := rules.Validate(&reading, vitals.MaxTimeUnixMs); err != nil {
			refused++
			var field *vitals.FieldError
			if !errors.As(err, &field) || field.Field != "heart_rate_bpm" || !errors.Is(err, vitals.ErrRange) {
				t.Errorf("rejected with %v, want heart_rate_bpm out of range", err)
			}
			continue
		}
		accepted++
		for s := range vitals.Sign(vitals.NumBuiltIn) {
			if reading.Values.Has(s) {
				values++
			}
		}
	}
	if accepted != 1893 || values != 5339 || refused != 1 {
		t.Errorf("accepted %d with %d values, rejected %d; want 1893 with 5339, 1", accepted, values, refused)
	}
}

func TestCSVRows(t *testing.T) {
	const head = "time,device,gateway,HR,O2,utc_offset_minutes\n"
	for _, tt := range []struct {
		name, row string
		wantField string
		wantErr   error
	}{
		{"good", "2026-01-02T03:04:05Z,d1,g1,61.5,98,", "", nil},
		{"Unix ms", "1767323045000,d1,,61,,", "", nil},
		{"spaces", " 1767323045000 , d1 ,, 61 ,,", "", nil},
		{"default device", "1767323045000,,,61,,", "", nil},
		{"no zone", "2026-01-02T03:04:05,d1,,61,,", "time", vitals.ErrTimeZone},
		{"no time", ",d1,,61,,", "time", vitals.ErrTimeFormat},
		{"bad device", "1767323045000,a b,,61,,", "device", vitals.ErrName},
		{"bad gateway", "1767323045000,d,a b,61,,", "gateway", vitals.ErrName},
		{"not a number", "1767323045000,d,,x,,", "heart_rate_bpm", vitals.ErrNumber},
		{"too fine", "1767323045000,d,,61.555,,", "heart_rate_bpm", vitals.ErrPrecision},
		{"a fine fraction", "1767323045000,d,,,0.975,", "spo2_pct", vitals.ErrPrecision},
		{"null", "1767323045000,null,null,61,null,null", "", nil},
		{"null time", "null,d,,61,,", "time", vitals.ErrTimeFormat},
		{"too few cells", "1767323045000,d", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := recording.ParseMapping(vitals.NewSigns(), "heart_rate_bpm=HR,spo2_pct=O2")
			try(t, err)
			r, err := recording.NewCSV(strings.NewReader(head+tt.row+"\n1767323046000,next,,62,,\n"),
				recording.Options{Mapping: m, Device: name(t, "default")})
			try(t, err)
			readings, rows := readAll(t, r)
			if last := readings[len(readings)-1]; last.Device.String() != "next" {
				t.Error("reading did not continue after the row")
			}
			if first := readings[0]; tt.name == "null" && (first.Device.String() != "default" || !first.Gateway.IsZero()) {
				t.Errorf("null became device %q, gateway %q", first.Device, first.Gateway)
			}
			wantRows := 0
			if tt.wantErr != nil || tt.name == "too few cells" {
				wantRows = 1
			}
			if len(rows) != wantRows || len(readings) != 2-wantRows {
				t.Fatalf("%d readings, %d rejected rows; want %d, %d", len(readings), len(rows), 2-wantRows, wantRows)
			}
			if wantRows == 0 {
				return
			}
			if rows[0].Line != 2 || rows[0].Field != tt.wantField || (tt.wantErr != nil && !errors.Is(rows[0], tt.wantErr)) {
				t.Errorf("rejected with %v, want line 2, field %q, %v", rows[0], tt.wantField, tt.wantErr)
			}
		})
	}
}

func TestCSVHeader(t *testing.T) {
	for _, tt := range []struct{ name, mapping, head, want string }{
		{"empty", "", "", "empty"},
		{"no time", "", "device,spo2_pct\n", `"time"`},
		{"no sign", "", "time,device,HR\n",
			`no such column: the header has no vital sign; the columns of the file are "time", "device", "HR"`},
		{"mapped sign missing", "spo2_pct=SpO2", "time,device,HR\n", `"SpO2"`},
		{"no device", "", "time,spo2_pct\n", "device"},
		{"misspelt", "", "time,device,heart_rate_bpm,sp02_pct\n", `"sp02_pct"`},
		{"twice", "", "time,device,spo2_pct,time\n", "twice"},
		{"no header", "", "2026-11-21T10:00:00Z,ppg-1,97.25\n",
			"the first row of the file holds values, not the names of the columns"},
		{"no header, an app's time", "", "\"Nov 27, 2025 08:48\",97.25\n", "the first row of the file holds values"},
		{"no header, units", "heart_rate_bpm=HR", "time,97.25 %\n", "the first row of the file holds values"},
		{"no header, a bound", "heart_rate_bpm=HR", "time,> 97.25\n", "the first row of the file holds values"},
		{"names with digits", "", "time,SpO2(%),PM2.5\n", `the columns of the file are "time", "SpO2(%)", "PM2.5"`},
		{"no header, equal values", "", "2026-11-21T10:00:00Z,97.25,97.25\n",
			"named twice; the first row of the file holds values"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := recording.ParseMapping(vitals.NewSigns(), tt.mapping)
			try(t, err)
			_, err = recording.NewCSV(strings.NewReader(tt.head), recording.Options{Mapping: m})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "97.25") {
				t.Errorf("got %v, want an error with %q and without a measured value", err, tt.want)
			}
		})
	}
}

// TestMark checks files that begin with a byte order mark, as spreadsheets and shells of Windows write it, and columns
// without a name.
func TestMark(t *testing.T) {
	for _, tt := range []struct{ format, file string }{
		{recording.CSV,
			"\ufeff\"time\",\"device\",\"systolic_mmhg\",\"diastolic_mmhg\"\r\n" +
				"\"2026-06-25T19:14:00+02:00\",\"b9\",\"104\",\"68\"\r\n"},
		{recording.CSV, "device,time,systolic_mmhg,diastolic_mmhg,,\nb9,2026-06-25T19:14:00+02:00,104,68,,\n"},
		{recording.NDJSON,
			"\ufeff" + `{"device":"b9","time":"2026-06-25T19:14:00+02:00","systolic_mmhg":104,"diastolic_mmhg":68}`},
		{recording.NDJSON,
			`{"device":"b9","time":1782407640000,"utc_offset_minutes":120,"systolic_mmhg":104,"diastolic_mmhg":68,` +
				`"spo2_pct":null,"gateway":null}`},
		{recording.NDJSON,
			`{"device":null,"time":"2026-06-25T19:14:00+02:00","utc_offset_minutes":null,"systolic_mmhg":104,` +
				`"diastolic_mmhg":68}`},
	} {
		format, whole, err := recording.DetectFormat(strings.NewReader(tt.file))
		try(t, err)
		if format != tt.format {
			t.Errorf("%s: the format is %s", tt.file, format)
		}
		r, err := recording.New(whole, tt.format, recording.Options{Device: name(t, "b9")})
		try(t, err)
		readings, rows := readAll(t, r)
		if len(readings) != 1 || len(rows) != 0 {
			t.Fatalf("%s: %v, rejected %v", tt.file, readings, rows)
		}
		const want = `{"device":"b9","time":"2026-06-25T19:14:00.000+02:00","systolic_mmhg":104,"diastolic_mmhg":68}`
		if got := string(r.Signs().AppendJSON(nil, &readings[0])); got != want || len(recording.LeftOut(r)) != 0 {
			t.Errorf("%s: %s without %q, want %s", tt.file, got, recording.LeftOut(r), want)
		}
	}
}

// TestNullRows checks that a row in which every sign is null has no sign.
func TestNullRows(t *testing.T) {
	for format, file := range map[string]string{
		recording.CSV:    "time,spo2_pct,heart_rate_bpm\n1767323045000,null,null\n",
		recording.NDJSON: `{"time":1767323045000,"spo2_pct":null,"heart_rate_bpm":null}`,
	} {
		r, err := recording.New(strings.NewReader(file), format, recording.Options{Device: name(t, "d")})
		try(t, err)
		readings, rows := readAll(t, r)
		if want := (recording.Counts{Rows: 1, NoSign: 1}); len(readings) != 0 || len(rows) != 0 || r.Counts() != want {
			t.Errorf("%s: %v, rejected %v, %+v", format, readings, rows, r.Counts())
		}
	}
}

// TestRejected checks that a file of rejected rows is read as the rows that they are copies of, and that rows that are
// rejected again are the same.
func TestRejected(t *testing.T) {
	for _, tt := range []struct{ format, file, rejected, corrected string }{
		{recording.CSV,
			"\ufefftime,note,heart_rate_bpm\r\n\r\nx,\"a, \"\"b\"\"\",61\r\n1767323045000,,x\r\n1767323045000,\"\n\",61.555\n" +
				"1767323045000,\"b\"c,62\n1,2",
			"rejected_line,rejected_field,rejected_reason,time,note,heart_rate_bpm\n3,time,an 'odd'; reason,x,\"a, " +
				"\"\"b\"\"\",61\n" +
				"4,heart_rate_bpm,an 'odd'; reason,1767323045000,,x\n5,heart_rate_bpm,an 'odd'; reason,1767323045000,\"\n" +
				"\",61.555\n" +
				"7,,an 'odd'; reason,1767323045000,\"b\"c,62\n8,,an 'odd'; reason,1,2\n",
			"\"rejected_line\",rejected_field,rejected_reason,time,note,heart_rate_bpm\n3,time,r,1767323045000,,61\n"},
		{recording.NDJSON, `{"time":"x","heart_rate_bpm":61.50}` + "\n\n" + `{"time":1,"time":2}` + "\n[1]\n" + `{"a` + "\n",
			`{"rejected":{"line":1,"field":"time","reason":"an \"odd\", reason"},"row":{"time":"x","heart_rate_bpm":61.50}}` +
				"\n" +
				`{"rejected":{"line":3,"field":"","reason":"an \"odd\", reason"},"row":"{\"time\":1,\"time\":2}"}` + "\n" +
				`{"rejected":{"line":4,"field":"","reason":"an \"odd\", reason"},"row":"[1]"}` + "\n" +
				`{"rejected":{"line":5,"field":"","reason":"an \"odd\", reason"},"row":"{\"a"}` + "\n",
			`{"rejected":{"line":1,"field":"time","reason":"r"},"row":{"time":1767323045000,"heart_rate_bpm":61.00}}`},
	} {
		m, err := recording.ParseMapping(vitals.NewSigns(), "heart_rate_bpm=heart_rate_bpm")
		try(t, err)
		opt := recording.Options{Mapping: m, Device: name(t, "d"), Texts: true}
		reject := func(file string) (rejected []byte, lines int) {
			r, err := recording.New(strings.NewReader(file), tt.format, opt)
			try(t, err)
			if tt.format == recording.CSV {
				rejected = fmt.Appendf(nil, "%s%s\n", recording.RejectedColumns, r.Text())
			}
			for {
				_, _, err := r.Next()
				row, broken := errors.AsType[*recording.RowError](err)
				if !broken {
					return rejected, lines
				}
				lines++
				rejected = recording.AppendRejected(rejected, tt.format, ',', r.Text(), row.Line, row.Field, `an "odd", reason`)
			}
		}
		got, lines := reject(tt.file)
		if string(got) != tt.rejected {
			t.Errorf("%s:\n got %s\nwant %s", tt.format, got, tt.rejected)
		}
		again, n := reject(string(got))
		third, _ := reject(string(again))
		if n != lines || string(third) != string(again) && tt.format == recording.NDJSON {
			t.Errorf("%s: rejected again: %d rows\n%s\n%s", tt.format, n, again, third)
		}
		r, err := recording.New(strings.NewReader(tt.corrected), tt.format, opt)
		try(t, err)
		readings, rows := readAll(t, r)
		if len(readings) != 1 || len(rows) != 0 {
			t.Errorf("%s: corrected: %v, rejected %v", tt.format, readings, rows)
		}
	}
}

func TestParseMappingErrors(t *testing.T) {
	for _, text := range []string{"=", "spo2_pct", "spo2_pct=", "=SpO2", "sp02_pct=SpO2", "spo2_pct=a,spo2_pct=b"} {
		if _, err := recording.ParseMapping(vitals.NewSigns(), text); err == nil {
			t.Errorf("ParseMapping(%q) returned no error", text)
		}
	}
}

func TestNDJSON(t *testing.T) {
	const file = `{"device":"a","time":1767323045000,"heart_rate_bpm":61,"received":"2026-01-02T03:04:06Z","flags":["heart_rate_bpm low"]}

{"time":"2026-01-02T03:04:05.5Z","spo2_pct":97.5,"heart_rate_bpm":0}
{"device":"a","time":1,"sp02_pct":97}
{"device":"a","time":1,"heart_rate_bpm":0}
{"device":"a","time":1
{"device":"a","time":1,"spo2_pct":90} {}
[]
null
{"device":"a","time":2,"spo2_pct":90}`
	r := recording.NewNDJSON(strings.NewReader(file), recording.Options{Device: name(t, "default"), ShiftMs: 10})
	readings, rows := readAll(t, r)
	if got, want := r.Counts(), (recording.Counts{Rows: 9, NoSign: 1, Zeros: 2}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	var got []string
	for _, reading := range readings {
		got = append(got, string(vitals.NewSigns().AppendJSON(nil, &reading)))
	}
	want := []string{
		`{"device":"a","time":"2026-01-02T03:04:05.010Z","heart_rate_bpm":61}`,
		`{"device":"default","time":"2026-01-02T03:04:05.510Z","spo2_pct":97.5}`,
		`{"device":"a","time":"1970-01-01T00:00:00.012Z","spo2_pct":90}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i, wantLine := range []int{4, 6, 7, 8, 9} {
		if rows[i].Line != wantLine {
			t.Errorf("rejected row %d is line %d, want %d", i, rows[i].Line, wantLine)
		}
	}
	if rows[0].Field != "sp02_pct" || !errors.Is(rows[0], vitals.ErrUnknownField) {
		t.Errorf("misspelt field: %v", rows[0])
	}
}

// The offset from UTC is that of the time or of utc_offset_minutes, which must not
// contradict each other; in either format. A reading is sent with the offset in its time.
//
// Seen to fail when a contradiction is ignored.
func TestOffsets(t *testing.T) {
	const notOffset, notThatOfTime = "not a whole number of minutes from -1439 to 1439",
		"not the offset from UTC of the time"
	for _, tt := range []struct{ time, offset, want, reason string }{
		{`"2026-11-21T10:00:00Z"`, ``, "2026-11-21T10:00:00.000Z", ""},
		{`"2026-11-21T10:00:00Z"`, `120`, "2026-11-21T12:00:00.000+02:00", ""},
		{`"2026-11-21T10:00:00Z"`, `-210`, "2026-11-21T06:30:00.000-03:30", ""},
		{`"2026-11-21T10:00:00Z"`, `0`, "2026-11-21T10:00:00.000+00:00", ""},
		{`"2026-11-21T10:00:00-00:00"`, `1439`, "2026-11-22T09:59:00.000+23:59", ""},
		{`1795255200000`, `-1439`, "2026-11-20T10:01:00.000-23:59", ""},
		{`"2026-11-21T12:00:00+02:00"`, ``, "2026-11-21T12:00:00.000+02:00", ""},
		{`"2026-11-21T12:00:00+02:00"`, `120`, "2026-11-21T12:00:00.000+02:00", ""},
		{`"2026-11-21T12:00:00+02:00"`, `60`, "", notThatOfTime},
		{`"2026-11-21T12:00:00+02:00"`, `0`, "", notThatOfTime},
		{`1795255200000`, `1440`, "", notOffset},
		{`1795255200000`, `-1440`, "", notOffset},
		{`1795255200000`, `120.0`, "2026-11-21T12:00:00.000+02:00", ""},
		{`1795255200000`, `120.5`, "", notOffset},
		{`"2026-11-21T10:00:00+00:00"`, `120`, "2026-11-21T12:00:00.000+02:00", ""},
		{`"2026-11-21T10:00:00Z"`, `120`, "2026-11-21T12:00:00.000+02:00", ""},
		{`1795255200000`, `+120`, "", notOffset},
		{`1795255200000`, `02:00`, "", notOffset},
		{`1795255200000`, `99999999999999999999`, "", notOffset},
		{`1795255200000`, `null`, "2026-11-21T10:00:00.000Z", ""},
		{`1795255200000`, `"120"`, "", notOffset},
	} {
		ndjson := `{"device":"d","time":` + tt.time + `,"utc_offset_minutes":` + tt.offset + `,"spo2_pct":97}`
		if tt.offset == "" {
			ndjson = `{"device":"d","time":` + tt.time + `,"spo2_pct":97}`
		}
		for format, file := range map[string]string{
			recording.CSV: "device,time,utc_offset_minutes,spo2_pct\nd," + strings.Trim(tt.time, `"`) + "," +
				tt.offset + ",97\n",
			recording.NDJSON: ndjson,
		} {
			invalid := format == recording.NDJSON && (tt.offset == "+120" || tt.offset == "02:00") // not JSON
			if invalid || format == recording.CSV && strings.HasPrefix(tt.offset, `"`) {
				continue
			}
			r, err := recording.New(strings.NewReader(file), format,
				recording.Options{Mapping: recording.DefaultMapping(vitals.NewSigns())})
			try(t, err)
			readings, rows := readAll(t, r)
			switch {
			case tt.reason != "":
				if len(rows) != 1 || rows[0].Field != "utc_offset_minutes" || rows[0].Err.Error() != tt.reason {
					t.Errorf("%s %s, %s: %v, %v; want a row rejected as %q", format, tt.time, tt.offset, readings, rows, tt.reason)
				}
			case len(rows) != 0 || len(readings) != 1:
				t.Errorf("%s %s, %s: %v, %v", format, tt.time, tt.offset, readings, rows)
			default:
				want := `{"device":"d","time":"` + tt.want + `","spo2_pct":97}`
				if got := string(vitals.NewSigns().AppendJSON(nil, &readings[0])); got != want {
					t.Errorf("%s %s, %s: to be sent as %s, want %s", format, tt.time, tt.offset, got, want)
				}
			}
		}
	}
}

// TestCSVTimes reads times as other programs write them. Without an offset they need a zone, and are in UTC in a file
// with utc_offset_minutes. An offset after a blank may be that of the machine on which the program ran.
func TestCSVTimes(t *testing.T) {
	const noZone, local = "no time zone",
		"without an offset, in a file with utc_offset_minutes, so that it is in UTC: the zone is Z"
	for _, tt := range []struct{ zone, time, offset, want, reason string }{ // offset "-": without the column
		{"", "2026-11-21 10:00:00+00:00", "120", "2026-11-21T12:00:00.000+02:00", ""},
		{"", "2026-11-21 10:00:00+00:00", "", "2026-11-21T10:00:00.000Z", ""},
		{"", "2026-11-21 10:00:00+00:00", "0", "2026-11-21T10:00:00.000+00:00", ""},
		{"", "2026-11-21 10:00:00+00:00", "-", "2026-11-21T10:00:00.000Z", ""},
		{"", "2026-11-21T10:00:00+00:00", "-", "2026-11-21T10:00:00.000+00:00", ""}, // as the API reads it
		{"", "2026-11-21T10:00:00+00:00", "", "2026-11-21T10:00:00.000Z", ""},
		{"", "2026-11-21 10:00:00.123456+00", "-", "2026-11-21T10:00:00.123Z", ""},
		{"", "2026-11-21 12:00:00.123 +0200", "-", "2026-11-21T10:00:00.123Z", ""},
		{"", "2026-11-21 11:00:00+01", "60", "2026-11-21T11:00:00.000+01:00", ""}, // DuckDB in Berlin
		{"", "2026-11-21 11:00:00+01", "-300", "2026-11-21T05:00:00.000-05:00", ""},
		{"", "2026-11-21 11:00:00+01", "0", "2026-11-21T10:00:00.000+00:00", ""},
		{"", "2026-11-21 11:00:00+01", "", "2026-11-21T10:00:00.000Z", ""},
		{"", "2026-11-21\u00a011:00:00+01:00", "120", "2026-11-21T12:00:00.000+02:00", ""},
		{"", "2026-11-21T12:00:00+02", "60", "", "not the offset from UTC of the time"},
		{"", "2026-11-21T12:00:00+02", "120", "2026-11-21T12:00:00.000+02:00", ""},
		{"", "2026-11-21t12:00+0200", "-", "2026-11-21T12:00:00.000+02:00", ""},
		{"", "2026-11-21T10:00+00", "-", "2026-11-21T10:00:00.000+00:00", ""},
		{"", "2026-11-21T10:00+00", "", "2026-11-21T10:00:00.000Z", ""},
		{"", "2026-11-21 10:00Z", "", "2026-11-21T10:00:00.000Z", ""},
		{"", "2026-11-21 10:00:00.123", "120", "", noZone},
		{"", "2026-11-21T10:00:00", "-", "", noZone},
		{"", "2026-11-31 10:00:00Z", "-", "", "neither an RFC 3339 time nor integer Unix milliseconds"},
		{"", "21.11.2026 10:00", "-", "", "neither an RFC 3339 time nor integer Unix milliseconds"},
		{"Z", "2026-11-21 10:00:00.123", "120", "2026-11-21T12:00:00.123+02:00", ""},
		{"Z", "2026-11-21 10:00:00.123", "", "2026-11-21T10:00:00.123Z", ""},
		{"UTC", "2026-11-21 10:00:00.123", "120", "2026-11-21T12:00:00.123+02:00", ""},
		{"Europe/Berlin", "2026-11-21 10:00:00.123", "-", "2026-11-21T10:00:00.123+01:00", ""},
		{"Europe/Berlin", "2026-11-21T10:00:00+03:00", "-", "2026-11-21T10:00:00.000+03:00", ""},
		{"Europe/Berlin", "2026-11-21 10:00:00.123", "60", "", local},
		{"Europe/Berlin", "2026-11-21 10:00:00.123", "", "", local},
		{"Europe/Berlin", "2026-10-25 02:30:00", "-", "", "the zone has this time twice: its clock was put back"},
		{"Europe/Berlin", "2026-03-29 02:30:00", "-", "", "the zone has no such time: its clock was put forward"},
	} {
		opt := recording.Options{Mapping: recording.DefaultMapping(vitals.NewSigns())}
		if tt.zone != "" {
			var err error
			opt.Zone, err = shape.NewInstants(tt.zone)
			try(t, err)
		}
		file := "device,time,utc_offset_minutes,spo2_pct\nd," + tt.time + "," + tt.offset + ",97\n"
		if tt.offset == "-" {
			file = "device,time,spo2_pct\nd," + tt.time + ",97\n"
		}
		r, err := recording.NewCSV(strings.NewReader(file), opt)
		try(t, err)
		readings, rows := readAll(t, r)
		got, reason := "", ""
		if len(rows) == 1 {
			reason = rows[0].Err.Error()
		} else {
			got = string(vitals.NewSigns().AppendJSON(nil, &readings[0]))
			got = strings.TrimSuffix(strings.TrimPrefix(got, `{"device":"d","time":"`), `","spo2_pct":97}`)
		}
		if got != tt.want || reason != tt.reason {
			t.Errorf("zone %q, time %s, offset %q: got %q, %q, want %q, %q", tt.zone, tt.time, tt.offset, got, reason,
				tt.want, tt.reason)
		}
	}
}

func TestNDJSONLongLine(t *testing.T) {
	r := recording.NewNDJSON(strings.NewReader(strings.Repeat("x", 1<<20)), recording.Options{})
	if _, _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v, want an error about the length", err)
	}
}

// The newest time becomes the requested one, in either format; the intervals stay the
// same.
func TestNewShifted(t *testing.T) {
	device, err := vitals.ParseName("d")
	try(t, err)
	for format, text := range map[string]string{
		recording.CSV: "time,spo2_pct\n1970-01-01T00:00:05Z,97\n1970-01-01T00:00:09Z,98\n",
		recording.NDJSON: `{"device":"d","time":100000009000,"spo2_pct":98}` + "\n" +
			`{"device":"d","time":100000005000,"spo2_pct":97}` + "\n",
	} {
		r, err := recording.NewShifted(strings.NewReader(text), format,
			recording.Options{Mapping: recording.DefaultMapping(vitals.NewSigns()), Device: device}, 1_000_000, nil)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		var times []int64
		for {
			reading, _, err := r.Next()
			if err != nil {
				break
			}
			times = append(times, reading.TimeUnixMs)
		}
		slices.Sort(times)
		if !slices.Equal(times, []int64{996_000, 1_000_000}) {
			t.Errorf("%s: times %v", format, times)
		}
	}
	if _, err := recording.NewShifted(strings.NewReader("time,spo2_pct\n"), recording.CSV,
		recording.Options{Mapping: recording.DefaultMapping(vitals.NewSigns()), Device: device}, 1, nil); err == nil {
		t.Error("a file without readings: got no error")
	}
}

// Seconds would be shifted as milliseconds, and a minute would become 60 ms: no server could
// tell. Integers below 10^11 are rejected as a server rejects them.
//
// Seen to fail with the mutant shift-seconds.
func TestNewShiftedSeconds(t *testing.T) {
	device, err := vitals.ParseName("d")
	try(t, err)
	for format, text := range map[string]string{
		recording.CSV: "time,spo2_pct\n1763719200,97\n0,97\n60,97\n99999999999,97\n100000000000,98\n",
		recording.NDJSON: `{"device":"d","time":1763719200,"spo2_pct":97}` + "\n" + `{"device":"d","time":0,"spo2_pct":97}` +
			"\n" +
			`{"device":"d","time":60,"spo2_pct":97}` + "\n" + `{"device":"d","time":99999999999,"spo2_pct":97}` + "\n" +
			`{"device":"d","time":100000000000,"spo2_pct":98}` + "\n",
	} {
		r, err := recording.NewShifted(strings.NewReader(text), format,
			recording.Options{Mapping: recording.DefaultMapping(vitals.NewSigns()), Device: device}, 1_763_719_200_000, nil)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		for range 4 {
			_, _, err := r.Next()
			if row, ok := errors.AsType[*recording.RowError](err); !ok || row.Field != "time" ||
				!strings.Contains(err.Error(), "looks like seconds; send milliseconds") {
				t.Errorf("%s: got %v, want a time that looks like seconds", format, err)
			}
		}
		if reading, _, err := r.Next(); err != nil || reading.TimeUnixMs != 1_763_719_200_000 {
			t.Errorf("%s: the newest time became %d, %v", format, reading.TimeUnixMs, err)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]string{"a.csv": recording.CSV, "A.CSV": recording.CSV,
		"a.b.ndjson": recording.NDJSON, "a.jsonl": recording.NDJSON, "csv": "", "a.txt": ""} {
		if got := recording.FormatOf(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestDetectFormat(t *testing.T) {
	for text, want := range map[string]string{"": recording.CSV, "time,spo2_pct\n": recording.CSV,
		"{\"time\":1}\n": recording.NDJSON} {
		format, whole, err := recording.DetectFormat(strings.NewReader(text))
		if err != nil || format != want {
			t.Errorf("%q: got %q, %v, want %q", text, format, err, want)
			continue
		}
		if got, err := io.ReadAll(whole); err != nil || string(got) != text {
			t.Errorf("%q: the reader returns %q, %v", text, got, err)
		}
	}
	failed := errors.New("failed")
	if _, _, err := recording.DetectFormat(iotest.ErrReader(failed)); err != failed {
		t.Errorf("got %v, want the reader's error", err)
	}
}

var try = polltest.Try
