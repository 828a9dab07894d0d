// Package localtime finds the instant of a local time.
//
// # Promise
//
// An instant is returned only if the zone has the local time exactly once.
//
// # Not here
//
// The texts of times and the names of zones.
package localtime

import (
	"errors"
	"time"

	"github.com/pulsegate/pulsegate/vitals"
)

// Errors of [Instant]. Their texts are sent to clients.
var (
	ErrSkipped = errors.New("the zone has no such time: its clock was put forward")
	ErrTwice   = errors.New("the zone has this time twice: its clock was put back")
)

// Instant returns the instant at which the clock of a zone shows what wall shows in UTC, and the offset of the zone
// then. It returns [ErrSkipped] or [ErrTwice] if there is not exactly one.
func Instant(wall time.Time, zone *time.Location) (unixMs int64, offset vitals.UTCOffset, err error) {
	err = ErrSkipped
	for _, near := range []time.Duration{-26 * time.Hour, 0, 26 * time.Hour} { // a clock is put forward or back by at most a day
		_, seconds := wall.Add(near).In(zone).Zone()
		at := wall.Add(-time.Duration(seconds) * time.Second)
		if _, then := at.In(zone).Zone(); then != seconds || err == nil && at.UnixMilli() == unixMs {
			continue
		}
		if err == nil {
			return 0, 0, ErrTwice
		}
		unixMs, err = at.UnixMilli(), nil
		if seconds%60 == 0 {
			offset = vitals.MakeUTCOffset(seconds / 60)
		}
	}
	return unixMs, offset, err
}
