package share

import (
	"net/netip"
	"sync/atomic"
)

// Conns counts the connections of a listener and divides them by address. Its fields must
// not change once it is in use. It is safe for concurrent use.
//
// A connection is a guest if no place is left, or if its address holds its share. A guest
// gets one answer and is closed. Guests are divided by address too; a connection beyond
// its address's share of guests is closed at once. For each guest, one idle connection is
// evicted: one of the guest's address if that holds its share, otherwise one of any
// address.
type Conns struct {
	Of        Resource // the resource to divide: Connections, Handshakes
	Max       int
	MaxGuests int
	Holders   *Holders // nil means not divided

	// OnGuest, if not nil, is called for each new guest, so that idle connections can be
	// evicted. It must not block.
	OnGuest func()

	places, guests atomic.Int64  // taken
	wanted         atomic.Int64  // connections of any address to evict
	totalGuests    atomic.Uint64 // so far
}

// A Place is held by an open connection.
type Place struct {
	Holder *Holder // of its address; nil means exempt
	Guest  bool
}

// Enter takes a place for a connection from an address. If ok is false, the connection must
// be closed at once. Otherwise the caller must call Leave when it is closed.
func (c *Conns) Enter(addr netip.Addr) (p Place, ok bool) {
	p.Holder = c.Holders.Addr(addr)
	left := int64(c.Max) - c.places.Add(1)
	if left >= 0 && p.Holder.Take(c.Of, 1, left) {
		c.wanted.Store(0)
		if p.Holder != nil && c.Of == Connections {
			p.Holder.wanted.Store(0)
		}
		return p, true
	}
	c.places.Add(-1)
	if left < 0 {
		c.Want()
	} else {
		more(&p.Holder.wanted, c.MaxGuests)
	}
	c.totalGuests.Add(1)
	if c.OnGuest != nil {
		c.OnGuest()
	}
	p.Guest = true
	left = int64(c.MaxGuests) - c.guests.Add(1)
	if left >= 0 && p.Holder.Take(Refusals, 1, left) {
		return p, true
	}
	c.guests.Add(-1)
	c.Holders.Put(p.Holder)
	return Place{}, false
}

// Leave releases a place.
func (c *Conns) Leave(p Place) {
	if p.Guest {
		p.Holder.Give(Refusals, 1)
		c.guests.Add(-1)
	} else {
		p.Holder.Give(c.Of, 1)
		c.places.Add(-1)
	}
	c.Holders.Put(p.Holder)
}

// Want requests the eviction of one idle connection of any address.
func (c *Conns) Want() { more(&c.wanted, max(c.MaxGuests, 1)) }

// GiveWay reports whether an idle connection must be evicted to make room for another.
func (c *Conns) GiveWay(p Place) bool {
	left := int64(c.Max) - c.places.Load()
	switch {
	case p.Guest:
		return false // guests are closed soon anyway
	case left <= 0 && less(&c.wanted):
		return true
	}
	return p.Holder != nil && p.Holder.held[c.Of].Load() >= left && less(&p.Holder.wanted)
}

// Guests returns the number of guests so far, including those closed at once.
func (c *Conns) Guests() uint64 { return c.totalGuests.Load() }

// Full reports whether there is no place left, not even for guests.
func (c *Conns) Full() bool {
	return c.places.Load() >= int64(c.Max) && c.guests.Load() >= int64(c.MaxGuests)
}

// Open returns the number of connections that have entered and not left.
func (c *Conns) Open() int64 { return c.places.Load() + c.guests.Load() }

// more adds 1 to n, up to most.
func more(n *atomic.Int64, most int) {
	for v := n.Load(); v < int64(most); v = n.Load() {
		if n.CompareAndSwap(v, v+1) {
			return
		}
	}
}

// less subtracts 1 from n if n is positive, and reports whether it was.
func less(n *atomic.Int64) bool {
	for v := n.Load(); v > 0; v = n.Load() {
		if n.CompareAndSwap(v, v-1) {
			return true
		}
	}
	return false
}
