package pgtest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Sockets dials servers, and breaks connections. The zero value breaks none.
type Sockets struct {
	// Mark is in each message whose answer can be cut off.
	Mark []byte

	mu   sync.Mutex
	open map[net.Conn]struct{} // guarded by mu

	cut  atomic.Int64 // 1 + number of bytes after which an answer is cut off; 0 means none is
	last atomic.Int64 // bytes of the last answer
	sent atomic.Int64 // messages with the mark
}

// Dial connects to a server.
func (s *Sockets) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[net.Conn]struct{}{}
	}
	s.open[conn] = struct{}{}
	return &socket{Conn: conn, s: s}, nil
}

// BreakAll closes all connections.
func (s *Sockets) BreakAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.open {
		_ = conn.Close()
	}
	clear(s.open)
}

// CutAfter closes the connection of the next answer that is longer than this many bytes, and the
// client gets no more of it.
func (s *Sockets) CutAfter(bytes int64) { s.cut.Store(1 + bytes) }

// CutNone takes CutAfter back, and reports whether it has cut off an answer.
func (s *Sockets) CutNone() (cut bool) { return s.cut.Swap(0) == 0 }

// HasCut reports whether an answer was cut off since CutAfter.
func (s *Sockets) HasCut() bool { return s.cut.Load() == 0 }

// Answers returns the number of messages so far whose answers can be cut off.
func (s *Sockets) Answers() int64 { return s.sent.Load() }

// LastAnswer returns the number of bytes of the last answer so far.
func (s *Sockets) LastAnswer() int64 { return s.last.Load() }

// A socket is a connection to a server that may disappear in the middle of an answer.
type socket struct {
	net.Conn
	s *Sockets

	marked atomic.Bool  // the last message had the mark
	got    atomic.Int64 // bytes of the answer to it
}

func (c *socket) Close() error {
	c.s.mu.Lock()
	delete(c.s.open, c.Conn)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

func (c *socket) Write(p []byte) (int, error) {
	marked := len(c.s.Mark) > 0 && bytes.Contains(p, c.s.Mark)
	c.got.Store(0)
	c.marked.Store(marked)
	if marked {
		c.s.sent.Add(1)
	}
	return c.Conn.Write(p)
}

func (c *socket) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.marked.Load() {
		return n, err
	}
	got := c.got.Add(int64(n))
	c.s.last.Store(got)
	cut := c.s.cut.Load()
	if cut == 0 || got < cut || !c.s.cut.CompareAndSwap(cut, 0) { // 0 by now: another connection was cut off
		return n, err
	}
	_ = c.Close()
	return max(n-int(got-(cut-1)), 0), io.EOF
}

// Forward listens on a loopback address until the test ends. It connects each client with the
// address that to returns then, over a connection of s; with none if that is "".
func (s *Sockets) Forward(t testing.TB, to func() string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		s.BreakAll()
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go s.forward(client, to())
		}
	}()
	return l.Addr().String()
}

func (s *Sockets) forward(client net.Conn, to string) {
	defer client.Close()
	if to == "" {
		return
	}
	server, err := s.Dial(context.Background(), "tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
