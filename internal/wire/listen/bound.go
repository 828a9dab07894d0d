package listen

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A bounded listener has a bound on its open connections.
type bounded struct {
	net.Listener
	conns  *share.Conns
	places chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
}

// Bound bounds the connections of l. It takes ownership of l and conns.
func Bound(l net.Listener, conns *share.Conns) net.Listener {
	return &bounded{
		Listener: l,
		conns:    conns,
		places:   make(chan struct{}, conns.Max+conns.MaxGuests),
		closed:   make(chan struct{}),
	}
}

// Accept waits for a place, and then for a connection.
func (l *bounded) Accept() (net.Conn, error) {
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
			_ = c.Close() // its address exceeds its share
			<-l.places
			continue
		}
		return NewConn(c, place, func(place share.Place) { l.conns.Leave(place); <-l.places }), nil
	}
}

// await waits for a place, for which idle connections are evicted. It reports false after
// Close.
func (l *bounded) await() bool {
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
func (l *bounded) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A Conn is a connection that holds a place until it is closed.
type Conn struct {
	net.Conn
	place  share.Place
	leave  func(share.Place) // releases the place; nil means it has none yet
	closed atomic.Bool

	// HandshakeBytes is how much the peer has sent in its TLS handshake. crypto/tls keeps
	// buffers of about that size.
	HandshakeBytes int

	// RecordBegun reports whether part of a TLS record has come with the end of the handshake.
	RecordBegun bool
}

// NewConn returns a Conn that calls leave with its place when it is closed.
func NewConn(c net.Conn, place share.Place, leave func(share.Place)) *Conn {
	return &Conn{Conn: c, place: place, leave: leave}
}

// Guest reports whether the connection was accepted beyond the bound: it should end with
// its first answer.
func (c *Conn) Guest() bool { return c.place.Guest }

// Place returns the connection's place.
func (c *Conn) Place() share.Place { return c.place }

// Exchange replaces the connection that c reads from and writes to, and returns the old
// one. No other method may be running.
func (c *Conn) Exchange(next net.Conn) (old net.Conn) {
	old, c.Conn = c.Conn, next
	return old
}

// Close closes the connection, and then releases its place.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) && c.leave != nil {
		c.leave(c.place)
	}
	return err
}

// SyscallConn returns the socket of the connection.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return SyscallConn(c.Conn) }

// SyscallConn returns the socket of a connection. One with TLS has none.
func SyscallConn(c net.Conn) (syscall.RawConn, error) {
	if socket, ok := c.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite half-closes the connection. net/http calls it before it closes a connection
// that may have unread input.
func (c *Conn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite half-closes a connection, if it can be.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}
