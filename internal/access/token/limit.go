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

// maxCost keeps debts from overflowing a Duration. It is 146 years.
const maxCost time.Duration = 1 << 62

// A Bucket limits a rate. It may go into debt. Its methods may be called from many
// goroutines; they neither allocate nor take a lock.
//
// A gateway that was offline sends hours in one batch, whose size has nothing to
// do with the burst. A bucket that takes a batch only if it covers all of it
// would never take one that is larger than the burst, and the gateway would send
// it for ever. So a batch is let in while there is room for one reading, whatever
// its size, and what it brings too much is a debt that later requests wait for,
// however long that takes. The rate holds in the long run; the client must wait,
// and need not split.
//
// It is the generic cell rate algorithm (ITU-T I.371, annex A) in its form as
// virtual scheduling: one number, changed by compare and swap.
//
// Invariant: what was let in before the last request, within any time d, is at
// most (d + size) / step. TestLimitModel checks it.
type Bucket struct {
	step  time.Duration // what one item costs
	size  time.Duration // what the bucket holds
	start time.Time     // times are counted from here, with its monotonic clock

	// fullAt is when the bucket will be full again if nothing comes, in
	// nanoseconds since start.
	fullAt atomic.Int64
}

func newLimiter(l Limit, start time.Time) *Bucket {
	return newBucket(time.Second/time.Duration(l.PerSecond), l.Burst, start)
}

func newBucket(step time.Duration, n int, start time.Time) *Bucket {
	b := &Bucket{step: step, size: time.Duration(n) * step, start: start}
	b.fullAt.Store(math.MinInt64 / 2) // full, even to a clock that is behind start
	return b
}

// Take takes n items out of the bucket if it holds at least one, or returns how
// long to wait until it does. With n of 0 it only asks.
//
// The time must come from a clock that does not jump back, as the monotonic one of
// time.Now: a bucket cannot tell a jump from a debt.
func (b *Bucket) Take(n int, now time.Time) (ok bool, wait time.Duration) {
	at := now.Sub(b.start)
	for {
		old := b.fullAt.Load()
		debt := max(time.Duration(old)-at, 0)
		if wait = debt + b.step - b.size; wait > 0 {
			return false, wait
		}
		if n == 0 {
			return true, 0
		}
		// Invariant: no overflow, since debt is below size here.
		if b.fullAt.CompareAndSwap(old, int64(at+debt+b.cost(n))) {
			return true, 0
		}
	}
}

// Return puts n items back that were taken and not used, soon after Take.
func (b *Bucket) Return(n int) { b.fullAt.Add(-int64(b.cost(n))) }

func (b *Bucket) cost(n int) time.Duration {
	return min(time.Duration(n), maxCost/b.step) * b.step
}

// Hourly bounds what a token may do within an hour: beyond it, readings are not compared,
// and pages are recorded. Zero fields take the default.
type Hourly struct {
	// Contradictions are readings, of a token without the right to read, that contradict
	// what another gateway wrote. Default 60.
	Contradictions int

	// Reads are readings that were read in small pages. Default 10,000.
	Reads int
}

// Defaults of [Hourly].
const (
	DefaultContradictions = 60
	DefaultReads          = 10_000

	MaxHourly = 1_000_000 // of both
)

// Budgets are the buckets of an [Hourly].
type Budgets struct{ Contradictions, Reads *Bucket }

// NewBudgets returns full buckets. start is a time of the clock that they are given.
func NewBudgets(h Hourly, start time.Time) *Budgets {
	hourly := func(n, otherwise int) *Bucket {
		if n <= 0 {
			n = otherwise
		}
		return newBucket(time.Hour/time.Duration(n), n, start)
	}
	return &Budgets{hourly(h.Contradictions, DefaultContradictions), hourly(h.Reads, DefaultReads)}
}
