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

// Errors of checks.
var (
	// ErrOverrun is the error of a check that exceeded its deadline.
	ErrOverrun = errors.New("health: check overran its deadline")

	// ErrExpired is the error of a check whose last reported result is older than its MaxAge.
	ErrExpired = errors.New("health: no new result was reported in time")
)

// Defaults of a Check.
const (
	DefaultEvery   = 5 * time.Second
	DefaultTimeout = 2 * time.Second
)

// maxNameBytes bounds a check's name.
const maxNameBytes = 64

// A Check is one condition of readiness.
type Check struct {
	// Name is public. It has 1 to 64 of the bytes A-Z a-z 0-9 . _ - and is unique in a
	// Health.
	Name string

	// Run returns nil if the condition holds. It should return when ctx is done. Calls
	// do not overlap. If Run is nil, results come only from a Reporter. If Run panics, the
	// check fails, and is run again.
	Run func(ctx context.Context) error

	// Degrades means that the service still works in part while the check fails: the
	// answer names the check and stays "ready".
	Degrades bool

	Every   time.Duration // interval between the starts of runs; 0 means DefaultEvery
	Timeout time.Duration // deadline of one run; 0 means DefaultTimeout

	// MaxAge is how long a result from a Reporter is valid; then the check fails with
	// ErrExpired until the next one. 0 means for ever, which is right for a component that
	// reports only changes. A check with a Run has no MaxAge.
	MaxAge time.Duration
}

// Options configure a [Health].
type Options struct {
	// OnChange, if not nil, is called at a check's first result and when it begins to
	// pass (err is nil) or to fail. Calls are serialized and come from a goroutine that
	// runs from Start to Close. Results that changed again before they could be
	// reported are skipped. OnChange must not call Close.
	OnChange func(name string, err error)
}

// A Health keeps track of whether the process can do its work. It is safe for
// concurrent use.
type Health struct {
	onChange   func(name string, err error)
	live       *reply.Answer
	notAllowed *reply.Answer // a method other than GET and HEAD

	// ready is the answer for the current state. It is replaced before mu is released,
	// so that answers reflect a change when the call that made it returns.
	ready atomic.Pointer[reply.Answer]

	checks []*check // the slice is immutable; results are guarded by mu
	wake   chan struct{}

	mu       sync.Mutex
	draining bool
	started  bool
	closed   bool
	cancel   context.CancelFunc // stops the goroutines of Start
	ended    <-chan struct{}    // closed when these goroutines have returned
}

// A check is a Check and its state. Health.mu guards the fields after Check.
type check struct {
	Check

	outcome  outcome
	err      error       // error of the last failure
	public   string      // its public text; "" if it has none
	pushes   uint64      // number of results from a Reporter
	expiry   *time.Timer // after a result from a Reporter; nil without MaxAge
	running  bool
	reported outcome // last outcome passed to OnChange
}

// Public is implemented by errors of checks with a text that answers show beside the check's name.
type Public interface {
	error
	Public() string
}

type outcome uint8

const (
	pending outcome = iota // no result yet
	passing
	failing
)

// New returns a Health with the given checks. Without checks it is ready at once. New
// panics if a check's name is invalid or not unique, or if a duration is negative.
func New(opts Options, checks ...Check) *Health {
	h := &Health{
		onChange: opts.OnChange,
		live:     newAnswer(200, "ok", lists{}),
		notAllowed: reply.NewProblem(405, "", "").
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
		panic("health: invalid name of a check: " + strconv.Quote(c.Name))
	case h.find(c.Name) != nil:
		panic("health: duplicate check " + c.Name)
	case c.Every < 0 || c.Timeout < 0 || c.MaxAge < 0:
		panic("health: negative duration in check " + c.Name)
	case c.Run != nil && c.MaxAge > 0:
		panic("health: MaxAge of a check with Run: " + c.Name)
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

// Reporter returns a function that reports results of the named check: nil if the
// condition holds. The function changes readiness before it returns. It is safe for
// concurrent use and does not wait for OnChange. Reporter panics if there is no such
// check, so that a wrong name is detected at start.
func (h *Health) Reporter(name string) func(err error) {
	c := h.find(name)
	if c == nil {
		panic("health: unknown check " + strconv.Quote(name))
	}
	return func(err error) {
		public := publicText(err)
		h.mu.Lock()
		defer h.mu.Unlock()
		c.pushes++
		h.recordLocked(c, err, public)
		h.expireLaterLocked(c)
	}
}

// expireLaterLocked lets the result that was just reported expire, unless another follows.
func (h *Health) expireLaterLocked(c *check) {
	if c.MaxAge == 0 || h.closed {
		return
	}
	if c.expiry != nil {
		c.expiry.Stop()
	}
	pushes := c.pushes
	c.expiry = time.AfterFunc(c.MaxAge, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if c.pushes == pushes && !h.closed {
			h.recordLocked(c, ErrExpired, "")
		}
	})
}

// publicText returns the public text of an error, or "" if it has none.
func publicText(err error) string {
	if p, ok := errors.AsType[Public](err); ok {
		return p.Public()
	}
	return ""
}

// Drain permanently turns readiness false, regardless of the checks. Requests that
// arrive after it returns are not answered "ready".
func (h *Health) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.publishLocked()
}

// Ready reports whether /readyz answers "ready".
func (h *Health) Ready() bool { return h.ready.Load().Status() == 200 }

// recordLocked records a result with its public text.
func (h *Health) recordLocked(c *check, err error, public string) {
	was, said := c.outcome, c.public
	c.outcome, c.err, c.public = passing, err, public
	if err != nil {
		c.outcome = failing
	}
	if c.outcome == was && c.public == said {
		return
	}
	h.publishLocked()
	select {
	case h.wake <- struct{}{}:
	default: // notify has a pending wake-up and will see this change, too
	}
}

// publishLocked prepares the answer for the current state.
func (h *Health) publishLocked() {
	var l lists
	for _, c := range h.checks {
		if c.public != "" {
			detail := append(reply.AppendJSONString(nil, c.Name), ':')
			l.details = append(l.details, string(reply.AppendJSONString(detail, c.public)))
		}
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

// lists has the names of checks in an answer, and members for the public texts of their errors.
type lists struct{ failing, pending, degraded, details []string }

// newAnswer prepares one of the answers listed in the package comment. Names need no
// escaping; see validName.
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
	if len(l.details) > 0 {
		fmt.Fprintf(&b, `,"details":{%s}`, strings.Join(l.details, ","))
	}
	b.WriteString("}\n")
	return reply.New(status, "application/json", []byte(b.String()), append(opts, reply.Lean())...)
}
