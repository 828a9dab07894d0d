package vitals

import (
	"strconv"
	"time"
)

// AppendJSON appends r to dst as one JSON object without spaces, its fields in the
// order device, time, the signs, gateway. Missing signs and a missing gateway are omitted. The time
// has its offset from UTC, as [AppendLocalTime] writes it. [Decoder.Decode] decodes the object
// to an equal Reading. All signs of r must be in t.
func (t *Signs) AppendJSON(dst []byte, r *Reading) []byte {
	dst = append(dst, `{"device":"`...)
	dst = r.Device.AppendTo(dst) // a name needs no escapes in JSON
	dst = append(dst, `","time":"`...)
	dst = AppendLocalTime(dst, r.TimeUnixMs, r.UTCOffset)
	dst = append(dst, '"')
	dst = t.AppendMembers(dst, &r.Values)
	if !r.Gateway.IsZero() {
		dst = append(dst, `,"gateway":"`...)
		dst = r.Gateway.AppendTo(dst)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// AppendMembers appends values to dst as members of a JSON object, each after a comma. All signs
// must be in t.
func (t *Signs) AppendMembers(dst []byte, values *Values) []byte {
	for rest := values.present; rest != 0; {
		s := First(rest)
		rest &^= 1 << s
		d := t.Of(s)
		dst = AppendDecimal(append(dst, d.member...), values.at[s], d.Decimals)
	}
	return dst
}

// AppendDecimal appends v, which has a number of decimals, to dst as the shortest exact decimal, such
// as 97.5.
func AppendDecimal(dst []byte, v Value, decimals int) []byte {
	if decimals == 2 && uint32(v) < 1000_00 {
		return appendHundredths(dst, uint32(v))
	}
	n := int64(v)
	if n < 0 {
		dst = append(dst, '-')
		n = -n
	}
	unit := powers[decimals]
	whole, fraction := n/unit, n%unit
	dst = strconv.AppendInt(dst, whole, 10)
	if fraction == 0 {
		return dst
	}
	dst = append(dst, '.')
	for fraction != 0 {
		unit /= 10
		dst = append(dst, '0'+byte(fraction/unit))
		fraction %= unit
	}
	return dst
}

// appendHundredths appends v, below 1000.00, which is most values.
func appendHundredths(dst []byte, v uint32) []byte {
	whole, cents := v/100, v%100
	switch {
	case whole >= 100:
		dst = append(dst, '0'+byte(whole/100), '0'+byte(whole/10%10), '0'+byte(whole%10))
	case whole >= 10:
		dst = append(dst, '0'+byte(whole/10), '0'+byte(whole%10))
	default:
		dst = append(dst, '0'+byte(whole))
	}
	if cents == 0 {
		return dst
	}
	dst = append(dst, '.', '0'+byte(cents/10))
	if cents%10 != 0 {
		dst = append(dst, '0'+byte(cents%10))
	}
	return dst
}

// powers has powers of ten, by the number of decimals. It is never modified.
var powers = [MaxDecimals + 1]int64{1, 10, 100, 1000}

// AppendTime appends a time, in ms since 1970-01-01T00:00:00Z, to dst as an unquoted
// RFC 3339 time in UTC with milliseconds, such as 2026-11-21T10:00:00.123Z.
//
// RFC 3339 and readings are limited to the years up to 9999. For times outside
// [MinTimeUnixMs] to [MaxTimeUnixMs], AppendTime writes the expanded years of ISO 8601:
// a sign and at least six digits.
func AppendTime(dst []byte, unixMs int64) []byte {
	t := time.UnixMilli(unixMs).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	ms := t.Nanosecond() / int(time.Millisecond)
	switch {
	case 0 <= year && year <= 9999:
		dst = appendTwo(dst, year/100)
		dst = appendTwo(dst, year%100)
	default:
		sign := byte('+')
		if year < 0 {
			sign, year = '-', -year
		}
		dst = append(dst, sign)
		for least := 100_000; least > max(year, 1); least /= 10 {
			dst = append(dst, '0')
		}
		dst = strconv.AppendInt(dst, int64(year), 10)
	}
	dst = appendTwo(append(dst, '-'), int(month))
	dst = appendTwo(append(dst, '-'), day)
	dst = appendTwo(append(dst, 'T'), hour)
	dst = appendTwo(append(dst, ':'), minute)
	dst = appendTwo(append(dst, ':'), second)
	dst = append(dst, '.', '0'+byte(ms/100))
	dst = appendTwo(dst, ms%100)
	return append(dst, 'Z')
}

// AppendLocalTime appends a time to dst like [AppendTime], but in local time with its offset,
// such as 2026-11-21T12:00:00.123+02:00, if the offset is known. It appends it in UTC if the
// year of the local time is not within 0 to 9999, to which RFC 3339 is limited.
func AppendLocalTime(dst []byte, unixMs int64, offset UTCOffset) []byte {
	minutes, ok := offset.Minutes()
	localMs := unixMs + int64(minutes)*60_000
	if !ok || localMs < MinTimeUnixMs || localMs > MaxTimeUnixMs {
		return AppendTime(dst, unixMs)
	}
	dst = AppendTime(dst, localMs)
	sign := byte('+')
	if minutes < 0 {
		sign, minutes = '-', -minutes
	}
	dst = appendTwo(append(dst[:len(dst)-len("Z")], sign), minutes/60)
	return appendTwo(append(dst, ':'), minutes%60)
}

// appendTwo appends n, 0 to 99, as two digits.
func appendTwo(dst []byte, n int) []byte {
	return append(dst, '0'+byte(n/10), '0'+byte(n%10))
}
