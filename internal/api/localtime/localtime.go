// Package localtime finds zones, the instant of a local time, and the first millisecond of a range.
//
// # Promise
//
// An instant is returned only if the zone has the local time exactly once.
//
// # Not here
//
// Parsing times: package vitals.
package localtime

import (
	"errors"
	"strings"
	"time"
	_ "time/tzdata" // for images without zone files

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of [Instant]. Their texts are sent to clients.
var (
	ErrSkipped = errors.New("the zone has no such time: its clock was put forward")
	ErrTwice   = errors.New("the zone has this time twice: its clock was put back")
)

// Zone returns a zone of the IANA database by its name, or one with an offset from UTC such as +05:30.
func Zone(name string) (*time.Location, error) {
	// time.Parse takes 24 hours and 60 minutes too, which RFC 3339 does not have.
	if at, err := time.Parse("-07:00", name); err == nil && name[1:3] < "24" && name[4:] < "60" {
		_, seconds := at.Zone()
		return time.FixedZone(name, seconds), nil
	}
	// Local is the server's zone. Zones below right/ count leap seconds, which Unix time does not.
	if name == "" || name == "Local" || strings.HasPrefix(name, "right/") {
		return nil, errors.New("not a zone of all machines")
	}
	return time.LoadLocation(name)
}

// Instant returns the instant at which the clock of a zone shows what wall shows in UTC, and the offset of the zone
// then. It returns [ErrSkipped] or [ErrTwice] if there is not exactly one.
func Instant(wall time.Time, zone *time.Location) (unixMs int64, offset vitals.UTCOffset, err error) {
	first, last, ok := instants(wall, zone)
	switch {
	case !ok:
		return 0, 0, ErrSkipped
	case !first.Equal(last):
		return 0, 0, ErrTwice
	}
	return first.UnixMilli(), offsetOf(first), nil
}

// Choose is Instant for a local time that the zone may have twice: it returns the earlier or the later instant.
func Choose(wall time.Time, zone *time.Location, later bool) (unixMs int64, offset vitals.UTCOffset, err error) {
	at, last, ok := instants(wall, zone)
	if !ok {
		return 0, 0, ErrSkipped
	}
	if later {
		at = last
	}
	return at.UnixMilli(), offsetOf(at), nil
}

// instants returns the first and the last instant at which the clock of a zone shows wall, if there is one.
func instants(wall time.Time, zone *time.Location) (first, last time.Time, ok bool) {
	// a clock is put forward or back by at most a day
	for _, near := range []time.Duration{-26 * time.Hour, 0, 26 * time.Hour} {
		_, seconds := wall.Add(near).In(zone).Zone()
		at := wall.Add(-time.Duration(seconds) * time.Second).In(zone)
		if _, then := at.Zone(); then != seconds {
			continue
		}
		if !ok || at.Before(first) {
			first = at
		}
		if !ok || at.After(last) {
			last = at
		}
		ok = true
	}
	return first, last, ok
}

func offsetOf(at time.Time) vitals.UTCOffset {
	if _, seconds := at.Zone(); seconds%60 == 0 {
		return vitals.MakeUTCOffset(seconds / 60)
	}
	return 0
}

// Bound returns the first whole millisecond at or after a time in RFC 3339, of which [vitals.ParseRFC3339] has returned
// unixMs. Stored times are whole milliseconds, so a range from one Bound to another, exclusive, has the readings that
// comparing exact times would give, whether the texts have three decimals of a second or more.
func Bound(text string, unixMs int64) int64 {
	_, decimals, _ := strings.Cut(text, ".")
	for i := 0; i < len(decimals) && '0' <= decimals[i] && decimals[i] <= '9'; i++ {
		if i >= 3 && decimals[i] != '0' {
			return unixMs + 1
		}
	}
	return unixMs
}
