package eventloop

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A movedConn is a connection that was given away. Its first reads return what
// the loop had read.
//
// It embeds the interface, not the *net.TCPConn: that one's WriteTo would read
// past unread.
type movedConn struct {
	net.Conn
	unread []byte // owned; of Read only
	place  share.Place
	left   func(share.Place) // counts the connection out
	closed atomic.Bool

	// held is what unread's buffer has taken of memory. It is given back when all is
	// read, or when the connection is closed, whichever comes first: a client of the
	// other server may be slow, too.
	memory Memory
	held   atomic.Int64 // bytes
}

// release gives back what is held.
func (c *movedConn) release() {
	if n := c.held.Swap(0); n > 0 {
		c.memory.Release(c.place.Holder, int(n))
	}
}

// Guest reports whether the connection was taken beyond its bound: it should
// be ended at its first answer.
func (c *movedConn) Guest() bool { return c.place.Guest }

// Place returns the connection's place.
func (c *movedConn) Place() share.Place { return c.place }

// Read is for one goroutine at a time, as net/http uses it.
func (c *movedConn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.unread = nil
		c.release()
	}
	return n, nil
}

// Close closes the connection and counts it out.
func (c *movedConn) Close() error {
	if !c.closed.Swap(true) {
		c.release()
		defer c.left(c.place) // which is free when the descriptor is
	}
	return c.Conn.Close()
}

// CloseWrite ends the own stream. net/http asks for it before it closes a
// connection that may hold unread bytes.
func (c *movedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

// moved is a queue of connections for another server. It is bounded by the number
// of connections that may be open.
type moved struct {
	mu     sync.Mutex
	change sync.Cond  // signalled when conns or closed changes
	conns  []net.Conn // guarded by mu
	closed bool       // guarded by mu
}

// push adds a connection, and reports false when nobody will take it.
func (q *moved) push(c net.Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.conns = append(q.conns, c)
	q.change.Broadcast()
	return true
}

// pop waits for a connection. It returns nil when the queue is closed.
func (q *moved) pop() net.Conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.conns) == 0 && !q.closed {
		q.change.Wait()
	}
	if q.closed {
		return nil
	}
	c := q.conns[0]
	q.conns[0] = nil
	q.conns = q.conns[1:]
	return c
}

// close closes what is left in the queue and ends every pop.
func (q *moved) close() {
	q.mu.Lock()
	left := q.conns
	q.conns, q.closed = nil, true
	q.change.Broadcast()
	q.mu.Unlock()
	for _, c := range left {
		_ = c.Close() // nobody has promised them anything
	}
}
