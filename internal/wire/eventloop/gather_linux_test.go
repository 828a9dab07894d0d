package eventloop_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// A gatherer waits for a message from each client, answers all of them at once, and then
// calls Gather. It counts the turns with messages after the first such wave.
type gatherer struct {
	loop    *eventloop.Loop
	clients int
	waiting []*eventloop.Conn
	waves   int
	turns   atomic.Int64
}

func (g *gatherer) Receive(c *eventloop.Conn, b []byte, ended bool) int {
	c.Owe()
	g.waiting = append(g.waiting, c)
	return len(b)
}

func (g *gatherer) Round() {
	if g.waves > 0 {
		g.turns.Add(1)
	}
	if len(g.waiting) == g.clients {
		go g.loop.Wake()
	}
}

func (g *gatherer) Woken() {
	if len(g.waiting) < g.clients {
		return // woken by the server
	}
	for _, c := range g.waiting {
		c.Send([]byte{'.'}, 1)
	}
	g.waiting = g.waiting[:0]
	g.waves++
	g.loop.Gather(500 * time.Millisecond)
}

func (g *gatherer) GiveUp(*eventloop.Conn, []byte, eventloop.Reason) {}

// With Gather, the messages of clients that send the next one when they receive an answer
// are read in one turn. (Seen to fail without Gather.)
func TestGather(t *testing.T) {
	const clients, messages = 5, 4
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var g *gatherer
	s, err := eventloop.Serve(l, eventloop.Config{
		Memory: newBounded(1 << 20), MaxMessage: 100,
		Handler: func(loop *eventloop.Loop) eventloop.Handler {
			g = &gatherer{loop: loop, clients: clients}
			return g
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range clients {
		conn := dial(t, s.Addr().String())
		wg.Go(func() {
			one := []byte{'m'}
			for range messages {
				if _, err := conn.Write(one); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(conn, one); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(s.Close(), s.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
	if n := g.turns.Load(); n != messages-1 {
		t.Errorf("%d turns for %d messages of each client, want one for each", n, messages-1)
	}
}
