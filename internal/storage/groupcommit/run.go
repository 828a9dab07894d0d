package groupcommit

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// run commits groups until Close has been called and the queue is empty, or until
// flush panics.
func (c *Committer[T]) run() {
	defer close(c.done)
	for g := c.next(nil); g != nil; g = c.next(g) {
		c.commit(g)
		// Let the callers that were just answered run, so that their next calls join
		// the next group. Otherwise the callers split into two halves that alternate,
		// and groups are half full. BenchmarkCommit on two processors, with a flush of
		// 1 ms: groups of 43 instead of 32 for 64 callers, and of 940 instead of 515
		// for 1,000. If the next group cannot grow, waiting is of no use: on busy
		// processors, Gosched may take tens of milliseconds.
		if !c.nextFull() {
			runtime.Gosched()
		}
	}
}

// nextFull reports whether no call can join the next group, because another group follows it.
func (c *Committer[T]) nextFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 1
}

// next frees the used group and waits for the next one. It returns nil if there will
// be none.
func (c *Committer[T]) next(used *group[T]) *group[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used != nil {
		c.free = append(c.free, used)
	}
	for len(c.queue) == 0 && c.rejection == nil {
		c.wake.Wait()
	}
	c.noteOldestLocked()
	if len(c.queue) == 0 {
		return nil
	}
	g := c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	return g
}

// noteOldestLocked records that the first group of the queue is the oldest one whose flush has
// not ended.
func (c *Committer[T]) noteOldestLocked() {
	opened := int64(never)
	if len(c.queue) > 0 {
		opened = int64(c.queue[0].opened)
	}
	c.oldest.Store(opened)
}

// commit flushes g and answers its calls. The answer is deferred, so that calls are
// answered even if flush panics or ends the goroutine.
func (c *Committer[T]) commit(g *group[T]) {
	f := Flush{Start: time.Now(), Items: len(g.items)}
	returned := false
	defer func() {
		c.flushing.Store(false)
		f.End = time.Now()
		var queued []*group[T]
		if !returned {
			queued, f.Err = c.fail(recover())
		}
		c.finish(g, f)
		for _, q := range queued {
			q.answer(Flush{Err: c.rejection}) // no longer changes after fail
		}
	}()
	c.flushing.Store(true)
	f.Err = c.flush(g.items)
	returned = true
}

// finish counts the flush f of g, answers its calls and empties it.
func (c *Committer[T]) finish(g *group[T], f Flush) {
	// The group leaves the queue before the first answer: an answered caller may
	// call Waited or commit again.
	c.mu.Lock()
	c.stats.Groups++
	if f.Err != nil {
		c.stats.Failed++
	}
	c.stats.Calls += uint64(len(g.waiters))
	c.leaveLocked(g)
	c.noteOldestLocked()
	c.mu.Unlock()
	if c.opt.OnFlush != nil {
		c.opt.OnFlush(f, g.items)
	}
	g.answer(f)
}

// leaveLocked subtracts the items and calls of g from the queue's counters.
func (c *Committer[T]) leaveLocked(g *group[T]) {
	c.stats.QueuedItems -= len(g.items)
	c.stats.QueuedCalls -= len(g.waiters)
}

// fail stops c permanently after flush did not return. It returns the queued groups,
// which commit answers with c.rejection, and the error for the calls of the flush.
func (c *Committer[T]) fail(panicValue any) (queued []*group[T], failure error) {
	failure = &PanicError{Value: panicValue, Stack: debug.Stack()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure, c.rejection = failure, fmt.Errorf("%w: %w", ErrNotWritten, failure)
	queued, c.queue = c.queue, nil
	for _, q := range queued {
		c.leaveLocked(q)
	}
	return queued, failure
}
