package eventloop_test

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
)

// states calls f with every state of a connection.
func states(f func(eventloop.State)) {
	for bits := range 1 << 7 {
		on := func(i int) bool { return bits>>i&1 != 0 }
		for _, owed := range []int{0, 1, eventloop.MaxOwed} {
			for _, goal := range []string{"serve", "end", "move"} {
				f(eventloop.State{
					Open: on(0), Unsent: on(1), Ended: on(2), Readable: on(3), Lingering: on(4), Offerable: on(5), Paused: on(6),
					Owed: owed, Goal: goal,
				})
			}
		}
	}
}

// Next keeps the invariants of the state machine in every state, including those that
// cannot occur.
func TestNext(t *testing.T) {
	seen := map[string]int{}
	states(func(s eventloop.State) {
		got := eventloop.Next(s)
		seen[got]++
		wrong := ""
		switch got {
		case "forget":
			if s.Open || s.Owed > 0 {
				wrong = "the connection is open, or an answer is owed"
			}
		case "read":
			if s.Unsent || s.Owed >= eventloop.MaxOwed || s.Goal != "serve" || s.Lingering || s.Offerable || s.Ended ||
				!s.Readable || s.Paused {
				wrong = "there is nothing to read, or no room for input"
			}
		case "discard":
			if !s.Lingering || !s.Readable || s.Unsent {
				wrong = "the input may matter, or there is none"
			}
		case "offer":
			if s.Owed > 0 || !s.Offerable || s.Goal != "serve" || s.Paused {
				wrong = "the handler cannot take input"
			}
		case "give":
			if s.Owed > 0 || s.Unsent || s.Goal != "move" || s.Lingering {
				wrong = "its answers are not sent, or it is not to be moved"
			}
		case "linger":
			if s.Owed > 0 || s.Unsent || s.Goal != "end" || s.Lingering {
				wrong = "its answers are not sent, or it is not to end"
			}
		case "shut":
			if !s.Lingering && s.Owed > 0 || s.Unsent || !s.Ended {
				wrong = "its answers are not sent, or its peer has not ended"
			}
		}
		if got != "wait" && got != "forget" && !s.Open {
			wrong = "the connection is closed"
		}
		if wrong != "" {
			t.Errorf("%+v: %s, but %s", s, got, wrong)
		}
		// A connection that no event can wake must not wait.
		if got == "wait" && s.Open && !s.Unsent && !s.Lingering && s.Owed == 0 &&
			(s.Goal != "serve" || !s.Paused && (s.Offerable || s.Ended || s.Readable)) {
			t.Errorf("%+v: waits although there is something to do", s)
		}
	})
	for _, action := range []string{"wait", "read", "offer", "give", "linger", "discard", "shut", "forget"} {
		if seen[action] == 0 {
			t.Errorf("no state leads to %s", action)
		}
	}
}
