package groupcommit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options configures a [Committer].
type Options[T any] struct {
	// MaxGroup is the largest number of items of one flush, and so of one call.
	// At least 1.
	MaxGroup int

	// OnFlush is called after each flush with the items of the group, in the order in
	// which the flush function has left them, before its calls are answered, under the
	// rules for [Waiter.Done]. It must not retain the slice, nor use what the items point
	// to after it has returned. May be nil.
	OnFlush func(f Flush, group []T)
}

// A Committer merges the calls of many goroutines into groups and passes one
// group after the other to its flush function. Create it with [New].
//
// All methods may be called concurrently.
type Committer[T any] struct {
	opt   Options[T]
	flush func(group []T) error

	start  time.Time    // when New was called
	oldest atomic.Int64 // ns from start to the opening of the oldest unanswered group; never: there is none

	flushing atomic.Bool // flush is running

	calls sync.Pool     // of call, for Commit
	done  chan struct{} // closed when run has ended

	// wake is signaled when a group becomes the only one in the queue, and when
	// rejection is set. run waits for it.
	wake sync.Cond

	// mu guards what follows. It is never held while flush, OnFlush or a Waiter
	// runs.
	mu sync.Mutex

	// queue holds the groups that wait for their flush, oldest first. Calls join the newest
	// one.
	//
	// Invariant: run answers every call in it exactly once, even if Close is called
	// or flush panics while it waits. A Commit whose ctx never ends relies on this to
	// return; TestModel checks it.
	queue []*group[T]

	// free holds emptied groups for reuse.
	//
	// Invariant: two adjacent groups in the queue hold more than MaxGroup items
	// together, so n queued items are in at most 2n/MaxGroup + 3 groups, each with
	// a capacity of at most 2*MaxGroup items. TestGroupsAreBounded checks it.
	free []*group[T]

	rejection error // the answer to a new call; nil while calls are admitted
	failure   error // the *PanicError that ended run, or nil
	stats     Stats // without Flushing
}

// Stats holds a Committer's counters since New, and the current size of its queue.
type Stats struct {
	Groups uint64 // flushes that have ended
	Failed uint64 // of Groups: flushes that returned an error or panicked
	Calls  uint64 // calls in these groups

	Flushing    bool // the flush function is running
	QueuedItems int  // items admitted whose flush has not ended
	QueuedCalls int  // calls admitted whose flush has not ended
}

// A Flush is one call of the flush function.
type Flush struct {
	Start, End time.Time
	Items      int   // of the group
	Err        error // nil means the group is durable
}

// A Waiter receives the answer to a call of [Committer.Submit].
type Waiter interface {
	// Done is called once, with the flush of the call's group. If an earlier flush
	// panicked, the group has no flush: only Err is set, and it wraps ErrNotWritten.
	//
	// Done runs on the committer's goroutine, while every other call waits: it
	// must not block and must not panic. It may call Submit; Commit and Close
	// would deadlock. It may run before Submit has returned.
	Done(Flush)
}

// New returns a Committer that passes groups of items to flush, and starts its
// goroutine, which [Committer.Close] ends.
//
// flush makes a group durable before it returns nil. It is called with 1 to
// opt.MaxGroup items, by one goroutine, never concurrently. It may modify the
// slice, but must not retain it. It must not wait for a call to the same
// Committer.
//
// New panics if flush is nil or opt.MaxGroup is below 1.
func New[T any](opt Options[T], flush func(group []T) error) *Committer[T] {
	switch {
	case flush == nil:
		panic("groupcommit: flush is nil")
	case opt.MaxGroup < 1:
		panic(fmt.Sprintf("groupcommit: MaxGroup is %d, want at least 1", opt.MaxGroup))
	}
	c := &Committer[T]{opt: opt, flush: flush, start: time.Now(), done: make(chan struct{})}
	c.oldest.Store(never)
	// The capacity of 1 keeps Done from blocking, even after Commit has returned.
	c.calls.New = func() any { return make(call, 1) }
	c.wake.L = &c.mu
	go c.run()
	return c
}

// A call is the Waiter of one Commit.
type call chan Flush

// Done passes the flush to Commit.
func (w call) Done(f Flush) { w <- f }

// Commit writes items durably. It waits for the groups ahead of it, then for
// one flush, which it returns with its error.
//
// It returns an error that wraps [ErrNotWritten] if nothing was written:
// [ErrClosed], [ErrTooLarge], ctx's error if ctx had ended before the call, or a
// [*PanicError] if an earlier flush panicked. An error of flush is returned
// unchanged. After an error that does not wrap ErrNotWritten, ctx's included, the
// outcome is unknown, unless the error of flush defines it: the items may be durable
// or may yet become so. A caller that retries must therefore be idempotent.
//
// Commit copies the slice and does not retain it. What the items point to belongs to
// flush until Commit returns. If Commit returns ctx's error without ErrNotWritten,
// flush may use it even later, and the caller must neither modify nor reuse it.
//
// Without items, Commit returns nil immediately, even if ctx has ended or c is closed.
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
		// Prefer the answer if both are ready: it is more precise.
		select {
		case f = <-w:
		default:
			// run still holds w and will answer it later. Do not reuse w: another
			// call would receive that answer.
			return Flush{}, ctx.Err()
		}
	}
	c.calls.Put(w)
	return f, f.Err
}

// Submit is Commit for a caller that does not wait: it admits items and returns
// nil, and w receives the answer later.
//
// If Submit returns an error, the call was not admitted, w.Done is not called, and
// the error wraps [ErrNotWritten] as described at [Committer.Commit]. Calls are
// admitted, flushed and answered in the order of their Submits.
//
// Without items, Submit calls w.Done with the zero Flush before it returns.
func (c *Committer[T]) Submit(items []T, w Waiter) error {
	if len(items) == 0 {
		w.Done(Flush{})
		return nil
	}
	if len(items) > c.opt.MaxGroup {
		return ErrTooLarge
	}
	c.mu.Lock()
	if err := c.rejection; err != nil {
		c.mu.Unlock()
		return err
	}
	last := len(c.queue) - 1
	isFirst := last < 0 // run may be asleep
	if isFirst || len(c.queue[last].items)+len(items) > c.opt.MaxGroup {
		c.queue = append(c.queue, c.unusedLocked())
		last++
		c.queue[last].opened = time.Since(c.start)
	}
	g := c.queue[last]
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
// It returns nil, or the [*PanicError] of a flush that panicked. If ctx ends first,
// it returns an error that wraps ctx's; admission stays stopped, flushing continues,
// and Close may be called again to wait for it. Close may be called any number of
// times, also concurrently, but not by flush or a [Waiter].
func (c *Committer[T]) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.rejection == nil {
		c.rejection = ErrClosed
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

// Waited returns how long the oldest unanswered call has waited, or 0 if there is
// none. It returns 0 as well until the flush of that call's group has begun, if no
// flush was running when the call was admitted. It does not allocate or lock.
func (c *Committer[T]) Waited() time.Duration {
	opened := c.oldest.Load()
	if opened == never {
		return 0
	}
	return time.Since(c.start) - time.Duration(opened)
}

// never is the value of Committer.oldest without a group.
const never = math.MaxInt64

// Stats returns c's counters. It does not allocate.
func (c *Committer[T]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Flushing = c.flushing.Load()
	return st
}
