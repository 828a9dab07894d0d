package mux

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
	n    int     // used while there are few
	heap []*link // all, once there are more; the lowest position first

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
	case c.heap != nil:
		c.heap = append(c.heap, l)
		c.up(len(c.heap) - 1)
	case c.n < len(c.few):
		c.few[c.n] = l
		c.n++
	default:
		c.heap = make([]*link, 0, 4*len(c.few))
		for _, l := range c.few {
			c.addLink(l)
		}
		c.addLink(l)
	}
}

// next returns the route with the lowest position that is at least from, or
// nil, and drops the routes before it.
//
// Each dropped route costs at most the logarithm of the number of lists.
func (c *candidates) next(from int32) *link {
	if c.heap != nil {
		return c.nextOfHeap(from)
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

func (c *candidates) nextOfHeap(from int32) *link {
	for len(c.heap) > 0 && c.heap[0].at < from {
		if next := c.heap[0].next; next != nil {
			c.heap[0] = next
		} else {
			last := len(c.heap) - 1
			c.heap[0] = c.heap[last]
			c.heap = c.heap[:last]
		}
		c.down()
	}
	if len(c.heap) == 0 {
		return nil
	}
	return c.heap[0]
}

func (c *candidates) up(i int) {
	for i > 0 {
		c.steps++
		parent := (i - 1) / 2
		if c.heap[parent].at <= c.heap[i].at {
			return
		}
		c.heap[parent], c.heap[i] = c.heap[i], c.heap[parent]
		i = parent
	}
}

func (c *candidates) down() {
	for i := 0; ; {
		c.steps++
		low := 2*i + 1
		if low >= len(c.heap) {
			return
		}
		if low+1 < len(c.heap) && c.heap[low+1].at < c.heap[low].at {
			low++
		}
		if c.heap[i].at <= c.heap[low].at {
			return
		}
		c.heap[i], c.heap[low] = c.heap[low], c.heap[i]
		i = low
	}
}
