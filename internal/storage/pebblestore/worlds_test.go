package pebblestore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How concurrent calls are compared with a model
//
// A call takes effect at one time between its beginning and its return. That time is not
// known, so worlds keeps every history that is still possible: the stored data, and which of
// the running calls have taken effect, with what answer. When a call begins, each history is
// continued in every order of the running calls. When a call returns, the histories in which
// it has not taken effect, or with another answer, are dropped. If none is left, no order of
// the calls explains the results.
//
// The model is storetest.Memory: it computes the effect of a call on a state.

// Lanes are goroutines. Each runs one call at a time.
const (
	writerLane = iota
	eraserLane
	expirerLane
	backupLane
	firstReader
	lanes = firstReader + 3
)

// A state is a possible content of the store. It is immutable.
type state struct {
	*storetest.Memory
	text string // its dump
}

// A world is one possible history up to now.
type world struct {
	now     *state
	answers [lanes]string // of the running calls that have taken effect; "": not yet
}

// A call is one call of a lane on the store.
type call struct {
	name string
	run  func(m *storetest.Memory) (answer string) // makes the call on a model; the answer is not ""

	reads bool                                // it changes nothing
	ask   func(storage.Store) (string, error) // of a call that reads

	device        vitals.Name         // of an erasure
	first         bool                // an erasure without an earlier one to finish first
	oldest        int64               // time of the oldest reading of a group; or the bound of Expire
	duringErasure bool                // an erasure ran during this Expire
	bounded       bool                // Expire has a bound
	gateways      map[string]bool     // of a group; those that an erasure must remove
	effects       map[*state]callMade // results of run, by state
}

type callMade struct {
	answer string
	next   *state
}

// worlds is the set of all possible histories. It must be locked for all methods.
type worlds struct {
	sync.Mutex
	possible map[world]struct{}
	calls    [lanes]*call // running calls
	states   map[string]*state
	bound    int // on devices; 0: none
	most     int // largest number of worlds so far
}

func newWorlds() *worlds {
	ws := &worlds{possible: map[world]struct{}{}, states: map[string]*state{}}
	ws.possible[world{now: ws.state(storetest.NewMemory())}] = struct{}{}
	return ws
}

// state returns the state with the content of m.
func (ws *worlds) state(m *storetest.Memory) *state {
	text, err := dump(m)
	if err != nil {
		panic(err)
	}
	s, ok := ws.states[text]
	if !ok {
		s = &state{m, text}
		ws.states[text] = s
	}
	return s
}

// begin records that a call begins.
func (ws *worlds) begin(lane int, c *call) {
	c.effects = map[*state]callMade{}
	ws.calls[lane] = c
	ws.spread()
}

// spread continues each history in every order of the running calls.
func (ws *worlds) spread() {
	todo := slices.Collect(maps.Keys(ws.possible))
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for lane, c := range ws.calls {
			if c == nil || w.answers[lane] != "" {
				continue
			}
			made, ok := c.effects[w.now]
			if !ok {
				made = ws.make(c, w.now)
				c.effects[w.now] = made
			}
			next := w
			next.now, next.answers[lane] = made.next, made.answer
			if _, ok := ws.possible[next]; !ok {
				ws.possible[next] = struct{}{}
				todo = append(todo, next)
			}
		}
	}
	ws.most = max(ws.most, len(ws.possible))
}

// make returns the result of a call on a state.
func (ws *worlds) make(c *call, s *state) callMade {
	if c.reads {
		return callMade{c.run(s.Memory), s}
	}
	m := s.Clone(ws.bound)
	answer := c.run(m)
	return callMade{answer, ws.state(m)}
}

// keep drops the histories in which ok returns false for the answer of a lane's call.
func (ws *worlds) keep(lane int, ok func(answer string) bool) error {
	had := map[string]bool{}
	for w := range ws.possible {
		if had[w.answers[lane]] = true; !ok(w.answers[lane]) {
			delete(ws.possible, w)
		}
	}
	if len(ws.possible) > 0 {
		return nil
	}
	var b strings.Builder
	for answer := range had {
		fmt.Fprintf(&b, "\n--- possible: %s", answer)
	}
	for other, c := range ws.calls {
		if c != nil && other != lane {
			fmt.Fprintf(&b, "\n--- under way: %s", c.name)
		}
	}
	return fmt.Errorf("no order of the calls explains what %s returned%s", ws.calls[lane].name, b.String())
}

// end calls keep, and records that the call has returned.
func (ws *worlds) end(lane int, ok func(answer string) bool) error {
	err := ws.keep(lane, ok)
	ws.calls[lane] = nil
	ws.forget(lane)
	return err
}

// forget removes the answers of a lane, and the states that are no longer used.
func (ws *worlds) forget(lane int) {
	possible := map[world]struct{}{}
	for w := range ws.possible {
		w.answers[lane] = ""
		possible[w] = struct{}{}
	}
	ws.possible = possible
	clear(ws.states)
	for w := range possible {
		ws.states[w.now.text] = w.now
	}
	for _, c := range ws.calls {
		if c != nil {
			for _, made := range c.effects {
				ws.states[made.next.text] = made.next
			}
		}
	}
}

// settle keeps the histories that end with a state. No call may be running.
func (ws *worlds) settle(text string) error {
	for w := range ws.possible {
		if w.now.text != text {
			delete(ws.possible, w)
		}
	}
	if len(ws.possible) != 1 {
		return fmt.Errorf("%d histories end with the stored content, want 1; it is\n%s", len(ws.possible), text)
	}
	return nil
}

// is returns a function that reports whether an answer equals the given one.
func is(answer string) func(string) bool { return func(a string) bool { return a == answer } }

func anyAnswer(string) bool { return true }

// TestWorlds shows that worlds accepts the answers of a correct store and no others: a
// partly visible group, a group that disappears, erased readings that reappear, and outcomes
// that contradict earlier reads are rejected.
func TestWorlds(t *testing.T) {
	const reader, other = firstReader, firstReader + 1
	write := func(es ...*storage.Entry) *call { return appendCall(es) }
	scan := func() *call { return scanCall(storage.Range{Device: mustName("d"), ToUnixMs: 1 << 62}, 10) }
	two := []*storage.Entry{entry("d", 1, 1), entry("d", 2, 2)}
	none, one, both := "", "1 heart_rate_bpm=1  1800000000000\n",
		"1 heart_rate_bpm=1  1800000000000\n2 heart_rate_bpm=2  1800000000000\n"
	for _, tt := range []struct {
		name  string
		calls func(ws *worlds) error
		sound bool
	}{
		{"no reading, then all of a group", func(ws *worlds) error {
			ws.begin(writerLane, write(two...))
			ws.begin(reader, scan())
			err := ws.end(reader, is("read\n"+none))
			ws.begin(other, scan())
			return firstOf(err, ws.end(other, is("read\n"+both)), ws.end(writerLane, is("stored stored ")))
		}, true},
		{"a part of a group", func(ws *worlds) error {
			ws.begin(writerLane, write(two...))
			ws.begin(reader, scan())
			return ws.end(reader, is("read\n"+one))
		}, false},
		{"all of a group, then no reading", func(ws *worlds) error {
			ws.begin(writerLane, write(two...))
			ws.begin(reader, scan())
			err := ws.end(reader, is("read\n"+both))
			ws.begin(other, scan())
			return firstOf(err, ws.end(other, is("read\n"+none)))
		}, false},
		{"no reading after an acknowledged group", func(ws *worlds) error {
			ws.begin(writerLane, write(two...))
			err := ws.end(writerLane, is("stored stored "))
			ws.begin(reader, scan())
			return firstOf(err, ws.end(reader, is("read\n"+none)))
		}, false},
		{"erased readings after an erasure", func(ws *worlds) error {
			ws.begin(writerLane, write(two...))
			err := ws.end(writerLane, is("stored stored "))
			ws.begin(eraserLane, eraseCall(mustName("d")))
			ws.begin(reader, scan())
			err = firstOf(err, ws.end(eraserLane, is("erased 2")), ws.end(reader, is("read\n"+both)))
			ws.begin(other, scan())
			return firstOf(err, ws.end(other, is("read\n"+both)))
		}, false},
		{"a group before or after a concurrent erasure", func(ws *worlds) error {
			ws.begin(eraserLane, eraseCall(mustName("d")))
			ws.begin(writerLane, write(two...))
			err := ws.end(writerLane, is("stored stored "))
			ws.begin(writerLane, write(entry("d", 1, 1)))
			return firstOf(err, ws.end(writerLane, is("stored ")), ws.end(eraserLane, is("erased 2")))
		}, true},
		{"a group after a concurrent erasure that knows what it removed", func(ws *worlds) error {
			ws.begin(writerLane, write(two...))
			err := ws.end(writerLane, is("stored stored "))
			ws.begin(eraserLane, eraseCall(mustName("d")))
			ws.begin(reader, scan())
			err = firstOf(err, ws.end(reader, is("read\n"+none)))
			ws.begin(writerLane, write(entry("d", 1, 1)))
			return firstOf(err, ws.end(writerLane, is("duplicate ")))
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.calls(newWorlds()); (err == nil) != tt.sound {
				t.Errorf("got %v, want it accepted: %t", err, tt.sound)
			}
		})
	}
}

// firstOf returns the first non-nil error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
