package eventloop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// A restingHandler rests after the first message for longer than the test takes, and does
// nothing when it is woken.
type restingHandler struct {
	loop  *eventloop.Loop
	rests chan struct{} // closed when the loop is about to rest
}

func (h *restingHandler) Receive(_ *eventloop.Conn, b []byte, _ bool) int { return len(b) }

func (h *restingHandler) Round() {
	h.loop.Rest(time.Hour)
	close(h.rests)
}

func (h *restingHandler) Woken() {}

func (h *restingHandler) GiveUp(*eventloop.Conn, []byte, eventloop.Reason) {}

// A loop that is ordered to drain after it has checked for orders drains without waiting
// for its next event.
//
// Seen to fail when look waits despite an order: Shutdown then returns at its deadline.
func TestOrderWhileResting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	rests := make(chan struct{})
	s, err := eventloop.Serve(l, eventloop.Config{
		Memory: newBounded(1 << 20), MaxMessage: 100, Tick: time.Hour, // no tick wakes the loop during the test
		Handler: func(loop *eventloop.Loop) eventloop.Handler { return &restingHandler{loop, rests} },
	})
	try(t, err)
	conn := dial(t, s.Addr().String())
	write(t, conn, "m")
	<-rests
	time.Sleep(20 * time.Millisecond) // so that it does rest
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	try(t, errors.Join(s.Close(), s.Shutdown(ctx)))
}

// All connections in the kernel's backlog when the Server begins to drain are served.
//
// Seen to fail when stopListening accepts once: 128 of them are served, and the kernel resets
// the others.
func TestShutdownAcceptsWaiting(t *testing.T) {
	const clients = 300
	if n := maxBacklog(t); n < clients {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the kernel's backlog is %d connections, and %d are needed", n, clients)
		}
		t.Skipf("the kernel's backlog is %d connections, and %d are needed", n, clients)
	}
	hangs, hang := make(chan struct{}), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	s, err := eventloop.Serve(l, eventloop.Config{
		Memory: newBounded(1 << 20), MaxMessage: 1 << 10, Tick: 10 * time.Millisecond,
		Handler: func(l *eventloop.Loop) eventloop.Handler {
			return &echo{loop: l, info: func(string) string { close(hangs); <-hang; return "" }}
		},
	})
	try(t, err)
	write(t, dial(t, s.Addr().String()), "?\n")
	<-hangs
	var conns []net.Conn
	for range clients {
		conn := dial(t, s.Addr().String())
		write(t, conn, "a\n")
		conns = append(conns, conn)
	}
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(s.Close(), s.Shutdown(ctx)) }()
	time.Sleep(20 * time.Millisecond) // so that the order is pending when the loop continues
	close(hang)
	served := 0
	for _, conn := range conns {
		if _, err := io.ReadFull(conn, make([]byte, 2)); err == nil {
			served++
		}
	}
	if served != clients {
		t.Errorf("%d of %d connections are served, want all", served, clients)
	}
	for _, conn := range conns {
		conn.Close()
	}
	try(t, <-ended)
}

// maxBacklog returns how many connections may wait to be accepted.
func maxBacklog(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	try(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	try(t, err)
	return n
}
