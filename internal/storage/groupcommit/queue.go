package groupcommit

import "time"

// A group is what one flush is given, and who waits for it.
type group[T any] struct {
	items   []T           // of all calls, in the order of admission
	waiters []Waiter      // one for each call, in the order of admission
	opened  time.Duration // when its first call was admitted, after the Committer's start
	next    *group[T]
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

// admitLocked lets a call join the newest group, or a new group behind it, or
// returns why not. It reports whether that group is the only one in the queue and
// the call is the first in it, so that run may be asleep.
func (c *Committer[T]) admitLocked(items []T, w Waiter) (isFirst bool, err error) {
	if c.refusal != nil {
		return false, c.refusal
	}
	if len(items) > c.maxQueued-c.stats.QueuedItems {
		c.stats.Full++
		return false, ErrFull
	}
	g := c.queue.newest
	isFirst = g == nil
	if g == nil || len(g.items)+len(items) > c.maxGroup {
		g = c.unusedLocked()
		g.opened = time.Since(c.start)
		c.queue.push(g)
	}
	g.items = append(g.items, items...)
	g.waiters = append(g.waiters, w)
	c.stats.QueuedItems += len(items)
	c.stats.QueuedCalls++
	return isFirst, nil
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
