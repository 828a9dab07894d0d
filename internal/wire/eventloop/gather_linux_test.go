package eventloop_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

const gatherTime = 100 * time.Millisecond

// A gatherer waits for a message from each client, answers all of them at once, and then
// calls Gather.
type gatherer struct {
	loop    *eventloop.Loop
	clients int
	waiting []*eventloop.Conn
	waves   chan wave
	now     wave
}

// A wave is a message from each client.
type wave struct {
	turns    int       // in which they were read
	gathered time.Time // when Gather was called before them; zero for the first wave
}

func (g *gatherer) Receive(c *eventloop.Conn, b []byte, ended bool) int {
	c.Owe()
	g.waiting = append(g.waiting, c)
	return len(b)
}

func (g *gatherer) Round() {
	g.now.turns++
	if len(g.waiting) == g.clients {
		go g.loop.Wake()
	}
}

func (g *gatherer) Woken() {
	if len(g.waiting) < g.clients {
		return // woken by the server
	}
	g.waves <- g.now
	g.now = wave{gathered: time.Now()}
	for _, c := range g.waiting {
		c.Send([]byte{'.'}, 1)
	}
	g.waiting = g.waiting[:0]
	g.loop.Gather(gatherTime)
}

func (g *gatherer) GiveUp(*eventloop.Conn, []byte, eventloop.Reason) {}

// With Gather, the messages of clients that send the next one when they receive an answer
// are read in one turn, if they arrive within its time. (Seen to fail without Gather.)
func TestGather(t *testing.T) {
	const clients = 5
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	var g *gatherer
	s, err := eventloop.Serve(l, eventloop.Config{
		Memory: newBounded(1 << 20), MaxMessage: 100,
		Handler: func(loop *eventloop.Loop) eventloop.Handler {
			g = &gatherer{loop: loop, clients: clients, waves: make(chan wave, 1)}
			return g
		},
	})
	try(t, err)
	var conns []net.Conn
	for range clients {
		conns = append(conns, dial(t, s.Addr().String()))
	}
	one := []byte{'m'}
	// On a busy machine a wave may be sent too late, which proves nothing.
	for inTime := 0; inTime < 3; {
		for _, conn := range conns {
			if _, err := conn.Write(one); err != nil {
				t.Fatal(err)
			}
		}
		sent := time.Now()
		for _, conn := range conns {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		w := <-g.waves
		if sent.Sub(w.gathered) > gatherTime/2 {
			continue
		}
		inTime++
		if w.turns != 1 {
			t.Errorf("a wave is read in %d turns, want 1", w.turns)
		}
	}
	if err := errors.Join(s.Close(), s.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
}
