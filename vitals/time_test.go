package vitals_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

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
	rfc3339Shape = regexp.MustCompile(
		`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?([Zz]|[+-]([0-9]{2}):([0-9]{2}))?$`)
	integer = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
)

// modelRFC3339 is ParseRFC3339 with time.Parse. The regular expression excludes what
// time.Parse handles differently from RFC 3339:
//
//   - it accepts an hour of one digit and a comma before the fraction;
//   - it accepts offsets of 24 hours and of 60 minutes;
//   - it does not accept lower-case t and z.
//
// The limit of 64 bytes is specific to Pulsegate.
func modelRFC3339(text string) (int64, vitals.UTCOffset, error) {
	m := rfc3339Shape.FindStringSubmatch(text)
	if m == nil || len(text) > 64 {
		return 0, 0, vitals.ErrTimeFormat
	}
	zone := m[1]
	if hours, _ := strconv.Atoi(m[2]); hours > 23 {
		return 0, 0, vitals.ErrTimeFormat
	}
	if minutes, _ := strconv.Atoi(m[3]); minutes > 59 {
		return 0, 0, vitals.ErrTimeFormat
	}
	text = strings.ToUpper(text)
	if zone == "" {
		text += "Z"
	}
	parsed, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return 0, 0, vitals.ErrTimeFormat
	case zone == "":
		return 0, 0, vitals.ErrTimeZone
	case zone == "Z" || zone == "z" || zone == "-00:00":
		return parsed.UnixMilli(), 0, nil
	default:
		_, seconds := parsed.Zone()
		return parsed.UnixMilli(), vitals.MakeUTCOffset(seconds / 60), nil
	}
}

func FuzzTime(f *testing.F) {
	for _, text := range []string{
		"2026-11-21T10:00:00.123Z", "2026-11-21T10:00:00.123999999Z", "2026-11-21T10:00:00.1239999999999999999Z",
		"2026-11-21T11:30:00.123+01:30", "2026-11-21T00:00:00.123-10:00", "2026-11-21t10:00:00.123z",
		"2026-11-21T10:00:00.1Z", "2026-11-21T10:00:00Z", "2026-11-21T10:00:00-00:00", "2026-11-21T10:00:00+00:00",
		"2026-11-21T09:59:00-00:01", "2026-11-21t15:45:00+05:45", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59.9999Z",
		"1970-01-01T23:59:00+23:59", "1969-12-31T00:01:00-23:59", "2024-02-29T00:00:00Z", "2000-02-29T00:00:00Z",
		"0000-01-01T00:00:00Z", "0000-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999Z",
		"2026-11-21T10:00:00." + strings.Repeat("0", 43) + "Z", "2026-11-21T10:00:00", "2026-11-21T10:00:00.123",
		"2026-11-21T10:00:00." + strings.Repeat("0", 44) + "Z", "", "2026-11-21", "2026-11-21T10:00Z",
		"2026-11-21 10:00:00Z", "2026-11-21T10:00:00.Z", "2026-11-21T10:00:00.", "2026-11-21T10:00:00,5Z",
		"2026-11-21T10:00:00+0100", "2026-11-21T10:00:00+01", "2026-11-21T10:00:00+24:00", "2026-11-21T10:00:00+01:60",
		"2026-11-21T10:00:00+1a:00", "2026-11-21T10:00:00ZZ", "2026-11-21T10:00:00Z ", "2026-11-21T24:00:00Z",
		"2026-11-21T10:60:00Z", "2016-12-31T23:59:60Z", "2026-11-31T10:00:00Z", "2026-02-29T10:00:00Z",
		"1900-02-29T10:00:00Z", "2026-00-21T10:00:00Z", "2026-13-21T10:00:00Z", "2026-11-00T10:00:00Z",
		"20a6-11-21T10:00:00Z", "+026-11-21T10:00:00Z", "12026-11-21T10:00:00Z", "1795255205123", "0", "-0", "-1",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809",
		"18446744073709551616", strings.Repeat("9", 1000), "-" + strings.Repeat("9", 1000), "-", "+1", "01", "-01", "00",
		"1.0", "1e3", "1 ", "0x1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, offset, err := vitals.ParseRFC3339(text)
		if same, sameOffset, sameErr := vitals.ParseRFC3339([]byte(text)); same != got || sameOffset != offset ||
			sameErr != err {
			t.Fatalf("ParseRFC3339 of bytes %q = %d, %d, %v; of a string %d, %d, %v", text, same, sameOffset, sameErr,
				got, offset, err)
		}
		want, wantOffset, wantErr := modelRFC3339(text)
		if got != want || offset != wantOffset || err != wantErr {
			t.Fatalf("ParseRFC3339(%q) = %d, %d, %v; want %d, %d, %v", text, got, offset, err, want, wantOffset, wantErr)
		}
		if err == nil {
			// Every text has a local time within the years of RFC 3339.
			again, offsetAgain, err := vitals.ParseTime(vitals.AppendLocalTime(nil, got, offset))
			inYears := offset != 0 || vitals.MinTimeUnixMs <= got && got <= vitals.MaxTimeUnixMs
			if inYears && (again != got || offsetAgain != offset || err != nil) {
				t.Fatalf("%d, %d does not survive a round trip: %d, %d, %v", got, offset, again, offsetAgain, err)
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
