package fhir

import (
	"math"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/localtime"
	"github.com/pulsegate/pulsegate/vitals"
)

// A span is a range of times, in Unix ms: fromUnixMs <= time < toUnixMs.
type span struct{ fromUnixMs, toUnixMs int64 }

// always has all times of readings.
var always = span{0, math.MaxInt64}

func (s span) has(unixMs int64) bool { return s.fromUnixMs <= unixMs && unixMs < s.toUnixMs }

// and returns the times in both.
func (s span) and(o span) span {
	return span{max(s.fromUnixMs, o.fromUnixMs), min(s.toUnixMs, o.toUnixMs)}
}

// empty reports whether s has no times.
func (s span) empty() bool { return s.fromUnixMs >= s.toUnixMs }

// withPrefix returns the times that match a value of a parameter of type date, which names
// the period p. A reading's time is exact to the millisecond, so that sa is gt and eb is lt.
func withPrefix(prefix string, p span) (span, bool) {
	switch prefix {
	case "", "eq":
		return p, true
	case "gt", "sa":
		return span{p.toUnixMs, math.MaxInt64}, true
	case "ge":
		return span{p.fromUnixMs, math.MaxInt64}, true
	case "lt", "eb":
		return span{0, p.fromUnixMs}, true
	case "le":
		return span{0, p.toUnixMs}, true
	}
	return span{}, false
}

const reasonDate = "not a date or time of FHIR such as 2026, 2026-11, 2026-11-21, 2026-11-21T10:00Z or " +
	"2026-11-21T10:00:00.123+01:00, after eq, gt, ge, lt, le, sa, eb or nothing"

// parseDates returns the times that match a value of a parameter of type date.
func parseDates(text string) (span, bool) {
	prefix := ""
	if len(text) > 2 && text[0] >= 'a' {
		prefix, text = text[:2], text[2:]
	}
	p, ok := parsePeriod(text)
	if !ok {
		return span{}, false
	}
	return withPrefix(prefix, p)
}

// parsePeriod returns the times of a year, month, day, minute, second or part of a second. A
// period without a zone is in UTC.
func parsePeriod(text string) (p span, ok bool) {
	for _, layout := range [...]string{"2006", "2006-01", time.DateOnly} {
		if len(text) != len(layout) {
			continue
		}
		from, err := time.Parse(layout, text)
		if err != nil || from.Year() < 1 {
			return p, false
		}
		to := from.AddDate(0, 0, 1)
		switch layout {
		case "2006":
			to = from.AddDate(1, 0, 0)
		case "2006-01":
			to = from.AddDate(0, 1, 0)
		}
		return span{from.UnixMilli(), to.UnixMilli()}, true
	}
	// A + in a query is a space, and zones are often sent as +02:00 unescaped.
	text = strings.ReplaceAll(text, " ", "+")
	const minute = len("2006-01-02T15:04")
	if len(text) < minute || text[10] != 'T' {
		return p, false
	}
	clock, zone := text, "Z"
	if i := strings.IndexAny(text[minute:], "Z+-"); i >= 0 {
		clock, zone = text[:minute+i], text[minute+i:]
	}
	length := time.Second
	switch _, decimals, found := strings.Cut(clock, "."); {
	case found:
		length = max(time.Second/time.Duration(math.Pow10(min(len(decimals), 3))), time.Millisecond)
	case len(clock) == minute:
		clock += ":00"
		length = time.Minute
	}
	ms, _, err := vitals.ParseRFC3339(clock + zone)
	return span{localtime.Bound(clock, ms), ms + length.Milliseconds()}, err == nil
}
