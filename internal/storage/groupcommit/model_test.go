package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
)

// TestModel runs every order of a few calls of one or two items, their
// cancellations, Close, and flushes that succeed, fail, panic or end their
// goroutine. After each event it lets everything come to rest and compares what can be seen with a model that has
// no goroutines: the answers, their order, the groups, the counters.
//
// It was seen to fail when the code was broken in each of these ways: answering
// before the flush, dropping the queue at Close, answering a call twice, answering
// in another order, using an abandoned call again, admitting after Close or after
// a panic, letting a small call overtake a large one,
// filling a group above its limit, not answering what is queued at a panic, telling
// it the same as the group that panicked, giving an error of flush to the next
// group or to nobody, not answering at Goexit, losing a wake-up, not waiting in
// Close.
func TestModel(t *testing.T) {
	for _, front := range []front{commitFront, submitFront} {
		t.Run(front.String(), func(t *testing.T) {
			paths := 0
			eachPath(newModel(front), nil, func(path []event) {
				paths++
				if testing.Short() && paths%5 > 0 {
					return
				}
				var diff string
				synctest.Test(t, func(*testing.T) { diff = play(front, path) })
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

// A front is the way in which calls come in.
type front int

const (
	commitFront front = iota
	submitFront
)

func (f front) String() string { return [...]string{"Commit", "Submit"}[f] }

// maxCalls is the number of calls of a path.
func (f front) maxCalls() int { return [...]int{3, 4}[f] }

// An event is one step of a path.
type event struct {
	kind    eventKind
	items   int     // of startCall and startEnded
	call    int     // of cancelCall
	outcome outcome // of endFlush
}

type eventKind int

const (
	startCall  eventKind = iota // the next call comes in
	startEnded                  // the next call comes in; its ctx has ended
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

// eachPath calls visit with every longest sequence of events that m allows.
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

// An answer is the class of what a call was told.
type answer string

const (
	pending      answer = "pending"
	answerNil    answer = "nil"
	answerFlush  answer = "error of flush"
	answerPanic  answer = "panic, outcome unknown"
	answerBehind answer = "panic, nothing written"
	answerClosed answer = "closed"
	answerCtx    answer = "ctx, outcome unknown"
	answerEnded  answer = "ctx, nothing written"
)

// A model is a committer and its callers, brought to rest after each event.
type model struct {
	front   front
	sizes   []int    // items of each call
	answers []answer // of each call
	told    []int    // see sight
	queue   []int    // admitted calls whose flush has not begun
	running []int    // calls of the running flush
	groups  [][]int  // items of every flush that has begun: call*10 + position
	ended   int      // flushes that have ended
	refusal answer   // what a new call is told, or ""
	closing bool     // Close was called
	stats   groupcommit.Stats
}

func newModel(front front) *model { return &model{front: front} }

func (m *model) clone() *model {
	c := *m
	c.sizes = slices.Clone(m.sizes)
	c.answers = slices.Clone(m.answers)
	c.told = slices.Clone(m.told)
	c.queue = slices.Clone(m.queue)
	c.groups = slices.Clone(m.groups)
	return &c
}

// enabled returns the events that may come next. Where events cannot differ in
// what they lead to, it returns one of them.
func (m *model) enabled() []event {
	var events []event
	if len(m.sizes) < m.front.maxCalls() {
		events = append(events, event{kind: startCall, items: 1})
		if m.refusal == "" {
			events = append(events, event{kind: startCall, items: 2})
		}
		if m.front == commitFront && len(m.sizes) == m.front.maxCalls()-1 {
			events = append(events, event{kind: startEnded, items: 1})
		}
	}
	if m.front == commitFront {
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
		if m.front == submitFront {
			events = append(events, event{kind: endFlush, outcome: flushGoexit})
		}
	}
	if !m.closing {
		events = append(events, event{kind: callClose})
	}
	return events
}

// apply does e and lets everything happen that follows from it.
func (m *model) apply(e event) {
	switch e.kind {
	case startCall, startEnded:
		call := len(m.sizes)
		m.sizes = append(m.sizes, e.items)
		m.answers = append(m.answers, pending)
		switch {
		case e.kind == startEnded:
			m.tell(call, answerEnded)
		case m.refusal != "":
			m.tell(call, m.refusal)
		default:
			m.queue = append(m.queue, call)
			m.stats.QueuedItems += e.items
			m.stats.QueuedCalls++
		}
	case cancelCall:
		m.tell(e.call, answerCtx)
	case callClose:
		m.closing = true
		if m.refusal == "" {
			m.refusal = answerClosed
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
			m.leave(call, answerBehind)
		}
		m.queue = nil
		m.refusal = answerBehind
	}
}

// leave takes call out of the queue; its caller is told a if it still waits.
func (m *model) leave(call int, a answer) {
	m.stats.QueuedItems -= m.sizes[call]
	m.stats.QueuedCalls--
	if m.answers[call] == pending {
		m.tell(call, a)
	}
}

func (m *model) tell(call int, a answer) {
	m.answers[call] = a
	if m.front == submitFront {
		m.told = append(m.told, call)
	}
}

// beginFlush starts a flush of the oldest calls that fit into a group, when none
// is running.
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

// A sight is all that can be seen of a committer and its callers.
type sight struct {
	answers []answer
	told    []int // the calls in the order of their answers; not of Commits, whose goroutines race
	groups  [][]int
	closed  bool
	stats   groupcommit.Stats
}

func (s sight) equal(o sight) bool {
	return slices.Equal(s.answers, o.answers) && slices.Equal(s.told, o.told) && slices.EqualFunc(s.groups, o.groups, slices.Equal[[]int]) &&
		s.closed == o.closed && s.stats == o.stats
}

func (s sight) String() string {
	return fmt.Sprintf("answers %q in the order %v, groups %v, closed %v, stats %+v", s.answers, s.told, s.groups, s.closed, s.stats)
}

func (m *model) sight() sight { return sight{m.answers, m.told, m.groups, m.closed(), m.stats} }

// itemsOf returns the items of a call: n numbers that tell the call and the
// place.
func itemsOf(call, n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = call*10 + i
	}
	return items
}

var errFlush = errors.New("flush failed")

// play does path with a real committer, and returns what differs from the model
// or "". It must be called in a bubble.
func play(front front, path []event) string {
	m := newModel(front)
	r := newReality(front)
	defer r.abandon()
	for i, e := range path {
		m.apply(e)
		r.apply(e)
		synctest.Wait()
		if r.broken != "" {
			return fmt.Sprintf("after %s: %s", pathText(path[:i+1]), r.broken)
		}
		if got, want := r.sight(), m.sight(); !got.equal(want) {
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

// A reality is a committer with its callers.
//
// The bubble's Wait orders what the goroutines write before what the test reads.
type reality struct {
	front     front
	committer *groupcommit.Committer[int]
	release   chan outcome // ends the running flush
	groups    [][]int
	flushing  bool
	broken    string // the first broken rule, or ""
	answers   []answer
	told      []int
	cancels   []context.CancelFunc
	closed    bool
	closeCtx  context.Context
	giveUp    context.CancelFunc
}

func newReality(front front) *reality {
	r := &reality{front: front, release: make(chan outcome)}
	r.closeCtx, r.giveUp = context.WithCancel(context.Background())
	r.committer = groupcommit.New(groupcommit.Config{MaxGroup: modelMaxGroup}, r.flush)
	return r
}

func (r *reality) flush(group []int) error {
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

func (r *reality) apply(e event) {
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
		if r.front == commitFront {
			go func() {
				_, err := r.committer.Commit(ctx, items)
				r.answer(call, err)
			}()
		} else if err := r.committer.Submit(items, waiterFunc(func(f groupcommit.Flush) { r.answer(call, f.Err) })); err != nil {
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

func (r *reality) answer(call int, err error) {
	if r.answers[call] != pending {
		r.broken = fmt.Sprintf("call %d was answered twice", call)
	}
	r.answers[call] = classOf(err)
	if r.front == submitFront {
		r.told = append(r.told, call)
	}
}

// classOf returns the class of an answer.
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
		return answerBehind
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

func (r *reality) sight() sight {
	return sight{r.answers, r.told, r.groups, r.closed, r.committer.Stats()}
}

// abandon ends what a path that differs has left behind, so that the bubble can
// end.
func (r *reality) abandon() {
	close(r.release)
	for _, cancel := range r.cancels {
		cancel()
	}
	r.giveUp()
	synctest.Wait()
}

// A waiterFunc is a Waiter that calls itself.
type waiterFunc func(groupcommit.Flush)

func (w waiterFunc) Done(f groupcommit.Flush) { w(f) }
