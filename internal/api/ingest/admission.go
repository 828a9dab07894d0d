package ingest

import (
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// An admission bounds the queue: the readings that are admitted and not yet answered.
// It is the only bound on what the committer is given. Its methods may be called from
// many goroutines.
//
// Rejecting must stay cheaper than storing, or a server that is asked for more than
// it can do does less. So from the first request that did not fit until an eighth of
// the queue is empty, the queue counts as full for everyone: requests are then
// rejected before they are read and decoded. And a connection whose request was
// rejected is not read for a moment (see pauseFor).
type admission struct {
	high, low int64 // readings: the high- and low-water marks

	// queued counts the readings in the queue, of a large batch those of one group.
	//
	// Invariant: it never exceeds high, unless one request alone does. A request is
	// admitted whole or not at all, so that a batch that needs several groups is not
	// rejected in its middle for want of room.
	queued atomic.Int64

	// tight is set when a request did not fit, and means something only as long as
	// queued is above low.
	tight atomic.Bool

	rejected atomic.Uint64 // requests that did not fit
}

func newAdmission(maxQueued int) *admission {
	return &admission{high: int64(maxQueued), low: int64(maxQueued) * 7 / 8}
}

// full reports whether there is no room for any reading.
func (a *admission) full() bool {
	queued := a.queued.Load()
	return queued >= a.high || a.tight.Load() && queued > a.low
}

// enter takes n readings into the queue and reports whether there was room.
func (a *admission) enter(n int) bool {
	after := a.queued.Add(int64(n))
	// A request that finds the queue empty gets in whatever its size, so that
	// the bound on the queue does not bound a batch.
	if after > a.high && after > int64(n) {
		a.queued.Add(int64(-n))
		a.tight.Store(true)
		a.rejected.Add(1)
		return false
	}
	return true
}

// leave takes n readings out of the queue.
func (a *admission) leave(n int) {
	if a.queued.Add(int64(-n)) <= a.low && a.tight.Load() {
		a.tight.Store(false)
	}
}

// Bounds of a pause. The longest is no longer than the least Retry-After: a client
// that keeps to that does not notice.
const (
	leastPause   = 100 * time.Millisecond
	longestPause = 1 * time.Second

	// rejectionsPerSecond is how often all clients together that do not keep to
	// Retry-After are rejected. A rejection costs about as much CPU time as the
	// kernel takes for a request, 8 µs in the fast lane.
	rejectionsPerSecond = 2_000
)

// pauseFor returns for how long a connection is not read whose request was rejected
// for want of room, if n others are not read either.
func pauseFor(n int64) time.Duration {
	return min(max(time.Duration(n)*time.Second/rejectionsPerSecond, leastPause), longestPause)
}

// pause keeps a connection of the fast lane from being read for a moment.
func (l *lane) pause(c *eventloop.Conn) { c.Pause(pauseFor(int64(l.loop.Paused()))) }
