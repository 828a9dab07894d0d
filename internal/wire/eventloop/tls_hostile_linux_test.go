package eventloop_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
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
	write(t, conn, "stop\n")
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
	polltest.Until(t, "only the buffer of large records is reserved",
		func() bool { return 1<<20-memory.left.Load() < 64<<10 })
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
	write(t, second, "stop\n")
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
		answer := make([]byte, 64<<10)
		for !c.Gone() { // until there is no memory for what the client does not read
			c.Owe()
			c.Send(answer, 1)
		}
		named <- [2]bool{before, c.TLS() != nil}
	}
	s, _ := startTLS(t, eventloop.Config{Handler: g.start})
	conn := dialTLS(t, s, &tls.Config{Certificates: certificate().Certificates})
	g.stop(t, conn)
	g.proceed <- struct{}{}
	if got, want := <-named, [2]bool{true, true}; got != want {
		t.Errorf("the client has a certificate before and after its connection breaks: %v, want %v", got, want)
	}
}

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
