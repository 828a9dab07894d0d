package ingest

import (
	"sync/atomic"
	"time"
)

// An admission bounds the queue: the readings that are admitted and not yet answered.
// Nothing else bounds what the committer gets. Its methods may be called from many
// goroutines.
//
// Rejecting must be cheaper than storing, or an overloaded server stores less. So once a
// request did not fit, the queue counts as full for all requests until an eighth of it is
// empty: requests are then rejected before they are read and decoded. And after a
// rejection, the connection is not read for a while (see pauseFor).
type admission struct {
	high, low int64 // readings: the high- and low-water marks

	// queued counts the readings in the queue; of a batch that needs several groups, those
	// of one group.
	//
	// Invariant: it never exceeds high, unless a single request does. A request is admitted
	// as a whole or not at all, so that a batch of several groups is not rejected after its
	// first group.
	queued atomic.Int64

	// wasFull is set when a request did not fit. It has no meaning while queued is at most low.
	wasFull atomic.Bool

	rejected atomic.Uint64 // requests that did not fit
}

func newAdmission(maxQueued int) *admission {
	return &admission{high: int64(maxQueued), low: int64(maxQueued) * 7 / 8}
}

// full reports whether the queue has no space for any reading.
func (a *admission) full() bool {
	queued := a.queued.Load()
	return queued >= a.high || a.wasFull.Load() && queued > a.low
}

// enter adds n readings to the queue and reports whether they fit.
func (a *admission) enter(n int) bool {
	after := a.queued.Add(int64(n))
	// A request that finds the queue empty is admitted whatever its size, so that the bound
	// on the queue does not bound a batch.
	if after > a.high && after > int64(n) {
		a.queued.Add(int64(-n))
		a.wasFull.Store(true)
		a.rejected.Add(1)
		return false
	}
	return true
}

// leave removes n readings from the queue.
func (a *admission) leave(n int) {
	if a.queued.Add(int64(-n)) <= a.low && a.wasFull.Load() {
		a.wasFull.Store(false)
	}
}

// Bounds of a pause. The longest is at most the least Retry-After, so clients that respect
// Retry-After do not notice it.
const (
	leastPause   = 100 * time.Millisecond
	longestPause = 1 * time.Second

	// rejectionsPerSecond is the rate at which all clients that ignore Retry-After are
	// rejected together. A rejection costs about as much CPU time as the kernel needs for a
	// request, 8 µs in the fast lane.
	rejectionsPerSecond = 2_000
)

// pauseFor returns how long a connection is not read after a rejection, if n others are
// paused too.
func pauseFor(n int64) time.Duration {
	return min(max(time.Duration(n)*time.Second/rejectionsPerSecond, leastPause), longestPause)
}
