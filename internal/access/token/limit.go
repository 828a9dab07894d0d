package token

import (
	"math"
	"sync/atomic"
	"time"
)

// A Limit bounds how many readings a token may send. The zero Limit is none.
type Limit struct {
	PerSecond int // readings a second in the long run, 1 to MaxPerSecond
	Burst     int // readings that may come at once after a silence, 1 to MaxBurst
}

// Bounds of a [Limit].
const (
	MaxPerSecond = 1_000_000
	MaxBurst     = 100_000_000
)

// LimitOf returns a limit; a burst of 0 is what comes in a minute.
func LimitOf(perSecond, burst int) Limit {
	if perSecond > 0 && burst == 0 {
		burst = min(60*perSecond, MaxBurst)
	}
	return Limit{PerSecond: perSecond, Burst: burst}
}

func (l Limit) valid() bool {
	return l == Limit{} || l.PerSecond >= 1 && l.PerSecond <= MaxPerSecond && l.Burst >= 1 && l.Burst <= MaxBurst
}

const (
	// maxDebt is the longest wait that a limiter asks for. What a batch brings
	// beyond it is given away.
	maxDebt = time.Hour

	// maxCharge keeps n readings of one second each from overflowing a Duration.
	maxCharge = 1_000_000_000
)

// A limiter is a bucket that may go into debt.
//
// A gateway that was offline sends hours in one batch, whose size has nothing to
// do with the burst. A bucket that takes a batch only if it covers all of it
// would never take one that is larger than the burst, and the gateway would send
// it for ever. So a batch is let in while there is room for one reading, whatever
// its size, and what it brings too much is a debt that later requests wait for.
// The rate holds in the long run; the client must wait, and need not split.
//
// It is the generic cell rate algorithm (ITU-T I.371, annex A) in its form as
// virtual scheduling: one number, changed by compare and swap.
//
// Invariant: what was let in before the last request, within any time d, is at
// most PerSecond·d + Burst, but for debts beyond maxDebt. TestLimitModel checks
// it.
type limiter struct {
	limit Limit
	step  time.Duration // what one reading costs
	burst time.Duration // what the bucket holds
	start time.Time     // times are counted from here, with its monotonic clock

	// fullAt is when the bucket will be full again if nothing comes, in
	// nanoseconds since start.
	fullAt atomic.Int64
}

func newLimiter(l Limit, start time.Time) *limiter {
	step := time.Second / time.Duration(l.PerSecond)
	b := &limiter{limit: l, step: step, burst: time.Duration(l.Burst) * step, start: start}
	b.fullAt.Store(math.MinInt64 / 2) // full, even to a clock that is behind start
	return b
}

// allow takes n readings out of the bucket, or says how long to wait until there
// is room for one. With n of 0 it only asks.
func (l *limiter) allow(n int, now time.Time) (ok bool, wait time.Duration) {
	at := now.Sub(l.start)
	for {
		old := l.fullAt.Load()
		// A clock without a monotonic part may have jumped back: nobody waits
		// longer than maxDebt for that.
		debt := min(max(time.Duration(old)-at, 0), l.burst+maxDebt)
		if wait = debt + l.step - l.burst; wait > 0 {
			return false, wait
		}
		if n == 0 {
			return true, 0
		}
		cost := min(time.Duration(min(n, maxCharge))*l.step, l.burst+maxDebt)
		if l.fullAt.CompareAndSwap(old, int64(at+debt+cost)) {
			return true, 0
		}
	}
}
