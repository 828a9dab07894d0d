package listen

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A Bounded listener has a bound on its open connections.
type Bounded struct {
	net.Listener
	conns  *share.Conns
	places chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
}

// Bound bounds the connections of l, which belongs to the Bounded from now on, and so
// does conns.
func Bound(l net.Listener, conns *share.Conns) *Bounded {
	return &Bounded{
		Listener: l,
		conns:    conns,
		places:   make(chan struct{}, conns.Max+conns.MaxGuests),
		closed:   make(chan struct{}),
	}
}

// Accept waits for a place, and then for a connection.
func (l *Bounded) Accept() (net.Conn, error) {
	for {
		if !l.await() {
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		place, ok := l.conns.Enter(addrOf(c))
		if !ok {
			_ = c.Close() // its address has more than its share
			<-l.places
			continue
		}
		return &bounded{Conn: c, place: place, leave: func() { l.conns.Leave(place); <-l.places }}, nil
	}
}

// await waits for a place, for which others give way, and reports false at Close.
func (l *Bounded) await() bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
	}
	again := time.NewTicker(idleBefore)
	defer again.Stop()
	for {
		select {
		case l.places <- struct{}{}:
			return true
		case <-l.closed:
			return false
		case <-again.C:
			if l.conns.Want(); l.conns.OnGuest != nil {
				l.conns.OnGuest()
			}
		}
	}
}

// addrOf returns the address of c's peer, or the zero Addr.
func addrOf(c net.Conn) netip.Addr {
	if tcp, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}

// Close closes the listener. Connections stay open.
func (l *Bounded) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Open returns how many connections are open.
func (l *Bounded) Open() int { return int(l.conns.Open()) }

// A bounded connection gives its place back when it is closed.
type bounded struct {
	net.Conn
	place  share.Place
	leave  func() // gives the place back; nil: it has none
	closed atomic.Bool
}

// Guest reports whether the connection is beyond the bound: it should be ended at
// its first answer.
func (c *bounded) Guest() bool { return c.place.Guest }

// Place returns the connection's place.
func (c *bounded) Place() share.Place { return c.place }

// Exchange replaces the connection that c reads from and writes to, and returns the old
// one. No other method may be running.
func (c *bounded) Exchange(next net.Conn) (old net.Conn) {
	old, c.Conn = c.Conn, next
	return old
}

func (c *bounded) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) && c.leave != nil {
		c.leave()
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
