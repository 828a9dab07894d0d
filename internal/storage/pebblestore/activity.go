package pebblestore

import (
	"sync"
	"time"
)

// An activity counts devices by the minute of their newest reading, so that it can
// tell at any time how many were heard of lately, without a look at each of them.
// The zero activity has counted nothing. Its methods may be called concurrently.
//
// Invariant: a slot's count is the number of devices whose newest reading is of the
// slot's minute. Minutes that share a slot are activityMinutes apart; the latest
// one has it, and the devices of the others are too old to be asked for.
// TestActiveDevices compares with a count of all devices.
type activity struct {
	mu    sync.Mutex
	slots [activityMinutes]activeMinute
}

type activeMinute struct {
	minute  int64 // since 1970
	devices int64
}

const (
	// MaxActiveWithin is the longest time that [Store.ActiveDevices] looks back.
	MaxActiveWithin = 24 * time.Hour

	// activityMinutes leaves room beside MaxActiveWithin for readings whose times
	// lie up to ten hours ahead.
	activityMinutes = 34 * 60
)

// moved counts a device whose newest reading was of one time and is of another. A
// negative time stands for none.
func (a *activity) moved(fromUnixMs, toUnixMs int64) {
	from, to := fromUnixMs/msPerMinute, toUnixMs/msPerMinute
	if from == to && fromUnixMs >= 0 && toUnixMs >= 0 {
		return // as mostly, where readings come more often than once a minute
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.slot(from); fromUnixMs >= 0 && s.minute == from {
		s.devices--
	}
	if s := a.slot(to); toUnixMs >= 0 && s.minute <= to {
		if s.minute < to {
			*s = activeMinute{minute: to}
		}
		s.devices++
	}
}

const msPerMinute = int64(time.Minute / time.Millisecond)

// slot returns that of a minute. a.mu must be held.
func (a *activity) slot(minute int64) *activeMinute {
	return &a.slots[max(minute, 0)%activityMinutes]
}

// since returns the number of devices whose newest reading is of the minute of
// fromUnixMs or later.
func (a *activity) since(fromUnixMs int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var n int64
	for i := range a.slots {
		if s := &a.slots[i]; s.minute >= fromUnixMs/msPerMinute {
			n += s.devices
		}
	}
	return n
}

// ActiveDevices returns the number of devices whose newest reading was measured
// within the given time before now, to the minute, which is at most
// MaxActiveWithin. Readings ahead of now count. It takes microseconds and may run
// beside all other calls; a store that is read-only knows of none.
func (s *Store) ActiveDevices(now time.Time, within time.Duration) int64 {
	if s.settler == nil {
		return 0
	}
	return s.settler.table.active.since(now.Add(-min(within, MaxActiveWithin)).UnixMilli())
}
