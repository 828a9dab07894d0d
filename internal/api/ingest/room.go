package ingest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// A room counts the readings in the queue, and decides whether there is room for
// more. Its methods may be called from many goroutines.
//
// Refusing must stay cheaper than storing, or a server that is asked for more than
// it can do does less. So from the first batch that did not fit until an eighth of
// the queue is empty, the queue counts as full for everyone: requests are then
// refused before they are read and decoded. And a connection that was refused is
// not read for a moment (see pauseFor).
type room struct {
	most, low int64 // readings: where the queue is full, and where it is not any more

	// queued counts the readings that are admitted and not yet answered, of a large
	// batch those of one group.
	//
	// Invariant: it never exceeds most, unless one request alone does. A request is
	// admitted whole or not at all, so that a batch that needs several groups is not
	// refused in its middle for want of room.
	queued atomic.Int64

	// tight is set when a request did not fit, and means something only as long as
	// queued is above low.
	tight atomic.Bool

	paused atomic.Int64 // connections of the full lane that are not read for a moment
}

func newRoom(most int) *room {
	return &room{most: int64(most), low: int64(most) * 7 / 8}
}

// full reports whether there is no room for any reading.
func (r *room) full() bool {
	queued := r.queued.Load()
	return queued >= r.most || r.tight.Load() && queued > r.low
}

// admit takes n readings into the queue and reports whether there was room.
func (r *room) admit(n int) bool {
	after := r.queued.Add(int64(n))
	// A request that finds the queue empty gets in whatever its size, so that
	// the bound on the queue does not bound a batch.
	if after > r.most && after > int64(n) {
		r.queued.Add(int64(-n))
		r.tight.Store(true)
		return false
	}
	return true
}

// leave takes n readings out of the queue.
func (r *room) leave(n int) {
	if r.queued.Add(int64(-n)) <= r.low && r.tight.Load() {
		r.tight.Store(false)
	}
}

// Bounds of a pause. The longest is no longer than the least Retry-After: a client
// that keeps to that does not notice.
const (
	leastPause   = 100 * time.Millisecond
	longestPause = 1 * time.Second

	// refusalsPerSecond is how often all clients together that do not keep to
	// Retry-After are refused. A refusal costs about as much CPU time as the kernel
	// takes for a request, 8 µs in the fast lane.
	refusalsPerSecond = 2_000
)

// pauseFor returns for how long a connection is not read that was refused for want
// of room, if n others are not read either.
func pauseFor(n int64) time.Duration {
	return min(max(time.Duration(n)*time.Second/refusalsPerSecond, leastPause), longestPause)
}

// pause keeps a connection of the fast lane from being read for a moment.
func (l *lane) pause(c *eventloop.Conn) { c.Pause(pauseFor(int64(l.loop.Paused()))) }

// pause waits while a connection of the full lane is not read, or until ctx ends.
func (r *room) pause(ctx context.Context) {
	timer := time.NewTimer(pauseFor(r.paused.Add(1)))
	defer timer.Stop()
	defer r.paused.Add(-1)
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
