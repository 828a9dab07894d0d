package memory

import (
	"sync"
	"time"
)

// An Activity counts devices by the minute of their newest reading, so that the number
// of recently active devices is known without a scan of all devices. The zero Activity
// is empty. Its methods may be called concurrently.
//
// Invariant: a slot's count is the number of devices whose newest reading is in the
// slot's minute. Minutes that share a slot are activityMinutes apart. The latest of
// them owns the slot; devices of the others are too old to be counted.
// TestActiveDevices compares the result with a scan of all devices.
type Activity struct {
	mu    sync.Mutex
	slots [activityMinutes]activeMinute
}

type activeMinute struct {
	minute  int64 // since 1970
	devices int64
}

const (
	// MaxActiveWithin is the longest period for which devices are counted.
	MaxActiveWithin = 24 * time.Hour

	// activityMinutes is MaxActiveWithin plus ten hours, for readings with times in
	// the future.
	activityMinutes = 34 * 60
)

// Moved counts that a device's newest time has changed. A negative time means none.
func (a *Activity) Moved(fromUnixMs, toUnixMs int64) {
	from, to := fromUnixMs/msPerMinute, toUnixMs/msPerMinute
	if from == to && fromUnixMs >= 0 && toUnixMs >= 0 {
		return // the usual case if a device sends more than once a minute
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

// slot returns the slot of a minute. a.mu must be held.
func (a *Activity) slot(minute int64) *activeMinute {
	return &a.slots[max(minute, 0)%activityMinutes]
}

// Since returns the number of devices whose newest reading is in the minute of
// fromUnixMs or later.
func (a *Activity) Since(fromUnixMs int64) int64 {
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
