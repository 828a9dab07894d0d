package sim

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A netTransport is the transport over any [net.Conn]: for TLS, and for systems
// without epoll. Two goroutines a connection make it dearer than epollTransport.
type netTransport struct {
	dial   func(context.Context) (net.Conn, error)
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	arrived chan netEvent
	conns   []*netConn // by number; nil: closed
	events  []event
}

// A netConn is one connection. The loop's goroutine owns it, but for what
// arrives through the channels.
type netConn struct {
	id     int32
	cancel context.CancelFunc
	out    chan []byte   // at most one request
	more   chan struct{} // in was taken

	has bool   // a read is there that was not taken whole
	in  []byte // what is left of it; valid until more
	err error  // what ended the connection
}

type netEvent struct {
	conn *netConn
	kind eventKind
	in   []byte
	err  error
}

func newNetTransport(n int, dial func(context.Context) (net.Conn, error)) *netTransport {
	t := &netTransport{dial: dial, conns: make([]*netConn, n), arrived: make(chan netEvent, eventsAtOnce)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// newTLSTransport returns the transport for n connections with TLS.
func newTLSTransport(target *Target, n int) transport {
	cfg := target.tlsConfig()
	return newNetTransport(n, func(ctx context.Context) (net.Conn, error) {
		conn, err := target.dialContext(ctx, "", "")
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secure, nil
	})
}

func (t *netTransport) open(id int32) {
	t.shut(id)
	ctx, cancel := context.WithCancel(t.ctx)
	c := &netConn{id: id, cancel: cancel, out: make(chan []byte, 1), more: make(chan struct{}, 1)}
	t.conns[id] = c
	t.tasks.Go(func() { t.serve(ctx, c) })
}

// serve lives as long as the connection.
func (t *netTransport) serve(ctx context.Context, c *netConn) {
	defer c.cancel()
	dialing, cancel := context.WithTimeout(ctx, 10*time.Second)
	conn, err := t.dial(dialing)
	cancel()
	if err != nil {
		t.tell(ctx, netEvent{conn: c, kind: lost})
		return
	}
	// Whatever ends ctx ends the reads and writes under way.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if stop() {
			conn.Close()
		}
	}()
	t.tasks.Go(func() {
		for {
			select {
			case p := <-c.out:
				if _, err := conn.Write(p); err != nil {
					conn.Close() // the reader tells
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	if !t.tell(ctx, netEvent{conn: c, kind: opened}) {
		return
	}
	buf := make([]byte, 16<<10)
	for err == nil {
		var n int
		n, err = conn.Read(buf)
		if !t.tell(ctx, netEvent{c, readable, buf[:n], err}) {
			return
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return
		}
	}
}

// tell hands an event to the loop, and reports false when the connection was
// shut meanwhile.
func (t *netTransport) tell(ctx context.Context, e netEvent) bool {
	select {
	case t.arrived <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *netTransport) write(id int32, p []byte) (int, error) {
	select {
	case t.conns[id].out <- append([]byte(nil), p...):
		return len(p), nil
	default:
		return 0, errBusy
	}
}

func (t *netTransport) read(id int32, p []byte) (int, error) {
	c := t.conns[id]
	if c == nil || !c.has {
		return 0, nil
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	switch {
	case len(c.in) > 0:
	case c.err == nil:
		c.has = false
		c.more <- struct{}{}
	case n == 0:
		return 0, c.err
	}
	return n, nil
}

func (t *netTransport) shut(id int32) {
	if c := t.conns[id]; c != nil {
		c.cancel()
		t.conns[id] = nil
	}
}

func (t *netTransport) wait(d time.Duration) ([]event, error) {
	t.events = t.events[:0]
	// What a read has left is there without a new event.
	for id, c := range t.conns {
		if c != nil && c.has {
			t.events = append(t.events, event{int32(id), readable})
		}
	}
	if len(t.events) > 0 {
		d = 0
	}
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case e := <-t.arrived:
		t.take(e)
	case <-timer.C:
		return t.events, nil
	}
	for len(t.events) < eventsAtOnce {
		select {
		case e := <-t.arrived:
			t.take(e)
		default:
			return t.events, nil
		}
	}
	return t.events, nil
}

// take takes over what arrived, unless its connection was shut meanwhile.
func (t *netTransport) take(e netEvent) {
	c := e.conn
	if t.conns[c.id] != c {
		return
	}
	switch e.kind {
	case readable:
		c.has, c.in, c.err = true, e.in, e.err
	case lost:
		t.conns[c.id] = nil
	}
	t.events = append(t.events, event{c.id, e.kind})
}

func (t *netTransport) close() error {
	t.cancel()
	t.tasks.Wait()
	return nil
}
