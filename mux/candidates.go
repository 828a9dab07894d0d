package mux

import "container/heap"

// A list holds routes in registration order.
type list struct{ first, last *link }

type link struct {
	at    int32 // the route's position in its router
	route *compiledRoute
	next  *link
}

func (l *list) add(route *compiledRoute) {
	n := &link{at: route.at, route: route}
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
}

// candidates is several ascending lists, read as one.
type candidates struct {
	few  [4]*link
	n    int       // used while there are few
	many *linkHeap // all, once there are more

	// steps counts the nodes and links that were looked at, for tests.
	steps int
}

func (c *candidates) add(l *list) {
	if l.first != nil {
		c.addLink(l.first)
	}
}

func (c *candidates) addLink(l *link) {
	switch {
	case c.many != nil:
		heap.Push(c.many, l)
	case c.n < len(c.few):
		c.few[c.n] = l
		c.n++
	default:
		c.many = &linkHeap{links: append(make([]*link, 0, 4*len(c.few)), c.few[:]...)}
		heap.Init(c.many)
		heap.Push(c.many, l)
	}
}

// next returns the route with the lowest position that is at least from, or
// nil, and drops the routes before it.
//
// Each dropped route costs at most the logarithm of the number of lists.
func (c *candidates) next(from int32) *link {
	if c.many != nil {
		lowest := c.many.next(from)
		c.steps, c.many.steps = c.steps+c.many.steps, 0
		return lowest
	}
	var lowest *link
	for i := range c.n {
		l := c.few[i]
		for l != nil && l.at < from {
			c.steps++
			l = l.next
		}
		c.few[i] = l
		if l != nil && (lowest == nil || l.at < lowest.at) {
			lowest = l
		}
	}
	return lowest
}

// A linkHeap is a heap of lists, the one with the lowest position first.
type linkHeap struct {
	links []*link
	steps int // exchanges, for tests
}

func (h *linkHeap) next(from int32) *link {
	for len(h.links) > 0 && h.links[0].at < from {
		if h.links[0] = h.links[0].next; h.links[0] == nil {
			heap.Pop(h)
		} else {
			heap.Fix(h, 0)
		}
	}
	if len(h.links) == 0 {
		return nil
	}
	return h.links[0]
}

func (h *linkHeap) Len() int           { return len(h.links) }
func (h *linkHeap) Less(i, j int) bool { return h.links[i].at < h.links[j].at }
func (h *linkHeap) Push(l any)         { h.links = append(h.links, l.(*link)) }

func (h *linkHeap) Swap(i, j int) {
	h.steps++
	h.links[i], h.links[j] = h.links[j], h.links[i]
}

// Pop removes the last list.
func (h *linkHeap) Pop() any {
	last := len(h.links) - 1
	l := h.links[last]
	h.links = h.links[:last]
	return l
}
