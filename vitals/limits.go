package vitals

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrLimits is wrapped by errors about invalid limits.
var ErrLimits = errors.New("vitals: bad limits")

// A Range is an inclusive range of values in the unit of their sign.
type Range struct {
	Min, Max Hundredths
}

// Contains reports whether v is in r.
func (r Range) Contains(v Hundredths) bool { return r.Min <= v && v <= r.Max }

// String returns the range as text, such as "1..100".
func (r Range) String() string {
	return string(AppendHundredths(append(AppendHundredths(nil, r.Min), ".."...), r.Max))
}

// MarshalText returns the range as text, such as "1..100".
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the format of MarshalText.
func (r *Range) UnmarshalText(text []byte) error {
	low, high, ok := strings.Cut(string(text), "..")
	if !ok {
		return fmt.Errorf("%w: a range is written MIN..MAX", ErrLimits)
	}
	minimum, err := ParseHundredths(low)
	if err != nil {
		return fmt.Errorf("%w: start of range: %w", ErrLimits, err)
	}
	maximum, err := ParseHundredths(high)
	if err != nil {
		return fmt.Errorf("%w: end of range: %w", ErrLimits, err)
	}
	*r = Range{minimum, maximum}
	return nil
}

// Limits define which readings are accepted.
type Limits struct {
	// Accepted has the range of each sign. A value outside is rejected, never clamped.
	// Zero is always rejected with [ErrNoSignal].
	Accepted [NumSigns]Range

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

// minPlausibleUnixMs is the smallest integer accepted as milliseconds: 10^11 ms is in
// 1973, and 10^11 s is in the year 5138.
const minPlausibleUnixMs = 100_000_000_000

// A timeSpan is the inclusive range of accepted times at some moment. Integers below
// leastInteger look like seconds.
type timeSpan struct{ earliestUnixMs, latestUnixMs, leastInteger int64 }

// DefaultLimits returns the default limits.
//
// The ranges are wide on purpose: standards specify a device's accuracy, not what to
// reject, so only values that no living wearer produces are rejected. They also exclude
// 2046, 2047 and 2048, as which careless gateways decode the special values of the
// Bluetooth SFLOAT type (IEEE 11073-20601: +infinity, not a number, not at this
// resolution). Because gateway clocks drift, times may be five minutes ahead.
func DefaultLimits() Limits {
	return Limits{
		Accepted: [NumSigns]Range{
			Systolic:         {40_00, 300_00},
			Diastolic:        {20_00, 250_00},
			SpO2:             {1_00, 100_00},
			HeartRate:        {20_00, 300_00},
			RestingHeartRate: {20_00, 300_00},
		},
		MaxAhead:     5 * time.Minute,
		OldestUnixMs: DefaultOldestUnixMs,
	}
}

// Validate returns an error that wraps [ErrLimits] unless each range starts above 0 and
// ends below 655.35, some blood pressure is acceptable, MaxAhead and MaxAge are not
// negative, and OldestUnixMs is in the years 1970 to 9999.
func (l *Limits) Validate() error {
	for s, r := range l.Accepted {
		switch sign := Sign(s); {
		case r.Min == 0:
			return fmt.Errorf("%w: %s: the range starts at 0, which means no signal", ErrLimits, sign)
		case r.Min > r.Max:
			return fmt.Errorf("%w: %s: the range ends before it starts", ErrLimits, sign)
		case r.Max == maxHundredths:
			return fmt.Errorf("%w: %s: the range does not end below 655.35", ErrLimits, sign)
		}
	}
	if l.Accepted[Systolic].Max <= l.Accepted[Diastolic].Min {
		return fmt.Errorf("%w: no systolic pressure is above any diastolic one", ErrLimits)
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
