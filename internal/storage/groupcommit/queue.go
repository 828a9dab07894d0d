package groupcommit

import "time"

// A group is what one flush is given, and who waits for it.
type group[T any] struct {
	items   []T           // of all calls, in the order of admission
	waiters []Waiter      // one for each call, in the order of admission
	opened  time.Duration // when its first call was admitted, after the Committer's start
	next    *group[T]
}

// tell answers every call of g, in the order of admission, and empties g so that
// it retains nothing.
func (g *group[T]) tell(f Flush) {
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

// push puts g behind the newest group.
func (l *groupList[T]) push(g *group[T]) {
	if l.newest == nil {
		l.oldest = g
	} else {
		l.newest.next = g
	}
	l.newest = g
}

// pop takes the oldest group out of l. It returns nil when l is empty.
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

// unusedLocked returns a group without items, a used one when there is one.
func (c *Committer[T]) unusedLocked() *group[T] {
	g := c.free
	if g == nil {
		return new(group[T])
	}
	c.free, g.next = g.next, nil
	return g
}
