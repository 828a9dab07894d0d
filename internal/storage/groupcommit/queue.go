package groupcommit

import (
	"slices"
	"time"
)

// A group holds the items of one flush and the Waiters of their calls.
type group[T any] struct {
	items   []T           // of all calls, in the order of admission
	waiters []Waiter      // one for each call, in the order of admission
	opened  time.Duration // from the Committer's start to the admission of its first call
}

// answer answers every call of g with f, in the order of admission, and empties g so
// that it retains nothing.
func (g *group[T]) answer(f Flush) {
	clear(g.items)
	g.items = g.items[:0]
	for i, w := range g.waiters {
		g.waiters[i] = nil
		w.Done(f)
	}
	g.waiters = g.waiters[:0]
}

// unusedLocked returns a group without items, one of c.free if there is any.
func (c *Committer[T]) unusedLocked() *group[T] {
	last := len(c.free) - 1
	if last < 0 {
		return new(group[T])
	}
	g := c.free[last]
	c.free = slices.Delete(c.free, last, last+1)
	return g
}
