package eventloop_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// Beat reports a loop that hangs, but not one that is idle or has ended.
//
// Seen to fail when a loop does not clear the flag that Beat sets, and when Beat does
// not set it.
func TestBeat(t *testing.T) {
	hangs, hang := make(chan struct{}), make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	s, err := eventloop.Serve(l, eventloop.Config{
		Loops: 2, Memory: newBounded(1 << 20), MaxMessage: 1 << 10, Tick: 10 * time.Millisecond,
		Handler: func(l *eventloop.Loop) eventloop.Handler {
			return &echo{loop: l, info: func(string) string { close(hangs); <-hang; return "" }}
		},
	})
	try(t, err)
	if !s.Beat() {
		t.Fatal("the first Beat reports that a loop hangs")
	}
	awaitBeat(t, s) // idle loops complete turns too
	conn := dial(t, s.Addr().String())
	if got := ask(t, conn, "hello"); got != "hello" {
		t.Fatalf("got %q, want hello", got)
	}
	awaitBeat(t, s)
	write(t, conn, "?\n")
	<-hangs
	s.Beat() // sets the flag
	if s.Beat() {
		t.Error("Beat does not report a loop that hangs")
	}
	close(hang)
	awaitBeat(t, s)
	conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), polltest.Patience)
	defer cancel()
	try(t, s.Close(), s.Shutdown(ctx))
	for range 2 { // the first sets the flag, the second checks it
		if !s.Beat() {
			t.Error("Beat reports loops that have ended")
		}
	}
}

// awaitBeat waits until all loops have completed a turn.
func awaitBeat(t *testing.T, s *eventloop.Server) {
	t.Helper()
	polltest.Until(t, "all loops complete a turn", func() bool {
		s.Beat()
		time.Sleep(time.Millisecond) // lets the loops run
		return s.Beat()
	})
}
