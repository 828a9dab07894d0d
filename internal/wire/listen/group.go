package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// A Group serves connections, each in a goroutine of its own. The zero Group is ready to use.
type Group struct {
	mu    sync.Mutex
	open  map[net.Conn]struct{} // guarded by mu
	tasks sync.WaitGroup
}

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
			if g.open == nil {
				g.open = map[net.Conn]struct{}{}
			}
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

// Shutdown waits until all connections have ended. The caller must have closed what they are accepted from. Shutdown
// makes the reads that are in progress fail. If ctx ends first, it calls cutOff, closes the rest, and returns an error
// that wraps ctx's.
func (g *Group) Shutdown(ctx context.Context, cutOff func()) error {
	g.each(func(c net.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	done := make(chan struct{})
	go func() { g.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		cutOff()
		g.each(func(c net.Conn) { _ = Below(c).Close() }) // without the goodbye of TLS, which could wait
		<-done
		return ctx.Err()
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
