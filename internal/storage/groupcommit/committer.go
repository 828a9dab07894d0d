package groupcommit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Config says how a [Committer] makes groups.
type Config struct {
	// MaxGroup is the largest number of items that one flush is given, and so
	// the largest number of items of one call. At least 1.
	MaxGroup int

	// OnFlush is called after each flush, before its calls are answered, under
	// the terms of a [Waiter]. May be nil.
	OnFlush func(Flush)
}

// A Committer merges the calls of many goroutines into groups and hands one
// group after the other to its flush function. Create it with [New].
//
// All methods may be called concurrently.
type Committer[T any] struct {
	cfg   Config
	flush func(group []T) error

	start  time.Time    // when New was called
	oldest atomic.Int64 // ns after start when the group that is being flushed was opened; never: none is

	flushing atomic.Bool // flush is running

	calls sync.Pool     // of call, for Commit
	done  chan struct{} // closed when run has ended

	// wake is signalled when a group becomes the only one in the queue, and
	// when refusal is set. run waits for it.
	wake sync.Cond

	// mu guards what follows. It is never held while flush, OnFlush or a Waiter
	// runs.
	mu sync.Mutex

	// queue holds the groups that wait for their flush. Calls join the newest
	// one.
	//
	// Invariant: run answers every call in it exactly once, even when Close or
	// a panic comes between. A Commit whose ctx never ends relies on this to
	// return; TestModel and TestCloseAnswersAdmitted check it.
	queue groupList[T]

	// free holds used groups without items, linked by next, the last used one
	// first.
	//
	// Invariant: any two neighbours in the queue hold more than MaxGroup items
	// together, so that n queued items are in at most 2n/MaxGroup + 3 groups, of
	// at most 2*MaxGroup places each. TestGroupsAreBounded checks it.
	free *group[T]

	refusal error // what a new call is told; nil while calls are admitted
	failure error // the *PanicError that ended run, or nil
	stats   Stats // but for Flushing
}

// Stats are a Committer's counters since New, and its queue now.
type Stats struct {
	Groups uint64 // flushes that have ended
	Failed uint64 // flushes among them that returned an error or panicked
	Calls  uint64 // calls of those groups

	Flushing    bool // the flush function is running
	QueuedItems int  // items admitted whose flush has not ended
	QueuedCalls int  // calls admitted whose flush has not ended
}

// A Flush is one call of the flush function.
type Flush struct {
	Start, End time.Time
	Items      int   // of the group
	Err        error // nil: the group is durable
}

// A Waiter is told how a call of [Committer.Submit] ended.
type Waiter interface {
	// Done is called once, with the flush of the call's group. A call that stood
	// behind a flush that panicked had none: it gets an Err alone, which wraps
	// ErrNotWritten.
	//
	// Done runs on the committer's goroutine, while every other call waits: it
	// must not block and must not panic. It may call Submit; Commit and Close
	// would wait for themselves. It may run before Submit has returned.
	Done(Flush)
}

// New returns a Committer that hands groups of items to flush, and starts its
// goroutine, which [Committer.Close] ends.
//
// flush makes a group durable before it returns nil. It is called with 1 to
// cfg.MaxGroup items, by one goroutine, never concurrently. It may modify the
// slice, but must not retain it. It must not wait for a call to the same
// Committer.
//
// New panics when flush is nil or cfg.MaxGroup is below 1.
func New[T any](cfg Config, flush func(group []T) error) *Committer[T] {
	switch {
	case flush == nil:
		panic("groupcommit: flush is nil")
	case cfg.MaxGroup < 1:
		panic(fmt.Sprintf("groupcommit: MaxGroup is %d, want at least 1", cfg.MaxGroup))
	}
	c := &Committer[T]{cfg: cfg, flush: flush, start: time.Now(), done: make(chan struct{})}
	c.oldest.Store(never)
	// The one place of a call makes that Done never blocks, not even when nobody
	// waits any more.
	c.calls.New = func() any { return make(call, 1) }
	c.wake.L = &c.mu
	go c.run()
	return c
}

// A call is the Waiter of one Commit.
type call chan Flush

// Done hands the flush to Commit.
func (w call) Done(f Flush) { w <- f }

// Commit writes items durably. It waits for the groups ahead of it, then for
// one flush, which it returns with its error.
//
// It returns an error that wraps [ErrNotWritten] when nothing was written:
// [ErrClosed], [ErrTooLarge], ctx's error when ctx had ended before the call, or
// a [*PanicError] when an earlier flush panicked. An error of flush is returned
// as it is. After any error that does not wrap ErrNotWritten, ctx's included,
// the outcome is as unknown as flush's error leaves it: the items may be durable
// or may yet become so. A caller that retries must therefore be idempotent.
//
// Commit copies the slice and retains nothing of it. What the items point to
// belongs to flush until Commit returns; when it returns ctx's error without
// ErrNotWritten, flush may still be about to use it, and the caller must neither
// modify nor reuse it.
//
// Without items, Commit returns nil at once: there is nothing to write, whatever
// the state of ctx and of c.
//
// In steady state Commit does not allocate.
func (c *Committer[T]) Commit(ctx context.Context, items []T) (Flush, error) {
	if len(items) == 0 {
		return Flush{}, nil
	}
	if err := ctx.Err(); err != nil {
		return Flush{}, fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	w := c.calls.Get().(call)
	if err := c.Submit(items, w); err != nil {
		c.calls.Put(w)
		return Flush{}, err
	}
	var f Flush
	select {
	case f = <-w:
	case <-ctx.Done():
		// Both may have happened. The answer says more.
		select {
		case f = <-w:
		default:
			// run still holds w and will answer it some day. Nobody else may be
			// given w, or that answer would be taken for the answer to another call.
			return Flush{}, ctx.Err()
		}
	}
	c.calls.Put(w)
	return f, f.Err
}

// Submit is Commit for a caller that does not wait: it admits items and returns
// nil, and w is told how the call ended.
//
// When Submit returns an error, the call was not admitted, w is not told, and
// the error wraps [ErrNotWritten] as described at [Committer.Commit]. Calls are
// admitted, flushed and answered in the order of their Submits.
//
// Without items, Submit itself calls w.Done with the zero Flush before it
// returns.
func (c *Committer[T]) Submit(items []T, w Waiter) error {
	if len(items) == 0 {
		w.Done(Flush{})
		return nil
	}
	if len(items) > c.cfg.MaxGroup {
		return ErrTooLarge
	}
	c.mu.Lock()
	if err := c.refusal; err != nil {
		c.mu.Unlock()
		return err
	}
	g := c.queue.newest
	isFirst := g == nil // and run may be asleep
	if g == nil || len(g.items)+len(items) > c.cfg.MaxGroup {
		g = c.unusedLocked()
		g.opened = time.Since(c.start)
		c.queue.push(g)
	}
	g.items = append(g.items, items...)
	g.waiters = append(g.waiters, w)
	c.stats.QueuedItems += len(items)
	c.stats.QueuedCalls++
	c.mu.Unlock()
	if isFirst {
		c.wake.Signal()
	}
	return nil
}

// Close stops admission, flushes what was admitted, answers every call, and
// waits for the committer's goroutine to end.
//
// It returns nil, or the [*PanicError] of a flush that panicked. When ctx ends
// first, it returns an error that wraps ctx's; admission stays stopped, the
// flushing goes on, and Close may be called again to wait for it. It may be
// called any number of times, concurrently too, but not by flush or a [Waiter].
func (c *Committer[T]) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.refusal == nil {
		c.refusal = ErrClosed
	}
	c.mu.Unlock()
	c.wake.Signal()
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done:
		default:
			return fmt.Errorf("close committer: %w", ctx.Err())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Waited returns for how long the oldest call has waited that is not answered, 0 if
// there is none. It is exact for calls of the group that is being flushed: a call
// that came when nothing was flushed counts from the start of its flush. It does
// not allocate or lock.
func (c *Committer[T]) Waited() time.Duration {
	opened := c.oldest.Load()
	if opened == never {
		return 0
	}
	return time.Since(c.start) - time.Duration(opened)
}

// never is the time of what has not come.
const never = math.MaxInt64

// Stats returns c's counters. It does not allocate.
func (c *Committer[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Flushing = c.flushing.Load()
	return st
}
