package vitals

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrLimits is wrapped by the errors of limits that make no sense.
var ErrLimits = errors.New("vitals: bad limits")

// A Range is a range of values in the unit of their sign, both ends included.
type Range struct {
	Min, Max Hundredths
}

// Contains reports whether v lies in r.
func (r Range) Contains(v Hundredths) bool { return r.Min <= v && v <= r.Max }

// String returns the range as text, such as "1..100".
func (r Range) String() string {
	return string(AppendHundredths(append(AppendHundredths(nil, r.Min), ".."...), r.Max))
}

// MarshalText returns the range as text, such as "1..100".
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText writes.
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

// Limits say which readings are accepted.
type Limits struct {
	// Accepted holds the range of each sign. A value outside is refused, never
	// clamped. A zero is refused as [ErrNoSignal] whatever the range.
	Accepted [NumSigns]Range

	// MaxAhead is how far a reading's time may lie ahead of the server's clock.
	// Parts of a millisecond do not count.
	MaxAhead time.Duration

	// MaxAge is how far it may lie behind, in whole milliseconds. 0 means any time
	// from OldestUnixMs on.
	MaxAge time.Duration

	// OldestUnixMs is the oldest time that is accepted, in ms since 1970. Devices whose
	// clock was never set send times of 1970 or 2000. Unless it is 0, which accepts any
	// time since 1970, an integer below 10^11 is refused as one that looks like seconds.
	OldestUnixMs int64
}

// DefaultOldestUnixMs is 2001-01-01T00:00:00Z, in ms since 1970.
const DefaultOldestUnixMs = 978_307_200_000

// minPlausibleUnixMs is the least integer that is taken for milliseconds: 10^11 ms are
// in 1973, and 10^11 s in the year 5138.
const minPlausibleUnixMs = 100_000_000_000

// A timeSpan holds the times that are accepted at some moment, both included.
// Integers below leastInteger look like seconds.
type timeSpan struct{ earliestUnixMs, latestUnixMs, leastInteger int64 }

// DefaultLimits returns the limits that hold unless others are configured.
//
// The ranges are wide on purpose: standards state a device's accuracy, not what
// to reject, so only what no living wearer produces is refused. They also leave
// out 2046, 2047 and 2048, as which careless gateways decode the special values
// of the Bluetooth SFLOAT type (IEEE 11073-20601: +infinity, not a number, not
// at this resolution). Gateways' clocks drift; five minutes ahead are allowed.
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

// Validate returns an error that wraps [ErrLimits] unless each range runs from
// above 0 to below 655.35, some blood pressure is accepted, MaxAhead and MaxAge are not
// negative, and OldestUnixMs is from 1970 to 9999.
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
		return fmt.Errorf("%w: times may lie %v ahead", ErrLimits, l.MaxAhead)
	}
	if l.MaxAge < 0 {
		return fmt.Errorf("%w: times may lie %v behind", ErrLimits, l.MaxAge)
	}
	if l.OldestUnixMs < 0 || l.OldestUnixMs > MaxTimeUnixMs {
		return fmt.Errorf("%w: the oldest time is not of the years 1970 to 9999", ErrLimits)
	}
	return nil
}

// times returns the times that are accepted when the clock shows nowUnixMs.
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

// days returns a time as text, in days where it is a whole number of them.
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

// latestUnixMs returns the latest time that is accepted when the clock shows
// nowUnixMs. It is never one that RFC 3339 cannot write.
func (l *Limits) latestUnixMs(nowUnixMs int64) int64 {
	ahead := l.MaxAhead.Milliseconds()
	if nowUnixMs > MaxTimeUnixMs-ahead {
		return MaxTimeUnixMs
	}
	return nowUnixMs + ahead
}
