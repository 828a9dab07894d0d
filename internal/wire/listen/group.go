package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A Group serves connections, each in a goroutine of its own.
type Group struct {
	Draining context.Context // ends with Drain
	Waiting  context.Context // ends when Shutdown stops waiting

	drain, stopWaiting context.CancelFunc

	mu    sync.Mutex
	open  map[net.Conn]struct{} // guarded by mu
	tasks sync.WaitGroup
}

// NewGroup returns a Group without connections.
func NewGroup() *Group {
	g := &Group{open: map[net.Conn]struct{}{}}
	g.Draining, g.drain = context.WithCancel(context.Background())
	g.Waiting, g.stopWaiting = context.WithCancel(context.Background())
	return g
}

// Drain begins Shutdown.
func (g *Group) Drain() { g.drain() }

// Drains reports whether Drain was called.
func (g *Group) Drains() bool { return g.Draining.Err() != nil }

// Serve calls accept again and again, in a goroutine, until its error is net.ErrClosed, and the function that it
// returns for each connection. That function must end once a read or write of the connection has failed; then the
// connection is closed.
func (g *Group) Serve(accept func() (net.Conn, func(), error)) {
	g.tasks.Go(func() {
		for {
			c, serve, err := accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(acceptAgain) // no descriptors
				continue
			}
			g.mu.Lock()
			g.open[c] = struct{}{}
			g.mu.Unlock()
			g.tasks.Go(func() {
				serve()
				_ = c.Close()
				g.mu.Lock()
				delete(g.open, c)
				g.mu.Unlock()
			})
		}
	})
}

// acceptAgain is the time after a failed accept.
const acceptAgain = 50 * time.Millisecond

// Shutdown calls Drain, closes l, from which the connections are accepted, makes the reads that are in progress fail, and
// waits until all connections have ended. If ctx ends first, it closes the rest, and returns an error that wraps ctx's.
func (g *Group) Shutdown(ctx context.Context, l io.Closer) error {
	g.drain()
	defer g.stopWaiting()
	err := l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	g.each(func(c net.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	done := make(chan struct{})
	go func() { g.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		g.stopWaiting()
		g.each(func(c net.Conn) { _ = Below(c).Close() }) // without the goodbye of TLS, which could wait
		<-done
		return errors.Join(err, ctx.Err())
	}
}

func (g *Group) each(f func(net.Conn)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		f(c)
	}
}

// Below returns the connection below TLS, or c.
func Below(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// TLSState returns the state of a connection's TLS, or nil.
func TLSState(c net.Conn) *tls.ConnectionState {
	if t, ok := c.(interface{ ConnectionState() tls.ConnectionState }); ok {
		state := t.ConnectionState()
		return &state
	}
	return nil
}
