// Package connlimit bounds how many connections of a listener are open at one time.
//
// # Promise
//
//   - No more than [Config.MaxConns] plus [Config.MaxGuests] are open. Further ones
//     wait in the kernel's queue.
//   - Those beyond MaxConns are guests: their server is told, so that it can give
//     them one answer and close them. Whoever comes when there are too many learns
//     so, and whoever only asks for the server's health gets an answer.
//
// # Not here
//
// No answers, and no choice of whom to close.
package connlimit

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// A Config bounds a [Listener].
type Config struct {
	MaxConns  int // at least 1
	MaxGuests int // beyond MaxConns
}

// A Listener is a net.Listener with a bound on its open connections.
type Listener struct {
	net.Listener
	cfg    Config
	places chan struct{} // holds one for each open connection
	open   atomic.Int64
	closed chan struct{}
	once   sync.Once
}

// Listen bounds the connections of l, which is the Listener's from now on.
func Listen(l net.Listener, cfg Config) *Listener {
	return &Listener{
		Listener: l,
		cfg:      cfg,
		places:   make(chan struct{}, cfg.MaxConns+cfg.MaxGuests),
		closed:   make(chan struct{}),
	}
}

// Accept waits for a place, and then for a connection.
func (l *Listener) Accept() (net.Conn, error) {
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
	return &conn{Conn: c, of: l, guest: l.open.Add(1) > int64(l.cfg.MaxConns)}, nil
}

// Close closes the listener. Connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Open returns how many connections are open.
func (l *Listener) Open() int { return int(l.open.Load()) }

// A conn gives its place back when it is closed.
type conn struct {
	net.Conn
	of     *Listener
	guest  bool
	closed atomic.Bool
}

// Guest reports whether the connection is beyond MaxConns: it should be ended at
// its first answer.
func (c *conn) Guest() bool { return c.guest }

func (c *conn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		c.of.open.Add(-1)
		<-c.of.places
	}
	return err
}

// CloseWrite ends the own stream. net/http asks for it before it closes a
// connection that may hold unread bytes.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return net.ErrClosed
}

type guestKey struct{}

// Mark is the ConnContext of an http.Server: the contexts of a guest's requests
// remember that it is one. A connection is a guest if it, or the one that it wraps
// as NetConn, has a method Guest that returns true.
func Mark(ctx context.Context, c net.Conn) context.Context {
	for c != nil {
		if g, ok := c.(interface{ Guest() bool }); ok {
			if g.Guest() {
				return context.WithValue(ctx, guestKey{}, true)
			}
			return ctx
		}
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	return ctx
}

// IsGuest reports whether a request came on a guest's connection.
func IsGuest(ctx context.Context) bool { return ctx.Value(guestKey{}) != nil }
