package eventloop_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/eventloop"
)

// A rester rests behind the first message, for longer than the test takes, and has
// nothing to say when it is woken.
type rester struct {
	loop  *eventloop.Loop
	rests chan struct{} // closed when the loop is about to rest
}

func (r *rester) Receive(_ *eventloop.Conn, b []byte, _ bool) int { return len(b) }

func (r *rester) Round() {
	r.loop.Rest(time.Hour)
	close(r.rests)
}

func (r *rester) Woken() {}

func (r *rester) GiveUp(*eventloop.Conn, []byte, eventloop.Reason) {}

// A loop that is told to drain behind the point at which it looks for orders drains all
// the same, and does not wait for its next event first.
//
// Seen to fail when look waits whatever the order: Shutdown then gives up at its
// deadline.
func TestOrderWhileResting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rests := make(chan struct{})
	s, err := eventloop.Serve(l, eventloop.Config{
		Memory: newBounded(1 << 20), MaxMessage: 100, Tick: time.Hour, // no tick comes to the rescue
		Handler: func(loop *eventloop.Loop) eventloop.Handler { return &rester{loop, rests} },
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s.Addr().String())
	if _, err := io.WriteString(conn, "m"); err != nil {
		t.Fatal(err)
	}
	<-rests
	time.Sleep(20 * time.Millisecond) // so that it does rest
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := errors.Join(s.Close(), s.Shutdown(ctx)); err != nil {
		t.Error(err)
	}
}
