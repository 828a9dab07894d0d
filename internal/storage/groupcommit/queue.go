package groupcommit

import "time"

// A group holds the items of one flush and the Waiters of their calls.
type group[T any] struct {
	items   []T           // of all calls, in the order of admission
	waiters []Waiter      // one for each call, in the order of admission
	opened  time.Duration // from the Committer's start to the admission of its first call
	next    *group[T]
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

// A groupList is a list of groups, oldest first. The zero groupList is empty.
type groupList[T any] struct {
	oldest, newest *group[T]
}

// push appends g to l.
func (l *groupList[T]) push(g *group[T]) {
	if l.newest == nil {
		l.oldest = g
	} else {
		l.newest.next = g
	}
	l.newest = g
}

// pop removes the oldest group from l and returns it, or nil if l is empty.
func (l *groupList[T]) pop() *group[T] {
	g := l.oldest
	if g == nil {
		return nil
	}
	l.oldest = g.next
	if l.oldest == nil {
		l.newest = nil
	}
	g.next = nil
	return g
}

// unusedLocked returns a group without items, one of c.free if there is any.
func (c *Committer[T]) unusedLocked() *group[T] {
	g := c.free
	if g == nil {
		return new(group[T])
	}
	c.free, g.next = g.next, nil
	return g
}
