package token

import (
	"math"
	"sync/atomic"
	"time"
)

// A Limit bounds the rate at which a token may send readings. The zero Limit means no
// limit.
type Limit struct {
	PerSecond int // readings per second in the long run, 1 to MaxPerSecond
	Burst     int // readings accepted at once after a pause, 1 to MaxBurst
}

// Bounds of a [Limit].
const (
	MaxPerSecond = 1_000_000
	MaxBurst     = 100_000_000
)

// LimitOf returns a limit. A burst of 0 means one minute's worth of readings.
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

// A Bucket is a rate limiter that may go into debt. It is safe for concurrent use. Its
// methods neither allocate nor take a lock.
//
// A gateway that was offline sends hours of readings in one batch, which may be larger
// than the burst. A bucket that required the whole batch to fit would reject it for
// ever. So a batch of any size is admitted while the bucket holds at least one reading.
// The excess becomes a debt, and later requests are rejected until it is paid. The rate
// still holds in the long run, and clients never need to split a batch.
//
// It implements the generic cell rate algorithm (ITU-T I.371, annex A) as virtual
// scheduling: its state is one number, updated by compare-and-swap.
//
// Invariant: within any interval d, the readings admitted before the last request
// number at most (d + size) / step. TestLimitModel checks it.
type Bucket struct {
	step  time.Duration // what one item costs
	size  time.Duration // the bucket's capacity, in units of time
	start time.Time     // origin of fullAt; carries a monotonic clock reading

	// fullAt is when the bucket will be full again if nothing more is taken, in
	// nanoseconds since start.
	fullAt atomic.Int64
}

// NewBucket returns a full bucket. l must not be the zero Limit. start comes from the clock that is later passed to
// Take.
func NewBucket(l Limit, start time.Time) *Bucket {
	return newBucket(time.Second/time.Duration(l.PerSecond), l.Burst, start)
}

func newBucket(step time.Duration, n int, start time.Time) *Bucket {
	b := &Bucket{step: step, size: time.Duration(n) * step, start: start}
	b.fullAt.Store(math.MinInt64 / 2) // full, even if the clock reads earlier than start
	return b
}

// Take takes n items out of the bucket if it holds at least one. Otherwise it returns
// how long to wait until it does. Take(0, now) checks without taking.
//
// now must come from a clock that never goes backwards, such as the monotonic clock of
// time.Now: a bucket cannot distinguish a backward jump from a debt.
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
		// Invariant: this does not overflow, because debt < size here.
		if b.fullAt.CompareAndSwap(old, int64(at+debt+b.cost(n))) {
			return true, 0
		}
	}
}

// Return puts back n items that were taken and not used. Call it soon after Take.
func (b *Bucket) Return(n int) { b.fullAt.Add(-int64(b.cost(n))) }

func (b *Bucket) cost(n int) time.Duration {
	return min(time.Duration(n), maxCost/b.step) * b.step
}

// Hourly bounds what a token may do within an hour. Above Contradictions, readings are no
// longer compared; above Reads, reads are recorded as exports. Zero fields mean the
// default.
type Hourly struct {
	// Contradictions counts readings that contradict what another gateway wrote, sent
	// with a token that lacks the read right. Default 60.
	Contradictions int

	// Reads counts readings that were read in small pages. Default 10,000.
	Reads int
}

// Defaults of [Hourly].
const (
	DefaultContradictions = 60
	DefaultReads          = 10_000

	MaxHourly = 1_000_000 // for either field
)

// assignmentsPerDay bounds the changes of assignments by the messages of one gateway. Each change is a line of the
// audit log; together they are 3 MB.
const assignmentsPerDay = 10_000

// Budgets are the buckets of an [Hourly], and of changes of assignments.
type Budgets struct{ Contradictions, Reads, Assignments *Bucket }

// NewBudgets returns full buckets. start comes from the clock that is later passed to
// Take.
func NewBudgets(h Hourly, start time.Time) *Budgets {
	hourly := func(n, fallback int) *Bucket {
		if n <= 0 {
			n = fallback
		}
		return newBucket(time.Hour/time.Duration(n), n, start)
	}
	return &Budgets{
		hourly(h.Contradictions, DefaultContradictions), hourly(h.Reads, DefaultReads),
		newBucket(24*time.Hour/assignmentsPerDay, assignmentsPerDay, start),
	}
}
