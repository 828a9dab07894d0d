package listen

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// idleBefore is how long a connection must have been idle to be evicted.
const idleBefore = time.Second

// Idle tracks the idle connections of an http.Server, so that they can be evicted. The
// zero Idle is ready to use.
type Idle struct {
	mu    sync.Mutex
	conns map[net.Conn]*list.Element // of order; guarded by mu
	order list.List                  // of *idleConn, longest idle first; guarded by mu
}

type idleConn struct {
	conn  net.Conn
	place share.Place
	since time.Time
}

// ConnState is for http.Server.ConnState.
func (i *Idle) ConnState(c net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if at := i.conns[c]; at != nil {
		i.order.Remove(at)
		delete(i.conns, c)
	}
	if state != http.StateNew && state != http.StateIdle {
		return
	}
	inner, place, ok := placeOf(c)
	if !ok {
		return
	}
	if i.conns == nil {
		i.conns = map[net.Conn]*list.Element{}
	}
	i.conns[c] = i.order.PushBack(&idleConn{inner, place, time.Now()})
}

// placeOf returns the connection below c that has a place. Closing that one does not block,
// unlike closing a tls.Conn, which sends an alert.
func placeOf(c net.Conn) (net.Conn, share.Place, bool) {
	for c != nil {
		if p, ok := c.(interface{ Place() share.Place }); ok {
			return c, p.Place(), true
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return nil, share.Place{}, false
}

// evictAtMost bounds the number of connections that one call of Evict examines.
const evictAtMost = 4096

// Evict closes connections that have been idle for a second and whose places are wanted,
// and guests that have sent nothing for as long.
func (i *Idle) Evict(conns *share.Conns) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := time.Now().Add(-idleBefore)
	for at, n := i.order.Front(), 0; at != nil && n < evictAtMost; n++ {
		c, next := at.Value.(*idleConn), at.Next()
		if c.since.After(before) {
			return
		}
		if c.place.Guest || conns.GiveWay(c.place) {
			i.order.Remove(at) // ConnState finds the key, and removes nothing
			_ = c.conn.Close()
		}
		at = next
	}
}
