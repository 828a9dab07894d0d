package eventloop_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A gated is an echo that blocks its loop at each line "stop" until proceed is received.
type gated struct {
	*echo
	stopped, proceed chan struct{}
	resumed          func(*eventloop.Conn) // nil: the line is answered
}

func newGated() *gated {
	return &gated{echo: new(echo), stopped: make(chan struct{}), proceed: make(chan struct{})}
}

func (g *gated) start(loop *eventloop.Loop) eventloop.Handler {
	g.loop = loop
	return g
}

func (g *gated) Receive(c *eventloop.Conn, b []byte, ended bool) int {
	if strings.HasPrefix(string(b), "stop\n") {
		g.stopped <- struct{}{}
		<-g.proceed
		if g.resumed != nil {
			g.resumed(c)
			return len(b)
		}
	}
	return g.echo.Receive(c, b, ended)
}

// stop sends "stop" and waits until the loop has stopped.
func (g *gated) stop(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "stop\n"); err != nil {
		t.Fatal(err)
	}
	<-g.stopped
}

// The answer to a key update is dropped if reading fails after it: it must not be sent on the
// connection that the loop serves next.
//
// Seen to fail when a failed read leaves staged bytes.
func TestTLSResetAfterKeyUpdate(t *testing.T) {
	g := newGated()
	s, memory := startTLS(t, eventloop.Config{Handler: g.start})
	first, second := dialTLS(t, s, nil), dialTLS(t, s, nil)
	c := sealed(t, s)
	large := strings.Repeat("x", 16_000) + "\n"
	for range 3 {
		c.raw(c.record(appData, []byte(large)))
		c.want(large)
	}
	polltest.Until(t, "only the buffer of large records is reserved", func() bool { return 1<<20-memory.left.Load() < 64<<10 })
	// crypto/tls reads again, and gets the reset, if its buffer was filled.
	var updates []byte
	for size := int(1<<20 - memory.left.Load()); size > 0; {
		n := size
		if n > 16_000 {
			n = min(16_000, size-100)
		}
		updates = append(updates, c.longKeyUpdate(n)...)
		size -= n
	}
	g.stop(t, first)
	// Both of these are ready in the next turn, in this order.
	if _, err := io.WriteString(second, "stop\n"); err != nil {
		t.Fatal(err)
	}
	c.raw(updates[:1])
	g.proceed <- struct{}{}
	<-g.stopped
	c.raw(updates[1:])
	c.reset()
	g.proceed <- struct{}{}
	for _, conn := range []net.Conn{first, second} {
		if got := readLine(t, conn); got != "stop" {
			t.Errorf("got %q, want stop", got)
		}
		if got := ask(t, conn, "hello"); got != "hello" {
			t.Errorf("got %q, want hello", got)
		}
	}
}

// A broken connection keeps its client certificate, which authorizes messages that were read
// before.
//
// Seen to fail when the TLS state is dropped with the descriptor.
func TestTLSCertificateOutlivesDescriptor(t *testing.T) {
	g := newGated()
	named := make(chan [2]bool, 1)
	g.resumed = func(c *eventloop.Conn) {
		before := c.TLS() != nil
		for !c.Gone() {
			c.Owe()
			c.Send([]byte("answer\n"), 1)
		}
		named <- [2]bool{before, c.TLS() != nil}
	}
	s, _ := startTLS(t, eventloop.Config{Handler: g.start})
	conn := dialTLS(t, s, &tls.Config{Certificates: certificate().Certificates})
	g.stop(t, conn)
	try(t, conn.NetConn().(*tap).Conn.(*net.TCPConn).SetLinger(0))
	conn.NetConn().Close()
	g.proceed <- struct{}{}
	if got, want := <-named, [2]bool{true, true}; got != want {
		t.Errorf("the client has a certificate before and after its connection breaks: %v, want %v", got, want)
	}
}

// A connection that epoll does not accept is closed.
//
// Seen to fail, with a panic, when the session does not have the connection by then.
func TestTLSNotWatched(t *testing.T) {
	conns := &share.Conns{Max: 10}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	s, err := eventloop.Serve(unwatchable{tlsListener(inner, conns), t}, eventloop.Config{
		Handler: func(loop *eventloop.Loop) eventloop.Handler { return &echo{loop: loop} },
		Memory:  newBounded(1 << 20), MaxMessage: 1 << 10, Conns: conns,
		TLS: func(tls.ConnectionState) bool { return true },
	})
	try(t, err)
	conn := dialTLS(t, s, nil)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is served")
	}
	if err := errors.Join(s.Close(), s.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
	if n := conns.Open(); n != 0 {
		t.Errorf("%d connections are open at the end", n)
	}
}

// An unwatchable listener replaces the socket with a regular file. epoll rejects it, as it
// rejects a socket when there is no memory for one more descriptor.
type unwatchable struct {
	net.Listener
	t *testing.T
}

func (l unwatchable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(l.t.TempDir(), "regular"))
	if err != nil {
		return nil, err
	}
	below := conn.(*tls.Conn).NetConn().(interface{ Exchange(net.Conn) net.Conn })
	below.Exchange(fileConn{below.Exchange(nil), f})
	return conn, nil
}

// A fileConn has the descriptor of a file.
type fileConn struct {
	net.Conn
	file *os.File
}

func (c fileConn) SyscallConn() (syscall.RawConn, error) { return c.file.SyscallConn() }

func (c fileConn) Close() error { return errors.Join(c.Conn.Close(), c.file.Close()) }

// Bytes that complete no record do not keep a connection open: the idle timeout applies
// however many parts of a record arrive.
//
// Seen to fail when every read restarts the timeout.
func TestTLSIdleWithoutData(t *testing.T) {
	s, _ := startTLS(t, eventloop.Config{IdleTimeout: 200 * time.Millisecond, LingerTimeout: 50 * time.Millisecond})
	c := sealed(t, s)
	c.raw(c.record(appData, []byte("hello\n")))
	c.want("hello\n")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.wantClosed()
	}()
	drip := time.NewTicker(20 * time.Millisecond)
	defer drip.Stop()
	for _, b := range c.record(appData, make([]byte, 500)) {
		c.rawMayFail([]byte{b})
		select {
		case <-ended:
			return
		case <-drip.C:
		}
	}
	t.Error("the connection stays open")
}

// A client receives the alert about its first record and no reset, although the server did
// not read all input.
//
// Seen to fail when a connection without data is closed at once.
func TestTLSAlertBeforeData(t *testing.T) {
	s, _ := startTLS(t, eventloop.Config{LingerTimeout: polltest.Patience}) // the client may send slowly
	c := sealed(t, s)
	forged := c.record(appData, make([]byte, 1000))
	forged[len(forged)-1] ^= 1
	c.raw(append(forged, make([]byte, 200_000)...))
	c.wantEnd("bad record MAC")
	if n, err := io.Copy(io.Discard, c.tcp); err != nil {
		t.Errorf("after the alert, %d bytes and %v", n, err)
	}
}

// What crypto/tls keeps of a large handshake is reserved too.
//
// Seen to fail when only memory used after the handshake is counted.
func TestTLSHandshakeMemory(t *testing.T) {
	s, memory := startTLS(t, eventloop.Config{})
	protocols := []string{"http/1.1"}
	for range 200 {
		protocols = append(protocols, strings.Repeat("x", 250))
	}
	conn := dialTLS(t, s, &tls.Config{NextProtos: protocols})
	if got := ask(t, conn, "hello"); got != "hello" {
		t.Fatalf("got %q, want hello", got)
	}
	if held := 1<<20 - memory.left.Load(); held < 50_000 {
		t.Errorf("%d bytes are reserved, want at least 50,000", held)
	}
	small := dialTLS(t, s, nil)
	before := memory.left.Load()
	if got := ask(t, small, "hello"); got != "hello" {
		t.Fatalf("got %q, want hello", got)
	}
	if now := memory.left.Load(); now != before {
		t.Errorf("%d bytes are reserved for a connection with a small handshake", before-now)
	}
}

// A client that asks for a second handshake with TLS 1.2 gets an alert, and the others'
// connections go on.
func TestTLSRenegotiation(t *testing.T) {
	s, memory := startTLS(t, eventloop.Config{LingerTimeout: 50 * time.Millisecond})
	other := dialTLS(t, s, nil)
	var keys bytes.Buffer
	conn := dialTLS(t, s, &tls.Config{
		MaxVersion: tls.VersionTLS12, KeyLogWriter: &keys,
		CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
	})
	wire := conn.NetConn().(*tap)
	const randomAt = 5 + 4 + 2 // headers of the record and of ServerHello, version
	serverRandom := bytes.Clone(wire.seen[randomAt : randomAt+32])
	if got := ask(t, conn, "hello"); got != "hello" {
		t.Fatalf("got %q, want hello", got)
	}
	line := strings.Fields(keys.String()) // CLIENT_RANDOM, random, master secret
	clientRandom, err1 := hex.DecodeString(line[1])
	master, err2 := hex.DecodeString(line[2])
	try(t, err1, err2)
	// RFC 5246, section 6.3: the keys of client and server, then their IVs.
	block := prf12(master, "key expansion", append(serverRandom, clientRandom...), 2*16+2*4)
	aesBlock, err := aes.NewCipher(block[:16])
	try(t, err)
	aead, err := cipher.NewGCM(aesBlock)
	try(t, err)
	hello := append([]byte{1, 0, 0, 41, 3, 3}, clientRandom...)
	hello = append(hello, 0, 0, 2, 0xc0, 0x2b, 1, 0) // no session, one suite, no compression
	// RFC 5288, section 3: Finished was record 0, and hello was record 1.
	number := binary.BigEndian.AppendUint64(nil, 2)
	ad := append(bytes.Clone(number), handshake, 3, 3, 0, byte(len(hello)))
	record := append([]byte{handshake, 3, 3, 0, byte(8 + len(hello) + aead.Overhead())}, number...)
	record = aead.Seal(record, append(bytes.Clone(block[32:36]), number...), hello, ad)
	if _, err := wire.Conn.Write(record); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); len(rest) > 0 || err == nil || !strings.Contains(err.Error(), "unexpected message") {
		t.Errorf("the connection ends with %q, %v; want an alert", rest, err)
	}
	if got := ask(t, other, "hello"); got != "hello" {
		t.Errorf("another connection: got %q, want hello", got)
	}
	conn.Close()
	polltest.Until(t, "the connection has ended", func() bool { return s.Stats().Open == 1 })
	if left := memory.left.Load(); left != 1<<20 {
		t.Errorf("%d bytes are held", 1<<20-left)
	}
}

// prf12 is the pseudorandom function of TLS 1.2 (RFC 5246, section 5).
func prf12(secret []byte, label string, seed []byte, n int) (out []byte) {
	sum := func(parts ...[]byte) []byte {
		h := hmac.New(sha256.New, secret)
		for _, p := range parts {
			h.Write(p)
		}
		return h.Sum(nil)
	}
	seed = append([]byte(label), seed...)
	for a := sum(seed); len(out) < n; a = sum(a) {
		out = append(out, sum(a, seed)...)
	}
	return out[:n]
}
