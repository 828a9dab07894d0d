package health

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/reply"
)

// ErrOverrun is the error of a check that was not back by its deadline.
var ErrOverrun = errors.New("health: check overran its deadline")

// Defaults of a Check.
const (
	DefaultEvery   = 5 * time.Second
	DefaultTimeout = 2 * time.Second
)

// maxNameBytes bounds a check's name.
const maxNameBytes = 64

// A Check is one condition of readiness.
type Check struct {
	// Name is shown to everybody who asks: 1 to 64 of the bytes A-Z a-z 0-9 . _ -
	// which no other check of the Health has.
	Name string

	// Run returns nil if the condition holds. It should return when ctx ends, and
	// is never called twice at a time. nil: results are only pushed.
	Run func(ctx context.Context) error

	// Degrades says that the service does its work while the check fails, but for a part
	// of it: the answer names the check and stays "ready".
	Degrades bool

	Every   time.Duration // from the start of one run to that of the next; 0: DefaultEvery
	Timeout time.Duration // deadline of one run; 0: DefaultTimeout
}

// Options are what a Health is told besides its checks.
type Options struct {
	// OnChange, if not nil, is called at a check's first result and when it
	// begins to pass (err is nil) or to fail. Calls come one at a time, from a
	// goroutine of the Health that runs from Start to Close. A result that did not
	// last until it could be told is passed over. OnChange must not call Close.
	OnChange func(name string, err error)
}

// A Health knows whether the process can do its work. Its methods may be called
// from any goroutine.
type Health struct {
	onChange func(name string, err error)
	live     *reply.Answer
	refused  *reply.Answer // a method other than GET and HEAD

	// ready is the answer to the state that mu guards. It is replaced before mu
	// is released, so that who has changed the state may rely on the answers.
	ready atomic.Pointer[reply.Answer]

	checks []*check // immutable, their results are not
	wake   chan struct{}

	mu       sync.Mutex
	draining bool
	started  bool
	closed   bool
	cancel   context.CancelFunc // stops what Start has started
	ended    <-chan struct{}    // closed when all of it has returned
}

// A check is a Check and what became of it. Health.mu guards the second half.
type check struct {
	Check

	outcome outcome
	err     error  // of the last failure
	pushes  uint64 // results that were pushed
	running bool
	told    outcome // what OnChange was told last
}

type outcome uint8

const (
	pending outcome = iota // no result yet
	passing
	failing
)

// New returns a Health with the given checks. With none it is ready at once. It
// panics if a check's name is not valid or not unique, or a duration negative.
func New(opts Options, checks ...Check) *Health {
	h := &Health{
		onChange: opts.OnChange,
		live:     newAnswer(200, "ok", lists{}),
		refused: reply.NewProblem(405, "", "").
			Answer("", nil, reply.Allow("GET", "HEAD")),
		wake: make(chan struct{}, 1),
	}
	for _, c := range checks {
		h.mustBeNew(c)
		if c.Every == 0 {
			c.Every = DefaultEvery
		}
		if c.Timeout == 0 {
			c.Timeout = DefaultTimeout
		}
		h.checks = append(h.checks, &check{Check: c})
	}
	h.publishLocked()
	return h
}

func (h *Health) mustBeNew(c Check) {
	switch {
	case !validName(c.Name):
		panic("health: not a name for a check: " + strconv.Quote(c.Name))
	case h.find(c.Name) != nil:
		panic("health: two checks are called " + c.Name)
	case c.Every < 0 || c.Timeout < 0:
		panic("health: negative duration in check " + c.Name)
	}
}

func validName(s string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	return s != "" && len(s) <= maxNameBytes && strings.Trim(s, allowed) == ""
}

func (h *Health) find(name string) *check {
	for _, c := range h.checks {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Reporter returns a function that pushes results of the check called name: nil
// if the condition holds. When it returns, readiness has changed. It may be
// called from any goroutine, and does not wait for OnChange. Reporter panics if
// there is no such check, so that a wrong name shows at start.
func (h *Health) Reporter(name string) func(err error) {
	c := h.find(name)
	if c == nil {
		panic("health: no check is called " + strconv.Quote(name))
	}
	return func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		c.pushes++
		h.settleLocked(c, err)
	}
}

// Drain turns readiness false for good, whatever the checks say. When it returns,
// no request is answered "ready" any more, except those that were being answered.
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.publishLocked()
}

// Ready reports what /readyz says.
func (h *Health) Ready() bool { return h.ready.Load().Status() == 200 }

// settleLocked notes a result.
func (h *Health) settleLocked(c *check, err error) {
	was := c.outcome
	c.outcome, c.err = passing, err
	if err != nil {
		c.outcome = failing
	}
	if c.outcome == was {
		return
	}
	h.publishLocked()
	select {
	case h.wake <- struct{}{}:
	default: // the notifier has yet to look, and will see this too
	}
}

// publishLocked prepares the answer to the present state.
func (h *Health) publishLocked() {
	var l lists
	for _, c := range h.checks {
		switch {
		case c.Degrades && c.outcome == failing:
			l.degraded = append(l.degraded, c.Name)
		case c.Degrades:
		case c.outcome == failing:
			l.failing = append(l.failing, c.Name)
		case c.outcome == pending:
			l.pending = append(l.pending, c.Name)
		}
	}
	switch {
	case h.draining:
		h.ready.Store(newAnswer(503, "draining", l, reply.NoStore()))
	case len(l.failing)+len(l.pending) > 0:
		h.ready.Store(newAnswer(503, "unavailable", l, reply.NoStore()))
	default:
		h.ready.Store(newAnswer(200, "ready", l, reply.NoStore()))
	}
}

// lists are the names of checks that an answer has.
type lists struct{ failing, pending, degraded []string }

// newAnswer prepares one answer of the package comment's list. Names need no
// escape (validName).
func newAnswer(status int, text string, l lists, opts ...reply.Option) *reply.Answer {
	var b strings.Builder
	fmt.Fprintf(&b, `{"status":%q`, text)
	for _, list := range []struct {
		key   string
		names []string
	}{{"failing", l.failing}, {"pending", l.pending}, {"degraded", l.degraded}} {
		if len(list.names) > 0 {
			fmt.Fprintf(&b, `,%q:["%s"]`, list.key, strings.Join(list.names, `","`))
		}
	}
	b.WriteByte('}')
	return reply.New(status, "application/json", []byte(b.String()), append(opts, reply.Lean())...)
}
