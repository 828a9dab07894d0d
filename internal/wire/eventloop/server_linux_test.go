package eventloop_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		child()
		return
	}
	polltest.Main(m)
}

// childVar is set to run the test binary as a server. Its value is the number of
// descriptors it may open, "none" for no limit, or "tls" for TLS and no limit.
const childVar = "EVENTLOOP_TEST_CHILD"

// A bounded is a Memory of a fixed size.
type bounded struct{ left atomic.Int64 }

func newBounded(n int64) *bounded {
	var b bounded
	b.left.Store(n)
	return &b
}

func (b *bounded) Reserve(_ *share.Holder, n int) bool {
	if b.left.Add(int64(-n)) < 0 {
		b.left.Add(int64(n))
		return false
	}
	return true
}

func (b *bounded) Release(_ *share.Holder, n int) { b.left.Add(int64(n)) }

// An echo answers each line with itself: by another goroutine if the line begins
// with "later", so that the loop must be woken. "move" moves the connection, "end"
// ends it.
type echo struct {
	loop *eventloop.Loop
	wg   *sync.WaitGroup
	info func(command string) string

	within time.Duration // for the rest of a line; 0: longer than a test takes

	mu   sync.Mutex
	done []answer // guarded by mu
}

type answer struct {
	conn *eventloop.Conn
	text string
}

func (e *echo) Receive(c *eventloop.Conn, b []byte, ended bool) (taken int) {
	for !c.Full() {
		line, _, whole := bytes.Cut(b[taken:], []byte("\n"))
		if !whole {
			c.Within(cmp.Or(e.within, time.Hour))
			return taken
		}
		text := string(line)
		if text == "move" {
			c.Move()
			return taken
		}
		taken += len(line) + 1
		c.Owe()
		switch {
		case text == "who":
			c.Send(fmt.Appendln(nil, c.PeerAddr()), 1)
		case text == "end":
			c.End()
			c.Send([]byte("bye\n"), 1)
		case strings.HasPrefix(text, "later"):
			e.wg.Go(func() {
				time.Sleep(time.Millisecond) // so that the loop waits by then
				e.mu.Lock()
				e.done = append(e.done, answer{c, text})
				e.mu.Unlock()
				e.loop.Wake()
			})
		case strings.HasPrefix(text, "?"):
			c.Send([]byte(e.info(text[1:])+"\n"), 1)
		default:
			c.Send([]byte(text+"\n"), 1)
		}
	}
	return taken
}

func (e *echo) Round() {}

func (e *echo) Woken() {
	e.mu.Lock()
	done := e.done
	e.done = nil
	e.mu.Unlock()
	for _, a := range done {
		a.conn.Send([]byte(a.text+"\n"), 1)
	}
}

func (e *echo) GiveUp(c *eventloop.Conn, b []byte, why eventloop.Reason) {
	if len(b) > 0 {
		c.Owe()
		c.Send(fmt.Appendf(nil, "given up %d\n", why), 1)
	}
}

// start starts a server of echoes.
func start(t testing.TB, cfg eventloop.Config) (*eventloop.Server, *bounded) {
	t.Helper()
	return startAt(t, "127.0.0.1:0", cfg)
}

func startAt(t testing.TB, addr string, cfg eventloop.Config) (*eventloop.Server, *bounded) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	try(t, err)
	memory := newBounded(1 << 20)
	if cfg.Memory == nil {
		cfg.Memory = memory
	}
	cfg.MaxMessage = 100 << 10
	cfg.Tick = 10 * time.Millisecond
	var wg sync.WaitGroup
	if cfg.Handler == nil {
		cfg.Handler = func(loop *eventloop.Loop) eventloop.Handler { return &echo{loop: loop, wg: &wg} }
	}
	if cfg.TLS != nil {
		l = tlsListener(l, cfg.Conns)
	}
	s, err := eventloop.Serve(l, cfg)
	try(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
		defer cancel()
		if err := errors.Join(s.Close(), s.Shutdown(ctx)); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if n := s.Stats().Open; n != 0 {
			t.Errorf("%d connections are open at the end", n)
		}
		if left := memory.left.Load(); left != 1<<20 {
			t.Errorf("%d bytes are held at the end", 1<<20-left)
		}
	})
	return s, memory
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	try(t, err)
	t.Cleanup(func() { conn.Close() })
	try(t, conn.SetDeadline(time.Now().Add(polltest.Patience)))
	return conn.(*net.TCPConn)
}

// write writes all of a text.
func write(t testing.TB, w io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	try(t, err)
}

// ask sends a line and returns the next line it receives.
func ask(t testing.TB, conn net.Conn, line string) string {
	t.Helper()
	write(t, conn, line+"\n")
	return readLine(t, conn)
}

func readLine(t testing.TB, conn net.Conn) string {
	t.Helper()
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, one); err != nil {
			t.Fatalf("read line: %v after %q", err, line)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

// openFiles counts this process's descriptors.
func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	try(t, err)
	return len(files)
}

// No descriptor leaks, whichever way connections on several loops end.
func TestNoDescriptorsLeft(t *testing.T) {
	before := openFiles(t)
	t.Run("serve", func(t *testing.T) {
		s, _ := start(t, eventloop.Config{Loops: 3})
		var movedConns sync.WaitGroup
		movedConns.Go(func() {
			for {
				conn, err := s.Accept()
				if err != nil {
					return
				}
				movedConns.Go(func() {
					defer conn.Close()
					line, err := bufio.NewReader(conn).ReadString('\n')
					if err != nil || line != "move\n" {
						t.Errorf("a moved connection begins with %q, %v", line, err)
					}
					io.WriteString(conn, "moved\n")
				})
			}
		})
		var clients sync.WaitGroup
		for i := range 200 {
			clients.Go(func() {
				conn, err := net.Dial("tcp", s.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				switch i % 6 {
				case 0: // closes at once
				case 1:
					io.WriteString(conn, "later\nlater\n") // closes before the answers
				case 2:
					if got := ask(t, conn, "end"); got != "bye" {
						t.Errorf("answer %q", got)
					}
					if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
						t.Errorf("after the end: %q, %v", rest, err)
					}
				case 3:
					if got := ask(t, conn, "move"); got != "moved" {
						t.Errorf("answer %q", got)
					}
				case 4:
					conn.(*net.TCPConn).SetLinger(0)
					io.WriteString(conn, "unfinished")
				default:
					for _, line := range []string{"a", "later b", "c"} {
						if got := ask(t, conn, line); got != line {
							t.Errorf("answer %q, want %q", got, line)
						}
					}
				}
			})
		}
		clients.Wait()
		polltest.Until(t, "all connections are closed", func() bool { return s.Stats().Open == 0 })
		if got := s.Stats(); got.Accepted != 200 || got.Moved != 33 {
			t.Errorf("%+v, want 200 accepted and 33 moved", got)
		}
		s.Close()
		movedConns.Wait()
	})
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, and %d were before", after, before)
	}
}

// PeerAddr returns the peer over IPv4, over IPv6, and over IPv4 on an IPv6 socket.
func TestPeerAddr(t *testing.T) {
	for _, tt := range []struct{ listen, host string }{
		{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {"[::]:0", "127.0.0.1"},
	} {
		if l, err := net.Listen("tcp", tt.listen); err != nil {
			t.Logf("not tested at %s: %v", tt.listen, err) // a machine without IPv6
			continue
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s, _ := startAt(t, tt.listen, eventloop.Config{})
		_, port, err := net.SplitHostPort(s.Addr().String())
		try(t, err)
		conn := dial(t, net.JoinHostPort(tt.host, port))
		write(t, conn, "who\n")
		if got := strings.TrimSpace(readLine(t, conn)); got != tt.host {
			t.Errorf("at %s: got peer %s, want %s", tt.listen, got, tt.host)
		}
	}
}

// The input read before a connection moved counts as memory until the other server has
// read it or closed the connection. (Seen to fail when it was a copy that was not
// counted.)
func TestMovedMemory(t *testing.T) {
	s, memory := start(t, eventloop.Config{})
	held := func() int64 { return 1<<20 - memory.left.Load() }
	text := "move\n" + strings.Repeat("x", 20<<10)
	for _, reads := range []bool{true, false} {
		conn := dial(t, s.Addr().String())
		write(t, conn, text)
		moved, err := s.Accept()
		try(t, err)
		first := held()
		if first < int64(len("move\n")) {
			t.Errorf("%d bytes are held for what was read", first)
		}
		if reads {
			if _, err := io.ReadFull(moved, make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			if n := held(); n != first {
				t.Errorf("%d bytes are held when a part is read, and %d before", n, first)
			}
			if _, err := io.ReadFull(moved, make([]byte, len(text)-3)); err != nil {
				t.Fatal(err)
			}
			if n := held(); n != 0 {
				t.Errorf("%d bytes are held when all is read, want none", n)
			}
		}
		moved.Close()
		if n := held(); n != 0 {
			t.Errorf("%d bytes are held when the connection is closed, want none", n)
		}
	}
}

// A connection with a message that is too long is moved, and a message that stops is given
// up. A long message in small pieces arrives whole. A connection holds a buffer only while
// it needs one. (Seen to fail when a buffer was kept for the next message.)
func TestUnfinished(t *testing.T) {
	impatient, _ := start(t, eventloop.Config{Handler: func(loop *eventloop.Loop) eventloop.Handler {
		return &echo{loop: loop, within: 50 * time.Millisecond}
	}})
	stopped := dial(t, impatient.Addr().String())
	write(t, stopped, "and then nothing")
	if got := readLine(t, stopped); got != "given up 0" {
		t.Errorf("answer %q", got)
	}

	s, memory := start(t, eventloop.Config{})
	long := strings.Repeat("x", 90<<10)
	conn := dial(t, s.Addr().String())
	go func() {
		for i := 0; i < len(long); i += 10 << 10 {
			io.WriteString(conn, long[i:i+10<<10])
			time.Sleep(2 * time.Millisecond) // so that most pieces are read alone
		}
		io.WriteString(conn, "\n")
	}()
	if got := readLine(t, conn); got != long {
		t.Errorf("%d bytes returned, want %d", len(got), len(long))
	}
	// The message is answered, so the connection is idle and holds no buffer.
	polltest.Until(t, "no buffer is held", func() bool { return memory.left.Load() == 1<<20 })
	// More bytes of a message are offered, however long the previous message was. (Seen
	// to fail when they had to be as many.)
	next := dial(t, s.Addr().String())
	write(t, next, "a message, and the beginning of another\nb")
	if got := readLine(t, next); got != "a message, and the beginning of another" {
		t.Errorf("answer %q", got)
	}
	if got := ask(t, next, ""); got != "b" {
		t.Errorf("answer %q, want b", got)
	}
	endless := dial(t, s.Addr().String())
	go io.WriteString(endless, long+long)
	moved, err := s.Accept()
	try(t, err)
	moved.Close()

	// Without memory, an incomplete message is given up.
	all := int(memory.left.Load())
	memory.Reserve(nil, all)
	poor := dial(t, s.Addr().String())
	if got := ask(t, poor, "whole"); got != "whole" {
		t.Errorf("answer %q", got)
	}
	write(t, poor, "not whole")
	if got := readLine(t, poor); got != "given up 1" {
		t.Errorf("answer %q", got)
	}
	memory.Release(nil, all)
}

var try = polltest.Try
