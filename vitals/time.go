package vitals

import (
	"math"
	"time"
)

// MaxTimeBytes is the maximum length of a text that is parsed as a time. RFC 3339 does
// not limit the number of fractional digits.
const MaxTimeBytes = 64

// The first and the last time representable in RFC 3339, in ms since
// 1970-01-01T00:00:00Z.
const (
	MinTimeUnixMs = -62_167_219_200_000 // 0000-01-01T00:00:00.000Z
	MaxTimeUnixMs = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

// ParseTime parses a time and returns it in ms since 1970-01-01T00:00:00Z, with its offset
// from UTC. The text is either an RFC 3339 time with zone, see [ParseRFC3339], or integer
// Unix milliseconds, see [ParseUnixMs], which have no offset.
func ParseTime[T ~string | ~[]byte](text T) (unixMs int64, offset UTCOffset, err error) {
	// An RFC 3339 time has a - after its year; an integer has a - only in front.
	if len(text) > 4 && text[4] == '-' {
		return ParseRFC3339(text)
	}
	unixMs, err = ParseUnixMs(text)
	return unixMs, 0, err
}

// ParseUnixMs parses an integer in the JSON spelling: no leading zeros, no plus sign,
// no exponent.
//
// It returns [ErrTimeFormat] for any other text, and [ErrPast] or [ErrFuture] for an
// integer that does not fit into an int64.
func ParseUnixMs[T ~string | ~[]byte](text T) (unixMs int64, err error) {
	i, most := 0, uint64(math.MaxInt64)
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		i, most = 1, most+1
	}
	start := i
	n, overflow := uint64(0), false
	for ; i < len(text) && isDigit(text[i]); i++ {
		digit := uint64(text[i] - '0')
		overflow = overflow || n > (most-digit)/10
		n = n*10 + digit
	}
	switch {
	case i == start || i != len(text) || text[start] == '0' && i > start+1:
		return 0, ErrTimeFormat
	case overflow && negative:
		return 0, ErrPast
	case overflow:
		return 0, ErrFuture
	case negative:
		return -int64(n), nil
	default:
		return int64(n), nil
	}
}

// ParseRFC3339 parses a time in the date-time format of RFC 3339 and returns it in ms
// since 1970-01-01T00:00:00Z, with its offset from UTC. Digits finer than a millisecond are
// truncated towards the past.
//
// T and Z may be in lower case (RFC 3339, section 5.6); no other separator replaces T.
// Offsets are from -23:59 to +23:59. Z and -00:00 mean UTC and an unknown offset, which is
// returned as 0; +00:00 is a known one. A leap second, :60, is rejected: Unix time has no number for it, and any
// substitute belongs to another second.
//
// It returns [ErrTimeZone] for a date and time without a zone, and
// [ErrTimeFormat] for any other text and for texts of more than [MaxTimeBytes].
func ParseRFC3339[T ~string | ~[]byte](text T) (unixMs int64, offset UTCOffset, err error) {
	const secondEnd = len("2006-01-02T15:04:05")
	if len(text) < secondEnd || len(text) > MaxTimeBytes {
		return 0, 0, ErrTimeFormat
	}
	if text[4] != '-' || text[7] != '-' || text[10]|0x20 != 't' || text[13] != ':' || text[16] != ':' {
		return 0, 0, ErrTimeFormat
	}
	century, year := twoDigits(text, 0), twoDigits(text, 2)
	month, day := twoDigits(text, 5), twoDigits(text, 8)
	hour, minute, second := twoDigits(text, 11), twoDigits(text, 14), twoDigits(text, 17)
	if century|year|month|day|hour|minute|second < 0 {
		return 0, 0, ErrTimeFormat
	}
	year += century * 100
	date := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if month < 1 || month > 12 || day != date.Day() || hour > 23 || minute > 59 || second > 59 {
		return 0, 0, ErrTimeFormat // the month does not have the day, for one
	}

	i := secondEnd
	ms := 0
	if i < len(text) && text[i] == '.' {
		i++
		start := i
		for place := 100; i < len(text) && isDigit(text[i]); i++ {
			ms += place * int(text[i]-'0')
			place /= 10
		}
		if i == start {
			return 0, 0, ErrTimeFormat
		}
	}

	offsetMinutes := 0
	switch rest := len(text) - i; {
	case rest == 0:
		return 0, 0, ErrTimeZone
	case rest == 1 && text[i]|0x20 == 'z':
	case rest == len("+00:00") && (text[i] == '+' || text[i] == '-') && text[i+3] == ':':
		h, m := twoDigits(text, i+1), twoDigits(text, i+4)
		if h|m < 0 || h > 23 || m > 59 {
			return 0, 0, ErrTimeFormat
		}
		if offsetMinutes = h*60 + m; text[i] == '-' {
			offsetMinutes = -offsetMinutes
		}
		if offsetMinutes != 0 || text[i] == '+' {
			offset = UTCOffset(offsetMinutes + utcOffsetBias)
		}
	default:
		return 0, 0, ErrTimeFormat
	}

	return (date.Unix()-int64(offsetMinutes)*60)*1000 + int64(ms), offset, nil
}

// twoDigits returns the two-digit number at text[i:i+2], or -1.
func twoDigits[T ~string | ~[]byte](text T, i int) int {
	tens, ones := text[i]-'0', text[i+1]-'0'
	if tens > 9 || ones > 9 {
		return -1
	}
	return int(tens)*10 + int(ones)
}
