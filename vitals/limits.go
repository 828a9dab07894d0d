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
}

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
		MaxAhead: 5 * time.Minute,
	}
}

// Validate returns an error that wraps [ErrLimits] unless each range runs from
// above 0 to below 655.35, some blood pressure is accepted, and MaxAhead is not
// negative.
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
	return nil
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
