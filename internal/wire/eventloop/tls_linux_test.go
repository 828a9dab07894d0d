package eventloop_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// startTLS starts a server of echoes over TLS, which moves HTTP/2 connections.
func startTLS(t testing.TB, cfg eventloop.Config) (*eventloop.Server, *bounded) {
	t.Helper()
	cfg.TLS = func(cs tls.ConnectionState) bool { return cs.NegotiatedProtocol != "h2" }
	cfg.Conns = &share.Conns{Max: 1000, MaxGuests: 1}
	return start(t, cfg)
}

// dialTLS connects over TLS until the end of the test.
func dialTLS(t testing.TB, s *eventloop.Server, cfg *tls.Config) *tls.Conn {
	t.Helper()
	if cfg == nil {
		cfg = new(tls.Config)
	}
	cfg.InsecureSkipVerify = true // the tests are about the server
	conn := tls.Client(&tap{Conn: dial(t, s.Addr().String())}, cfg)
	try(t, conn.HandshakeContext(t.Context()))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A tap is a client's connection that records what the server sends, and can hold back what
// the client sends.
type tap struct {
	net.Conn
	seen  []byte
	holds bool // from the second write on
	wrote bool
	held  []byte
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.seen = append(c.seen, p[:n]...)
	return n, err
}

func (c *tap) Write(p []byte) (int, error) {
	if c.holds && c.wrote {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	c.wrote = true
	return c.Conn.Write(p)
}

// isAlert reports whether the last record is a complete alert, which has two bytes.
// TLS 1.3 hides its type but not its length.
func (c *tap) isAlert() bool {
	const alert, hiddenBytes = 21, 2 + 1 + 16
	kind, length, rest := byte(0), 0, c.seen
	for len(rest) >= 5 {
		kind, length = rest[0], int(rest[3])<<8|int(rest[4])
		rest = rest[min(5+length, len(rest)):]
	}
	return len(rest) == 0 && (kind == alert || kind == appData && length == hiddenBytes)
}

// Lines are answered over TLS, at once or later, in pieces of any size, also when the
// client half-closes the connection first.
//
// Seen to fail when decrypt marks a connection with further records as read.
func TestTLSEcho(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		s, _ := startTLS(t, eventloop.Config{})
		versions := &tls.Config{MinVersion: version, MaxVersion: version, DynamicRecordSizingDisabled: true}
		for _, piece := range []int{1, 7, 1000, 40_000} {
			conn := dialTLS(t, s, versions)
			var text, want strings.Builder
			for i := range 200 {
				line := strings.Repeat("x", i*i%300) + "\n"
				if i%20 == 3 {
					line = "later" + line
				}
				if i == 100 && piece >= 1000 { // a line must be complete in time
					line = strings.Repeat("y", 50_000) + "\n"
				}
				text.WriteString(line)
				want.WriteString(line)
			}
			go func() {
				for p := range slices.Chunk([]byte(text.String()), piece) {
					if _, err := conn.Write(p); err != nil {
						t.Error(err)
						return
					}
				}
				if err := conn.CloseWrite(); err != nil {
					t.Error(err)
				}
			}()
			got, err := io.ReadAll(conn) // io.EOF after close_notify alone
			if err != nil {
				t.Fatalf("in pieces of %d bytes: %v after %d bytes of %d", piece, err, len(got), want.Len())
			}
			if sorted(string(got)) != sorted(want.String()) {
				t.Errorf("in pieces of %d bytes: got %d bytes, want %d", piece, len(got), want.Len())
			}
		}
		if got := s.Stats(); got.Moved != 0 || got.Accepted != 4 {
			t.Errorf("%+v, want 4 connections and none moved", got)
		}
	})
}

// The server's last record is close_notify, whichever side ends a connection and why.
//
// Seen to fail without endSession, and without finalCloseNotify.
func TestTLSGoodbye(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		for _, tt := range []struct {
			name  string
			cfg   eventloop.Config
			cause func(*eventloop.Server, *tls.Conn) error
		}{
			{"client", eventloop.Config{}, func(_ *eventloop.Server, c *tls.Conn) error { return c.CloseWrite() }},
			{"server", eventloop.Config{}, func(_ *eventloop.Server, c *tls.Conn) error {
				_, err := io.WriteString(c, "end\n")
				return err
			}},
			{"idle", eventloop.Config{IdleTimeout: 50 * time.Millisecond}, func(*eventloop.Server, *tls.Conn) error {
				return nil
			}},
			{"drain", eventloop.Config{}, func(s *eventloop.Server, _ *tls.Conn) error { return s.Shutdown(t.Context()) }},
		} {
			t.Run(tt.name, func(t *testing.T) {
				s, _ := startTLS(t, tt.cfg)
				conn := dialTLS(t, s, &tls.Config{MinVersion: version, MaxVersion: version})
				if got := ask(t, conn, "hello"); got != "hello" {
					t.Fatalf("got %q, want hello", got)
				}
				try(t, tt.cause(s, conn))
				if _, err := io.ReadAll(conn); err != nil {
					t.Fatal(err)
				}
				if !conn.NetConn().(*tap).isAlert() {
					t.Error("the connection ends without close_notify")
				}
			})
		}
	})
}

// sorted returns the lines sorted, because answers to "later" may be out of order.
func sorted(lines string) string {
	all := strings.Split(lines, "\n")
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// A moved connection keeps its TLS session: Read returns the decrypted bytes first, then
// further records, and net/http finds its connection state. HTTP/2 is moved at once, as a
// *tls.Conn.
//
// Seen to fail when the socket is not exchanged again.
func TestTLSMove(t *testing.T) {
	eachVersion(t, func(t *testing.T, version uint16) {
		s, memory := startTLS(t, eventloop.Config{})
		conn := dialTLS(t, s, &tls.Config{MinVersion: version, MaxVersion: version})
		if got := ask(t, conn, "hello"); got != "hello" {
			t.Fatalf("got %q, want hello", got)
		}
		write(t, conn, "move\nabc")
		moved, err := s.Accept()
		try(t, err)
		state, ok := moved.(interface{ ConnectionState() tls.ConnectionState })
		if !ok || state.ConnectionState().Version != version {
			t.Errorf("a connection of type %T has no TLS state", moved)
		}
		got := make([]byte, len("move\nabcdef"))
		write(t, conn, "def")
		if _, err := io.ReadFull(moved, got); err != nil || string(got) != "move\nabcdef" {
			t.Errorf("read %q, %v", got, err)
		}
		if left := memory.left.Load(); left != 1<<20 {
			t.Errorf("%d bytes are held when all is read", 1<<20-left)
		}
		write(t, moved, "answer\n")
		if got := readLine(t, conn); got != "answer" {
			t.Errorf("got %q, want answer", got)
		}
		if n := s.Stats().Open; n != 1 {
			t.Errorf("%d connections are open, want only the moved one", n)
		}
		go moved.Close()
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("at the end %q, %v", rest, err)
		}
		polltest.Until(t, "the connection is no longer counted", func() bool { return s.Stats().Open == 0 })

		dialTLS(t, s, &tls.Config{NextProtos: []string{"h2"}})
		moved, err = s.Accept()
		try(t, err)
		if _, ok := moved.(*tls.Conn); !ok {
			t.Errorf("HTTP/2 on a %T", moved)
		}
		moved.Close()
	})
}

// A server that drains answers messages that have begun and ends with close_notify.
func TestTLSDrain(t *testing.T) {
	s, _ := startTLS(t, eventloop.Config{})
	idle, busy := dialTLS(t, s, nil), dialTLS(t, s, nil)
	for _, conn := range []net.Conn{idle, busy} {
		if got := ask(t, conn, "hello"); got != "hello" {
			t.Fatalf("got %q, want hello", got)
		}
	}
	write(t, busy, "ab")
	done := make(chan error)
	go func() { done <- s.Shutdown(t.Context()) }()
	if got, err := io.ReadAll(idle); err != nil || len(got) > 0 {
		t.Errorf("an idle connection ends with %q, %v", got, err)
	}
	write(t, busy, "c\n")
	if got, err := io.ReadAll(busy); err != nil || string(got) != "abc\n" {
		t.Errorf("a busy connection ends with %q, %v", got, err)
	}
	try(t, <-done)
}

// A server that drains waits for the rest of a TLS record, as it does for that of a message,
// but no longer than for the first message of a connection.
//
// Seen to fail when only decrypted bytes begin a message.
func TestTLSDrainWithinRecord(t *testing.T) {
	for _, tt := range []struct {
		name     string
		timeout  time.Duration
		complete bool
	}{
		{"completed", time.Hour, true},
		{"stalled", 50 * time.Millisecond, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := startTLS(t, eventloop.Config{StartTimeout: tt.timeout, IdleTimeout: time.Hour})
			c := sealedWith(t, s, "hello\n") // in time, because it comes with the handshake
			c.want("hello\n")
			last := c.record(appData, []byte("last\n"))
			c.raw(last[:20])
			done := make(chan error)
			if !tt.complete {
				go func() { done <- s.Shutdown(t.Context()) }()
			} else {
				idle := dialTLS(t, s, nil)
				if got := ask(t, idle, "hello"); got != "hello" { // the loop has read what was sent before
					t.Fatalf("got %q, want hello", got)
				}
				go func() { done <- s.Shutdown(t.Context()) }()
				if rest, err := io.ReadAll(idle); err != nil || len(rest) > 0 {
					t.Errorf("an idle connection ends with %q, %v", rest, err)
				}
				c.raw(last[20:])
				c.want("last\n")
			}
			c.wantEnd("close_notify")
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A peer's fault ends its connection and leaks no memory.
func TestTLSFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault func(t *testing.T, s *eventloop.Server)
	}{
		{"truncated record", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw(c.record(appData, []byte("hello\n"))[:20])
			c.closeWrite()
			c.wantEnd("close_notify")
		}},
		{"truncated after a line", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw(append(c.record(appData, []byte("hello\n")), c.record(appData, []byte("x"))[:20]...))
			c.closeWrite()
			c.want("hello\n")
		}},
		{"forged record", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			r := c.record(appData, []byte("hello\n"))
			r[len(r)-1] ^= 1
			c.raw(r)
			c.wantEnd("bad record MAC")
		}},
		{"record too long", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw([]byte{appData, 3, 3, 0xff, 0xff})
			c.wantEnd("record overflow")
		}},
		{"plaintext", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw([]byte("GET / HTTP/1.1\r\n\r\n"))
			c.wantEnd("protocol version not supported")
		}},
		{"reset", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw(c.record(appData, []byte("hello\n"))[:20])
			c.reset()
		}},
		{"second handshake", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw(c.record(handshake, append([]byte{1, 0, 0, 50}, make([]byte, 50)...)))
			c.wantEnd("error decoding message|unexpected message")
		}},
		{"long handshake message", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			part := append([]byte{4, 0, 0xff, 0xff}, make([]byte, 10_000)...)
			for range 7 {
				c.rawMayFail(c.record(handshake, part))
				part = make([]byte, 10_000)
			}
			c.wantClosed()
		}},
		{"handshake message too long", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			c.raw(c.record(handshake, []byte{4, 1, 0, 1}))
			c.wantClosed()
		}},
		{"empty records", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			for range 20 {
				c.rawMayFail(c.record(appData, nil))
			}
			c.wantEnd("unexpected message")
		}},
		{"key updates without data", func(t *testing.T, s *eventloop.Server) {
			c := sealed(t, s)
			for range 20 {
				c.rawMayFail(c.keyUpdate(true))
			}
			c.wantClosed()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, memory := startTLS(t, eventloop.Config{LingerTimeout: 50 * time.Millisecond})
			tt.fault(t, s)
			polltest.Until(t, "the connection ends", func() bool { return s.Stats().Open == 0 })
			if left := memory.left.Load(); left != 1<<20 {
				t.Errorf("%d bytes are held at the end", 1<<20-left)
			}
		})
	}
}

// A peer that requests key updates between its lines is answered. If it does not read the
// answers, the loop stops reading from it, so that it holds few bytes for it.
//
// Seen to fail when decrypt does not send what is staged, and, for the second part, when a
// connection is read while bytes are unsent.
func TestTLSKeyUpdates(t *testing.T) {
	s, memory := startTLS(t, eventloop.Config{})
	c := sealed(t, s)
	for range 50 {
		c.raw(c.keyUpdate(true))
		c.raw(c.record(appData, []byte("hello\n")))
		c.want("hello\n")
	}

	storm := sealed(t, s)
	try(t, storm.tcp.SetWriteDeadline(time.Now().Add(2*time.Second)))
	line := []byte(strings.Repeat("x", 1000) + "\n")
	least := memory.left.Load()
	for storm.err == nil {
		var all []byte
		for range 8 {
			all = append(all, storm.keyUpdate(true)...)
			all = append(all, storm.record(appData, line)...)
		}
		storm.rawMayFail(all)
		least = min(least, memory.left.Load())
	}
	if !errors.Is(storm.err, os.ErrDeadlineExceeded) {
		t.Fatal(storm.err)
	}
	if held := 1<<20 - least; held > 256<<10 {
		t.Errorf("%d bytes were held for a peer that does not read", held)
	}
	if got := ask(t, dialTLS(t, s, nil), "others"); got != "others" {
		t.Errorf("got %q, want others", got)
	}
	storm.reset()
}

// Tiny records of one connection do not delay others: the loop decrypts only a few of them
// in each turn.
//
// Seen to fail when decrypt reads on until its buffer is full.
func TestTLSTinyRecords(t *testing.T) {
	var handler pieces
	s, _ := startTLS(t, eventloop.Config{Handler: func(loop *eventloop.Loop) eventloop.Handler {
		handler.echo = &echo{loop: loop}
		return &handler
	}})
	c := sealed(t, s)
	var all []byte
	for range 20_000 {
		all = append(all, c.record(appData, []byte{'x'})...)
	}
	all = append(all, c.record(appData, []byte{'\n'})...)
	go c.rawMayFail(all)
	c.want(strings.Repeat("x", 20_000) + "\n")
	if most := handler.most.Load(); most > 64 {
		t.Errorf("%d records were decrypted in one turn, want at most 64", most)
	}
}

// A pieces is an echo for one connection that records the most bytes by which an unfinished
// line has grown in one call.
type pieces struct {
	*echo
	left int
	most atomic.Int64
}

func (p *pieces) Receive(c *eventloop.Conn, b []byte, ended bool) int {
	p.most.Store(max(p.most.Load(), int64(len(b)-p.left)))
	taken := p.echo.Receive(c, b, ended)
	p.left = len(b) - taken
	return taken
}

// Memory for large records is reserved until their connection closes. Without memory, the
// connection ends.
func TestTLSInputMemory(t *testing.T) {
	s, memory := startTLS(t, eventloop.Config{})
	conn := dialTLS(t, s, &tls.Config{DynamicRecordSizingDisabled: true})
	large := strings.Repeat("x", 16_000)
	for range 3 {
		if got := ask(t, conn, large); got != large {
			t.Fatalf("got %d bytes", len(got))
		}
	}
	begun := sealed(t, s) // a handshake message
	begun.raw(begun.record(handshake, append([]byte{4, 0, 0xff, 0xff}, make([]byte, 15_000)...)))
	for range 3 {
		begun.raw(begun.record(handshake, make([]byte, 15_000)))
	}
	polltest.Until(t, "the part of the message received is reserved",
		func() bool { return 1<<20-memory.left.Load() > 16_000+45_000 })
	begun.reset()
	polltest.Until(t, "it is released", func() bool { return 1<<20-memory.left.Load() < 45_000 })
	held := 1<<20 - memory.left.Load()
	if held < 16_000 || held > 64<<10 {
		t.Errorf("%d bytes are held for input", held)
	}
	if got := ask(t, conn, "small"); got != "small" {
		t.Fatalf("got %q", got)
	}
	conn.Close()
	polltest.Until(t, "all is released", func() bool { return memory.left.Load() == 1<<20 })

	s, _ = startTLS(t, eventloop.Config{Memory: newBounded(20 << 10)})
	conn = dialTLS(t, s, &tls.Config{DynamicRecordSizingDisabled: true})
	go io.WriteString(conn, large)
	if rest, err := io.ReadAll(conn); err == nil && !strings.Contains(string(rest), "given up") {
		t.Errorf("without memory: %q", rest)
	}
}

// tlsListener returns the listener of a server with TLS.
func tlsListener(inner net.Listener, conns *share.Conns) net.Listener {
	return listen.TLS(inner, conns, listen.Handshakes{Config: certificate(), Slots: 16, Timeout: polltest.Patience})
}
