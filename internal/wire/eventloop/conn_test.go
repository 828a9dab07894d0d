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
					Open: on(0), Unsent: on(1), Ended: on(2), Readable: on(3), Lingering: on(4), Offerable: on(5), Paused: on(6), Owed: owed, Goal: goal,
				})
			}
		}
	}
}

// The invariants of the state machine, over every state, also over those that
// never come about.
func TestNext(t *testing.T) {
	seen := map[string]int{}
	states(func(s eventloop.State) {
		got := eventloop.Next(s)
		seen[got]++
		wrong := ""
		switch got {
		case "forget":
			if s.Open || s.Owed > 0 {
				wrong = "it is open, or an answer is owed"
			}
		case "read":
			if s.Unsent || s.Owed >= eventloop.MaxOwed || s.Goal != "serve" || s.Lingering || s.Offerable || s.Ended || !s.Readable || s.Paused {
				wrong = "there is nothing to read, or no room for it"
			}
		case "discard":
			if !s.Lingering || !s.Readable || s.Unsent {
				wrong = "what comes may matter, or does not come"
			}
		case "offer":
			if s.Owed > 0 || !s.Offerable || s.Goal != "serve" || s.Paused {
				wrong = "the handler could not take it"
			}
		case "give":
			if s.Owed > 0 || s.Unsent || s.Goal != "move" || s.Lingering {
				wrong = "its answers are not sent, or nobody wants it moved"
			}
		case "linger":
			if s.Owed > 0 || s.Unsent || s.Goal != "end" || s.Lingering {
				wrong = "its answers are not sent, or it goes on"
			}
		case "shut":
			if !s.Lingering && s.Owed > 0 || s.Unsent || !s.Ended {
				wrong = "its answers are not sent, or its peer has not ended"
			}
		}
		if got != "wait" && got != "forget" && !s.Open {
			wrong = "it is closed"
		}
		if wrong != "" {
			t.Errorf("%+v: %s, but %s", s, got, wrong)
		}
		// A connection on which nothing can happen any more must not wait for ever.
		if got == "wait" && s.Open && !s.Unsent && !s.Lingering && s.Owed == 0 && (s.Goal != "serve" || !s.Paused && (s.Offerable || s.Ended || s.Readable)) {
			t.Errorf("%+v: waits, and there is something to do", s)
		}
	})
	for _, action := range []string{"wait", "read", "offer", "give", "linger", "discard", "shut", "forget"} {
		if seen[action] == 0 {
			t.Errorf("no state leads to %s", action)
		}
	}
}
