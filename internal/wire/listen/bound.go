package listen

import (
	"net"
	"sync"
	"sync/atomic"
)

// Limits bound the connections of a [Bounded] listener.
type Limits struct {
	MaxConns  int // at least 1
	MaxGuests int // beyond MaxConns
}

// A Bounded listener has a bound on its open connections.
type Bounded struct {
	net.Listener
	limits Limits
	places chan struct{} // holds one for each open connection
	open   atomic.Int64
	closed chan struct{}
	once   sync.Once
}

// Bound bounds the connections of l, which belongs to the Bounded from now on.
func Bound(l net.Listener, limits Limits) *Bounded {
	return &Bounded{
		Listener: l,
		limits:   limits,
		places:   make(chan struct{}, limits.MaxConns+limits.MaxGuests),
		closed:   make(chan struct{}),
	}
}

// Accept waits for a place, and then for a connection.
func (l *Bounded) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &bounded{Conn: c, of: l, guest: l.open.Add(1) > int64(l.limits.MaxConns)}, nil
}

// Close closes the listener. Connections stay open.
func (l *Bounded) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Open returns how many connections are open.
func (l *Bounded) Open() int { return int(l.open.Load()) }

// A bounded connection gives its place back when it is closed.
type bounded struct {
	net.Conn
	of     *Bounded
	guest  bool
	closed atomic.Bool
}

// Guest reports whether the connection is beyond MaxConns: it should be ended at
// its first answer.
func (c *bounded) Guest() bool { return c.guest }

func (c *bounded) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.of.open.Add(-1)
		<-c.of.places
	}
	return err
}

// CloseWrite ends the own stream. net/http asks for it before it closes a
// connection that may hold unread bytes.
func (c *bounded) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}
