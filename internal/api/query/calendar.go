package query

import (
	"math"
	"strconv"
	"time"
)

const (
	secondMs = 1000

	// anyTransitionMs is longer than the clock of any zone has been changed by at once,
	// which is 24 h, at the date line.
	anyTransitionMs = 2 * msPerDay

	// maxStep is the longest step.
	maxStep     = "366d"
	maxStepDays = 366

	// mondayMs is a Monday at midnight, from which steps of several days are counted, so
	// that weeks begin on Mondays.
	mondayMs = -3 * msPerDay // 1969-12-29
)

// errStep explains which steps there are.
const errStep = "neither a divisor of a day in s, m or h, such as 15m, nor 1 to 366 days or whole weeks, such " +
	"as 1d or 1w"

// parseStep parses the length of a bucket and returns it in ms.
func parseStep(text string) (stepMs int64, ok bool) {
	n, unit, ok := parseUnits(text)
	stepMs = n * unit // below 2^32 weeks in ms
	whole := stepMs%msPerDay == 0 && stepMs <= maxStepDays*msPerDay
	return stepMs, ok && n > 0 && (whole || stepMs < msPerDay && msPerDay%stepMs == 0)
}

// parseUnits parses a number and its unit, such as 15m, and returns the unit in ms.
func parseUnits(text string) (n, unit int64, ok bool) {
	if text == "" {
		return 0, 0, false
	}
	end := len(text) - 1
	unit, ok = unitMs[text[end]]
	number, err := strconv.ParseUint(text[:end], 10, 32)
	return int64(number), unit, ok && err == nil
}

// unitMs has the units of steps and of relative times. It is never modified.
var unitMs = map[byte]int64{'s': secondMs, 'm': 60 * secondMs, 'h': 60 * 60 * secondMs, 'd': msPerDay,
	'w': 7 * msPerDay}

// A span is a time during which the offset of a zone from UTC does not change.
type span struct {
	endMs    int64 // exclusive, Unix ms
	offsetMs int64
}

func spanAt(unixMs int64, zone *time.Location) span {
	t := time.UnixMilli(unixMs).In(zone)
	_, offset := t.Zone()
	s := span{endMs: math.MaxInt64, offsetMs: int64(offset) * secondMs}
	if _, end := t.ZoneBounds(); !end.IsZero() {
		s.endMs = end.UnixMilli()
	}
	if s.endMs <= unixMs {
		// After the years that a zone's file lists, ZoneBounds lets each year end after 365
		// days (go1.26). No zone changes its clock on the 366th.
		s.endMs = unixMs + msPerDay
	}
	return s
}

// firstInstant returns the first instant at which the clock of a zone shows wallMs or a
// later time. wallMs is what the clock shows, in ms, counted as if the zone were UTC.
func firstInstant(wallMs int64, zone *time.Location) int64 {
	from := wallMs - anyTransitionMs
	for {
		s := spanAt(from, zone)
		if at := wallMs - s.offsetMs; at < s.endMs {
			return max(at, from)
		}
		from = s.endMs
	}
}

// A calendar divides time into buckets that are aligned with the clock of a zone.
//
// A bucket begins where the clock shows a multiple of the step for the first time, or
// passes it because it is set forward. So a day has 23 or 25 hours when summer time
// begins or ends, a bucket of 6 h has 5 or 7, and a day that the zone skipped has none. A
// change of the clock by a multiple of the step moves no boundary: where the clock is set
// back by an hour, buckets of an hour or less have their normal length, and some begin at
// the same time of day.
//
// Buckets are visited in ascending order. Inside of the current bucket, from <= time < to,
// the caller compares Unix ms and does not need the calendar.
type calendar struct {
	zone   *time.Location
	stepMs int64
	fromMs int64 // of the current bucket, inclusive
	toMs   int64 // of the current bucket, exclusive

	// current is the span that contains toMs, or begins there. wallOffsetMs is its offset,
	// changed by a multiple of the step if the clock was changed by one.
	current      span
	wallOffsetMs int64
}

// newCalendar returns a calendar whose current bucket contains a time.
func newCalendar(unixMs, stepMs int64, zone *time.Location) *calendar {
	c := &calendar{zone: zone, stepMs: stepMs}
	// Start early enough for a regular boundary before the bucket.
	start := unixMs - stepMs - anyTransitionMs
	c.current = spanAt(start, zone)
	c.wallOffsetMs = c.current.offsetMs
	c.fromMs = c.floor(start)
	c.findEnd()
	c.seek(unixMs)
	return c
}

// seek moves to the bucket that contains a time, which must not be before the current one.
func (c *calendar) seek(unixMs int64) {
	for unixMs >= c.toMs {
		// Within a span, boundaries are at equal distances.
		c.fromMs = max(c.toMs, c.floor(min(unixMs, c.current.endMs-1)))
		c.findEnd()
	}
}

// floor returns the last multiple of the step that the clock shows up to a time in the
// current span, if that span were infinite.
func (c *calendar) floor(unixMs int64) int64 {
	wall := unixMs + c.wallOffsetMs - mondayMs
	rest := wall % c.stepMs
	if rest < 0 {
		rest += c.stepMs
	}
	return unixMs - rest
}

// findEnd sets toMs from fromMs.
func (c *calendar) findEnd() {
	wall := c.floor(c.fromMs) + c.stepMs + c.wallOffsetMs // what the clock shows at the end
	for {
		if at := wall - c.wallOffsetMs; at < c.current.endMs {
			c.toMs = at
			return
		}
		at := c.current.endMs
		next := spanAt(at, c.zone)
		if change := next.offsetMs - c.current.offsetMs; change%c.stepMs != 0 {
			c.wallOffsetMs += change
		}
		c.current = next
		if at+c.wallOffsetMs >= wall { // set forward, past the boundary
			c.toMs = at
			return
		}
	}
}
