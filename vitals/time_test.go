package vitals_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

func TestParseRFC3339(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		err  error
	}{
		{"2026-11-21T10:00:00.123Z", nowUnixMs - 5000, nil},
		{"2026-11-21T10:00:00.123999999Z", nowUnixMs - 5000, nil}, // truncated, not rounded
		{"2026-11-21T10:00:00.1239999999999999999Z", nowUnixMs - 5000, nil},
		{"2026-11-21T11:30:00.123+01:30", nowUnixMs - 5000, nil},
		{"2026-11-21T00:00:00.123-10:00", nowUnixMs - 5000, nil},
		{"2026-11-21t10:00:00.123z", nowUnixMs - 5000, nil},
		{"2026-11-21T10:00:00.1Z", nowUnixMs - 5023, nil},
		{"2026-11-21T10:00:00Z", nowUnixMs - 5123, nil},
		{"2026-11-21T10:00:00-00:00", nowUnixMs - 5123, nil},
		{"1970-01-01T00:00:00Z", 0, nil},
		{"1969-12-31T23:59:59.9999Z", -1, nil}, // truncated towards the past
		{"1970-01-01T23:59:00+23:59", 0, nil},
		{"1969-12-31T00:01:00-23:59", 0, nil},
		{"2024-02-29T00:00:00Z", 1_709_164_800_000, nil},
		{"2000-02-29T00:00:00Z", 951_782_400_000, nil},
		{"0000-01-01T00:00:00Z", vitals.MinTimeUnixMs, nil},
		{"0000-01-01T00:00:00+23:59", vitals.MinTimeUnixMs - 86_340_000, nil},
		{"9999-12-31T23:59:59.999Z", vitals.MaxTimeUnixMs, nil},
		{"2026-11-21T10:00:00." + strings.Repeat("0", 43) + "Z", nowUnixMs - 5123, nil},

		{"2026-11-21T10:00:00", 0, vitals.ErrTimeZone},
		{"2026-11-21T10:00:00.123", 0, vitals.ErrTimeZone},

		{"2026-11-21T10:00:00." + strings.Repeat("0", 44) + "Z", 0, vitals.ErrTimeFormat}, // too long
		{"", 0, vitals.ErrTimeFormat},
		{"2026-11-21", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00Z", 0, vitals.ErrTimeFormat},
		{"2026-11-21 10:00:00Z", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00.Z", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00.", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00,5Z", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00+0100", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00+01", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00+24:00", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00+01:60", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00+1a:00", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00ZZ", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:00:00Z ", 0, vitals.ErrTimeFormat},
		{"2026-11-21T24:00:00Z", 0, vitals.ErrTimeFormat},
		{"2026-11-21T10:60:00Z", 0, vitals.ErrTimeFormat},
		{"2016-12-31T23:59:60Z", 0, vitals.ErrTimeFormat}, // a true leap second
		{"2026-11-31T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"2026-02-29T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"1900-02-29T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"2026-00-21T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"2026-13-21T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"2026-11-00T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"20a6-11-21T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"+026-11-21T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"12026-11-21T10:00:00Z", 0, vitals.ErrTimeFormat},
		{"1795255205123", 0, vitals.ErrTimeFormat},
	} {
		if got, err := vitals.ParseRFC3339(tt.text); got != tt.want || err != tt.err {
			t.Errorf("ParseRFC3339(%q) = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
		if got, err := vitals.ParseRFC3339([]byte(tt.text)); got != tt.want || err != tt.err {
			t.Errorf("ParseRFC3339 of bytes %q = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
}

func TestParseUnixMs(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		err  error
	}{
		{"1795255205123", nowUnixMs, nil},
		{"0", 0, nil},
		{"-0", 0, nil},
		{"-1", -1, nil},
		{"9223372036854775807", math.MaxInt64, nil},
		{"-9223372036854775808", math.MinInt64, nil},
		{"9223372036854775808", 0, vitals.ErrFuture},
		{"-9223372036854775809", 0, vitals.ErrPast},
		{"18446744073709551616", 0, vitals.ErrFuture},
		{strings.Repeat("9", 1000), 0, vitals.ErrFuture},
		{"-" + strings.Repeat("9", 1000), 0, vitals.ErrPast},
		{"", 0, vitals.ErrTimeFormat},
		{"-", 0, vitals.ErrTimeFormat},
		{"+1", 0, vitals.ErrTimeFormat},
		{"01", 0, vitals.ErrTimeFormat},
		{"-01", 0, vitals.ErrTimeFormat},
		{"00", 0, vitals.ErrTimeFormat},
		{"1.0", 0, vitals.ErrTimeFormat},
		{"1e3", 0, vitals.ErrTimeFormat},
		{"1 ", 0, vitals.ErrTimeFormat},
		{"0x1", 0, vitals.ErrTimeFormat},
	} {
		if got, err := vitals.ParseUnixMs(tt.text); got != tt.want || err != tt.err {
			t.Errorf("ParseUnixMs(%.30q) = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
}

func TestParseTime(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		err  error
	}{
		{"2026-11-21T10:00:05.123Z", nowUnixMs, nil},
		{"1795255205123", nowUnixMs, nil},
		{"-5", -5, nil},
		{"-1795255205123", -nowUnixMs, nil},
		{"2026-11-21T10:00:05.123", 0, vitals.ErrTimeZone},
		{"2026-11-21", 0, vitals.ErrTimeFormat},
		{"2026", 2026, nil},
		{"yesterday", 0, vitals.ErrTimeFormat},
		{"", 0, vitals.ErrTimeFormat},
	} {
		if got, err := vitals.ParseTime(tt.text); got != tt.want || err != tt.err {
			t.Errorf("ParseTime(%q) = %d, %v; want %d, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
}

// TestEveryDay formats and parses each day of one 400-year cycle of the calendar, and
// every 11th day of the others.
func TestEveryDay(t *testing.T) {
	day := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	const noon = 12*3_600_000 + 34*60_000 + 56*1000 + 789
	var text, want []byte
	step := 1
	for ; day.Year() < 10_000; day = day.AddDate(0, 0, step) {
		if step = 11; day.Year() >= 1970 && day.Year() <= 2370 {
			step = 1
		}
		ms := day.UnixMilli() + noon
		text = vitals.AppendTime(text[:0], ms)
		want = append(day.AppendFormat(want[:0], "2006-01-02"), "T12:34:56.789Z"...)
		if string(text) != string(want) {
			t.Fatalf("AppendTime(%d) = %q, want %q", ms, text, want)
		}
		if got, err := vitals.ParseRFC3339(text); got != ms || err != nil {
			t.Fatalf("ParseRFC3339(%q) = %d, %v; want %d", text, got, err, ms)
		}
	}
}

func TestAppendTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(vitals.MinTimeUnixMs, vitals.MaxTimeUnixMs).Draw(t, "ms")
		got := string(vitals.AppendTime([]byte("x"), ms))
		want := "x" + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
		if got != want {
			t.Errorf("AppendTime(%d) = %q, want %q", ms, got, want)
		}
		if back, err := vitals.ParseRFC3339(got[1:]); back != ms || err != nil {
			t.Errorf("ParseRFC3339(%q) = %d, %v; want %d", got[1:], back, err, ms)
		}
	})
}

// TestAppendTimeBeyond checks years that are not representable in RFC 3339.
func TestAppendTimeBeyond(t *testing.T) {
	for _, tt := range []struct {
		ms   int64
		want string
	}{
		{vitals.MaxTimeUnixMs + 1, "+010000-01-01T00:00:00.000Z"},
		{vitals.MinTimeUnixMs - 1, "-000001-12-31T23:59:59.999Z"},
		{8_640_000_000_000_000, "+275760-09-13T00:00:00.000Z"}, // the last Date of ECMAScript
		{-8_640_000_000_000_000, "-271821-04-20T00:00:00.000Z"},
		{math.MaxInt64, "+292278994-08-17T07:12:55.807Z"},
		{math.MinInt64, "-292275055-05-16T16:47:04.192Z"},
	} {
		if got := string(vitals.AppendTime(nil, tt.ms)); got != tt.want {
			t.Errorf("AppendTime(%d) = %q, want %q", tt.ms, got, tt.want)
		}
	}
}

var (
	rfc3339Shape = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?([Zz]|[+-]([0-9]{2}):([0-9]{2}))?$`)
	integer      = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
)

// modelRFC3339 is ParseRFC3339 with time.Parse. The regular expression excludes what
// time.Parse handles differently from RFC 3339:
//
//   - it accepts an hour of one digit and a comma before the fraction;
//   - it accepts offsets of 24 hours and of 60 minutes;
//   - it does not accept lower-case t and z.
//
// The limit of 64 bytes is specific to Pulsegate.
func modelRFC3339(text string) (int64, error) {
	m := rfc3339Shape.FindStringSubmatch(text)
	if m == nil || len(text) > 64 {
		return 0, vitals.ErrTimeFormat
	}
	zone := m[1]
	if hours, _ := strconv.Atoi(m[2]); hours > 23 {
		return 0, vitals.ErrTimeFormat
	}
	if minutes, _ := strconv.Atoi(m[3]); minutes > 59 {
		return 0, vitals.ErrTimeFormat
	}
	text = strings.ToUpper(text)
	if zone == "" {
		text += "Z"
	}
	parsed, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return 0, vitals.ErrTimeFormat
	case zone == "":
		return 0, vitals.ErrTimeZone
	default:
		return parsed.UnixMilli(), nil
	}
}

func FuzzTime(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		got, err := vitals.ParseRFC3339(text)
		want, wantErr := modelRFC3339(text)
		if got != want || err != wantErr {
			t.Fatalf("ParseRFC3339(%q) = %d, %v; want %d, %v", text, got, err, want, wantErr)
		}
		if err == nil {
			again, err := vitals.ParseTime(vitals.AppendTime(nil, got))
			if inYears := vitals.MinTimeUnixMs <= got && got <= vitals.MaxTimeUnixMs; inYears && (again != got || err != nil) {
				t.Fatalf("%d does not survive a round trip: %d, %v", got, again, err)
			}
		}

		got, err = vitals.ParseUnixMs(text)
		number, overflow := strconv.ParseInt(text, 10, 64)
		switch {
		case !integer.MatchString(text):
			want, wantErr = 0, vitals.ErrTimeFormat
		case overflow != nil && text[0] == '-':
			want, wantErr = 0, vitals.ErrPast
		case overflow != nil:
			want, wantErr = 0, vitals.ErrFuture
		default:
			want, wantErr = number, nil
		}
		if got != want || err != wantErr {
			t.Fatalf("ParseUnixMs(%q) = %d, %v; want %d, %v", text, got, err, want, wantErr)
		}
	})
}
