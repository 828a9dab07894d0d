package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// TestModel runs one in six, and TestModelExhaustive (make exhaustive) every order of a few calls of one or two items,
// their cancellations, Close, and flushes that succeed, fail, panic or end their goroutine. After each event it waits
// until all goroutines are blocked and compares the answers, their order, the groups and the counters with those of a
// model without goroutines.
//
// It was seen to fail when the code was broken in each of these ways: answering
// before the flush, dropping the queue at Close, answering a call twice, answering
// in another order, reusing an abandoned call, admitting after Close or after a
// panic, letting a small call overtake a large one, filling a group above its limit,
// not answering what is queued at a panic, answering it like the group that panicked,
// giving an error of flush to the next group or to no call, not answering at Goexit,
// losing a wake-up, not waiting in Close.
func TestModel(t *testing.T) { playPaths(t, 6) }

func TestModelExhaustive(t *testing.T) { playPaths(t, 1) }

// playPaths plays one path in this many, from a random one on.
func playPaths(t *testing.T, one int) {
	first := rand.IntN(one)
	for _, method := range []method{viaCommit, viaSubmit} {
		t.Run(method.String(), func(t *testing.T) {
			paths := 0
			eachPath(newModel(method), nil, func(path []event) {
				paths++
				if paths%one != first {
					return
				}
				var diff string
				synctest.Test(t, func(*testing.T) { diff = play(method, path) })
				if diff != "" {
					t.Fatalf("path %d: %s", paths, diff)
				}
			})
			t.Logf("%d paths", paths)
		})
	}
}

// modelMaxGroup is the number of items of a group.
const modelMaxGroup = 2

// A method is the Committer's method that makes the calls.
type method int

const (
	viaCommit method = iota
	viaSubmit
)

func (f method) String() string { return [...]string{"Commit", "Submit"}[f] }

// maxCalls is the number of calls of a path.
func (f method) maxCalls() int { return [...]int{3, 4}[f] }

// An event is one step of a path.
type event struct {
	kind    eventKind
	items   int     // of startCall and startEnded
	call    int     // of cancelCall
	outcome outcome // of endFlush
}

type eventKind int

const (
	startCall  eventKind = iota // the next call is made
	startEnded                  // the next call is made with a ctx that has ended
	cancelCall                  // the ctx of a waiting call ends
	endFlush                    // the running flush ends
	callClose                   // Close is called
)

// An outcome is how a flush ends.
type outcome int

const (
	flushOK outcome = iota
	flushError
	flushPanic
	flushGoexit
)

func (e event) String() string {
	switch e.kind {
	case startCall:
		return fmt.Sprintf("call of %d", e.items)
	case startEnded:
		return fmt.Sprintf("call of %d with an ended ctx", e.items)
	case cancelCall:
		return fmt.Sprintf("cancel %d", e.call)
	case endFlush:
		return [...]string{"flush ok", "flush error", "flush panic", "flush Goexit"}[e.outcome]
	default:
		return "Close"
	}
}

// eachPath calls visit with every complete sequence of events that m allows.
func eachPath(m *model, path []event, visit func([]event)) {
	events := m.enabled()
	if len(events) == 0 {
		visit(path)
		return
	}
	for _, e := range events {
		next := m.clone()
		next.apply(e)
		eachPath(next, append(path[:len(path):len(path)], e), visit)
	}
}

// An answer is the kind of result that a call received.
type answer string

const (
	pending      answer = "pending"
	answerNil    answer = "nil"
	answerFlush  answer = "error of flush"
	answerPanic  answer = "panic, outcome unknown"
	answerQueued answer = "panic, nothing written"
	answerClosed answer = "closed"
	answerCtx    answer = "ctx, outcome unknown"
	answerEnded  answer = "ctx, nothing written"
)

// A model is a committer with its callers, in the state that they reach after each
// event once all goroutines are blocked.
type model struct {
	method    method
	sizes     []int    // items of each call
	answers   []answer // of each call
	order     []int    // see observation
	queue     []int    // admitted calls whose flush has not begun
	running   []int    // calls of the running flush
	groups    [][]int  // items of every flush that has begun: call*10 + position
	ended     int      // flushes that have ended
	rejection answer   // the answer to a new call, or ""
	closing   bool     // Close was called
	stats     groupcommit.Stats
}

func newModel(method method) *model { return &model{method: method} }

func (m *model) clone() *model {
	c := *m
	c.sizes = slices.Clone(m.sizes)
	c.answers = slices.Clone(m.answers)
	c.order = slices.Clone(m.order)
	c.queue = slices.Clone(m.queue)
	c.groups = slices.Clone(m.groups)
	return &c
}

// enabled returns the events that may happen next. Of events with the same
// consequences it returns one.
func (m *model) enabled() []event {
	var events []event
	if len(m.sizes) < m.method.maxCalls() {
		events = append(events, event{kind: startCall, items: 1})
		if m.rejection == "" {
			events = append(events, event{kind: startCall, items: 2})
		}
		if m.method == viaCommit && len(m.sizes) == m.method.maxCalls()-1 {
			events = append(events, event{kind: startEnded, items: 1})
		}
	}
	if m.method == viaCommit {
		for call, a := range m.answers {
			if a == pending {
				events = append(events, event{kind: cancelCall, call: call})
			}
		}
	}
	if len(m.running) > 0 {
		for _, o := range []outcome{flushOK, flushError, flushPanic} {
			events = append(events, event{kind: endFlush, outcome: o})
		}
		if m.method == viaSubmit {
			events = append(events, event{kind: endFlush, outcome: flushGoexit})
		}
	}
	if !m.closing {
		events = append(events, event{kind: callClose})
	}
	return events
}

// apply does e and everything that follows from it.
func (m *model) apply(e event) {
	switch e.kind {
	case startCall, startEnded:
		call := len(m.sizes)
		m.sizes = append(m.sizes, e.items)
		m.answers = append(m.answers, pending)
		switch {
		case e.kind == startEnded:
			m.answer(call, answerEnded)
		case m.rejection != "":
			m.answer(call, m.rejection)
		default:
			m.queue = append(m.queue, call)
			m.stats.QueuedItems += e.items
			m.stats.QueuedCalls++
		}
	case cancelCall:
		m.answer(e.call, answerCtx)
	case callClose:
		m.closing = true
		if m.rejection == "" {
			m.rejection = answerClosed
		}
	case endFlush:
		m.endFlush(e.outcome)
	}
	m.beginFlush()
}

func (m *model) endFlush(o outcome) {
	m.ended++
	m.stats.Groups++
	if o != flushOK {
		m.stats.Failed++
	}
	for _, call := range m.running {
		m.stats.Calls++
		m.leave(call, [...]answer{answerNil, answerFlush, answerPanic, answerPanic}[o])
	}
	m.running = nil
	m.stats.Flushing = false
	if o == flushPanic || o == flushGoexit {
		for _, call := range m.queue {
			m.leave(call, answerQueued)
		}
		m.queue = nil
		m.rejection = answerQueued
	}
}

// leave takes call out of the queue and answers its caller with a if it still waits.
func (m *model) leave(call int, a answer) {
	m.stats.QueuedItems -= m.sizes[call]
	m.stats.QueuedCalls--
	if m.answers[call] == pending {
		m.answer(call, a)
	}
}

func (m *model) answer(call int, a answer) {
	m.answers[call] = a
	if m.method == viaSubmit {
		m.order = append(m.order, call)
	}
}

// beginFlush starts a flush of the oldest calls that fit into a group, unless one is
// running.
func (m *model) beginFlush() {
	if len(m.running) > 0 || len(m.queue) == 0 {
		return
	}
	var group []int
	n := 0
	for n < len(m.queue) && len(group)+m.sizes[m.queue[n]] <= modelMaxGroup {
		group = append(group, itemsOf(m.queue[n], m.sizes[m.queue[n]])...)
		n++
	}
	m.running, m.queue = m.queue[:n:n], m.queue[n:]
	m.stats.Flushing = true
	m.groups = append(m.groups, group)
}

// closed reports whether Close has returned.
func (m *model) closed() bool {
	return m.closing && len(m.running) == 0 && len(m.queue) == 0
}

// An observation is everything that a test can observe of a committer and its callers.
type observation struct {
	answers []answer
	order   []int // the calls in the order of their answers; not of Commits, whose goroutines race
	groups  [][]int
	closed  bool
	stats   groupcommit.Stats
}

func (s observation) equal(o observation) bool {
	return slices.Equal(s.answers, o.answers) && slices.Equal(s.order, o.order) &&
		slices.EqualFunc(s.groups, o.groups, slices.Equal[[]int]) &&
		s.closed == o.closed && s.stats == o.stats
}

func (s observation) String() string {
	return fmt.Sprintf("answers %q in the order %v, groups %v, closed %v, stats %+v", s.answers, s.order, s.groups,
		s.closed, s.stats)
}

func (m *model) observation() observation {
	return observation{m.answers, m.order, m.groups, m.closed(), m.stats}
}

// itemsOf returns the n items of a call. Each encodes the call and its position.
func itemsOf(call, n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = call*10 + i
	}
	return items
}

var errFlush = errors.New("flush failed")

// play does path with a real committer and returns the first difference from the
// model, or "". It must be called in a synctest bubble.
func play(method method, path []event) string {
	m := newModel(method)
	r := newSystem(method)
	defer r.abandon()
	for i, e := range path {
		m.apply(e)
		r.apply(e)
		synctest.Wait()
		if r.broken != "" {
			return fmt.Sprintf("after %s: %s", pathText(path[:i+1]), r.broken)
		}
		if got, want := r.observation(), m.observation(); !got.equal(want) {
			return fmt.Sprintf("after %s:\ngot  %v\nwant %v", pathText(path[:i+1]), got, want)
		}
	}
	return ""
}

func pathText(path []event) string {
	var texts []string
	for _, e := range path {
		texts = append(texts, e.String())
	}
	return strings.Join(texts, ", ")
}

// A system is a real committer with its callers.
//
// synctest.Wait orders what the goroutines write before what the test reads.
type system struct {
	method    method
	committer *groupcommit.Committer[int]
	release   chan outcome // ends the running flush
	groups    [][]int
	flushing  bool
	broken    string // a rule that was broken, or ""
	answers   []answer
	order     []int
	cancels   []context.CancelFunc
	closed    bool
	closeCtx  context.Context
	giveUp    context.CancelFunc
}

func newSystem(method method) *system {
	r := &system{method: method, release: make(chan outcome)}
	r.closeCtx, r.giveUp = context.WithCancel(context.Background())
	r.committer = groupcommit.New(groupcommit.Options[int]{MaxGroup: modelMaxGroup}, r.flush)
	return r
}

func (r *system) flush(group []int) error {
	if r.flushing {
		r.broken = "flush was called concurrently"
	}
	r.flushing = true
	defer func() { r.flushing = false }()
	r.groups = append(r.groups, slices.Clone(group))
	switch <-r.release {
	case flushError:
		return errFlush
	case flushPanic:
		panic("out of order")
	case flushGoexit:
		runtime.Goexit()
	}
	return nil
}

func (r *system) apply(e event) {
	switch e.kind {
	case startCall, startEnded:
		call := len(r.answers)
		r.answers = append(r.answers, pending)
		ctx, cancel := context.WithCancel(context.Background())
		r.cancels = append(r.cancels, cancel)
		if e.kind == startEnded {
			cancel()
		}
		items := itemsOf(call, e.items)
		if r.method == viaCommit {
			go func() {
				_, err := r.committer.Commit(ctx, items)
				r.answer(call, err)
			}()
		} else if err := r.committer.Submit(items,
			waiterFunc(func(f groupcommit.Flush) { r.answer(call, f.Err) })); err != nil {
			r.answer(call, err)
		}
	case cancelCall:
		r.cancels[e.call]()
	case endFlush:
		r.release <- e.outcome
	case callClose:
		go func() {
			err := r.committer.Close(r.closeCtx)
			if _, ok := errors.AsType[*groupcommit.PanicError](err); err != nil && !ok {
				r.broken = fmt.Sprintf("Close returned %v", err)
			}
			r.closed = true
		}()
	}
}

func (r *system) answer(call int, err error) {
	if r.answers[call] != pending {
		r.broken = fmt.Sprintf("call %d was answered twice", call)
	}
	r.answers[call] = classOf(err)
	if r.method == viaSubmit {
		r.order = append(r.order, call)
	}
}

// classOf returns the kind of the answer err.
func classOf(err error) answer {
	_, panicked := errors.AsType[*groupcommit.PanicError](err)
	notWritten := errors.Is(err, groupcommit.ErrNotWritten)
	canceled := errors.Is(err, context.Canceled)
	switch {
	case err == nil:
		return answerNil
	case err == errFlush:
		return answerFlush
	case panicked && notWritten:
		return answerQueued
	case panicked:
		return answerPanic
	case canceled && notWritten:
		return answerEnded
	case canceled:
		return answerCtx
	case errors.Is(err, groupcommit.ErrClosed) && notWritten:
		return answerClosed
	}
	return answer(fmt.Sprintf("unexpected %v", err))
}

func (r *system) observation() observation {
	return observation{r.answers, r.order, r.groups, r.closed, r.committer.Stats()}
}

// abandon ends the goroutines that a failed path has left, so that the bubble can end.
func (r *system) abandon() {
	close(r.release)
	for _, cancel := range r.cancels {
		cancel()
	}
	r.giveUp()
	synctest.Wait()
}

// A waiterFunc is a function that is its own Waiter.
type waiterFunc func(groupcommit.Flush)

func (w waiterFunc) Done(f groupcommit.Flush) { w(f) }
