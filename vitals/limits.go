package vitals

import (
	"errors"
	"fmt"
	"time"
)

// ErrLimits is wrapped by errors about invalid limits.
var ErrLimits = errors.New("bad limits")

// A Range is an inclusive range of values of one sign.
type Range struct {
	Min, Max Value
}

// Contains reports whether v is in r.
func (r Range) Contains(v Value) bool { return r.Min <= v && v <= r.Max }

// Limits define which readings are accepted.
type Limits struct {
	// Signs has the signs. A retired one is an unknown field.
	Signs *Signs

	// Accepted has the range of each sign. A value outside is rejected, never clamped.
	// Zero outside is rejected with [ErrNoSignal].
	Accepted [MaxSigns]Range

	// MaxAhead is how far a reading's time may be ahead of the server's clock,
	// truncated to milliseconds.
	MaxAhead time.Duration

	// MaxAge is how old a reading's time may be, truncated to milliseconds. 0 means any
	// time since OldestUnixMs.
	MaxAge time.Duration

	// OldestUnixMs is the oldest accepted time, in ms since 1970. Devices whose clock
	// was never set send times of 1970 or 2000. 0 accepts any time since 1970. Otherwise
	// an integer below 10^11 is rejected, because it looks like seconds.
	OldestUnixMs int64
}

// DefaultOldestUnixMs is 2001-01-01T00:00:00Z, in ms since 1970.
const DefaultOldestUnixMs = 978_307_200_000

// leastPercentage is the least SpO2, in %, that does not look like a fraction.
const leastPercentage = 2

// minPlausibleUnixMs is the smallest integer accepted as milliseconds: 10^11 ms is in
// 1973, and 10^11 s is in the year 5138.
const minPlausibleUnixMs = 100_000_000_000

// A timeSpan is the inclusive range of accepted times at some moment. Integers below
// leastInteger look like seconds.
type timeSpan struct{ earliestUnixMs, latestUnixMs, leastInteger int64 }

// DefaultLimits returns the default limits for the signs of t.
//
// The ranges are wide on purpose: standards specify a device's accuracy, not what to reject, so only values that
// hardly any living wearer produces are rejected; docs/signs.md names known values. Those of rates, pressures and the
// saturation also exclude 2046, 2047 and 2048, as which careless gateways decode the special values of the Bluetooth
// SFLOAT type (IEEE 11073-20601: +infinity, not a number, not at this resolution). An SpO2 below 2 % is probably a
// fraction, of which 1 is 100 %. Because gateway clocks drift, times may be five minutes ahead.
func (t *Signs) DefaultLimits() Limits {
	l := Limits{Signs: t, MaxAhead: 5 * time.Minute, OldestUnixMs: DefaultOldestUnixMs}
	for s, d := range t.All() {
		l.Accepted[s] = d.Accepted
	}
	return l
}

// WidestLimits returns the limits that accept every value that stores can keep, at every time
// since 1970.
func (t *Signs) WidestLimits() Limits {
	l := Limits{Signs: t}
	for s, d := range t.All() {
		l.Accepted[s] = Range{MinValue + 1, MaxValue - 1}
		if !d.own {
			l.Accepted[s].Min = 1
		}
	}
	return l
}

// Validate returns an error that wraps [ErrLimits] unless there are signs, each range of a built-in
// sign starts above 0, each range ends after it starts and has ends, some blood pressure is acceptable,
// MaxAhead and MaxAge are not negative, and OldestUnixMs is in the years 1970 to 9999.
func (l *Limits) Validate() error {
	if l.Signs == nil {
		return fmt.Errorf("%w: no signs", ErrLimits)
	}
	for s, d := range l.Signs.All() {
		switch r := l.Accepted[s]; {
		case !d.own && r.Min <= 0:
			return fmt.Errorf("%w: %s: the range does not start above 0, which means no signal", ErrLimits, d.Field)
		case r.Min > r.Max:
			return fmt.Errorf("%w: %s: the range ends before it starts", ErrLimits, d.Field)
		case r.Min == MinValue, r.Max == MaxValue:
			return fmt.Errorf("%w: %s: the range has no end", ErrLimits, d.Field)
		}
	}
	for _, p := range Pairs {
		if l.Accepted[p.High].Max <= l.Accepted[p.Low].Min {
			return fmt.Errorf("%w: no %s is above any %s", ErrLimits, l.Signs.Field(p.High), l.Signs.Field(p.Low))
		}
	}
	if l.MaxAhead < 0 {
		return fmt.Errorf("%w: MaxAhead is %v, want at least 0", ErrLimits, l.MaxAhead)
	}
	if l.MaxAge < 0 {
		return fmt.Errorf("%w: MaxAge is %v, want at least 0", ErrLimits, l.MaxAge)
	}
	if l.OldestUnixMs < 0 || l.OldestUnixMs > MaxTimeUnixMs {
		return fmt.Errorf("%w: the oldest time is not in the years 1970 to 9999", ErrLimits)
	}
	return nil
}

// AcceptsTime reports whether a time is accepted at nowUnixMs.
func (l *Limits) AcceptsTime(unixMs, nowUnixMs int64) bool {
	span := l.times(nowUnixMs)
	return unixMs >= span.earliestUnixMs && unixMs <= span.latestUnixMs
}

// ParseTime parses a time as the function [ParseTime] does. It rejects an integer that looks like seconds with
// [ErrSeconds], and one that looks like microseconds or nanoseconds with [ErrFiner].
func (l *Limits) ParseTime(text string) (unixMs int64, offset UTCOffset, err error) {
	unixMs, offset, err = ParseTime(text)
	_, notInteger := ParseUnixMs(text)
	switch {
	case err == ErrFuture, notInteger == nil && unixMs > MaxTimeUnixMs:
		err = ErrFiner
	case err == nil && notInteger == nil && unixMs < l.times(0).leastInteger:
		err = ErrSeconds
	}
	return unixMs, offset, err
}

// times returns the accepted times at nowUnixMs.
func (l *Limits) times(nowUnixMs int64) timeSpan {
	span := timeSpan{latestUnixMs: l.latestUnixMs(nowUnixMs), earliestUnixMs: l.OldestUnixMs}
	if age := l.MaxAge.Milliseconds(); age > 0 && nowUnixMs > age {
		span.earliestUnixMs = max(span.earliestUnixMs, nowUnixMs-age)
	}
	if l.OldestUnixMs > 0 {
		span.leastInteger = minPlausibleUnixMs
	}
	return span
}

// days formats a duration, in days if it is a whole number of days.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "1 day"
	case d > 0 && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	default:
		return d.String()
	}
}

// latestUnixMs returns the latest accepted time at nowUnixMs. It is always
// representable in RFC 3339.
func (l *Limits) latestUnixMs(nowUnixMs int64) int64 {
	ahead := l.MaxAhead.Milliseconds()
	if nowUnixMs > MaxTimeUnixMs-ahead {
		return MaxTimeUnixMs
	}
	return nowUnixMs + ahead
}
