package ingest

import (
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/reply"
)

// An httpFront is the front for HTTP of a FastLane.
type httpFront struct {
	lane  *Lane
	cfg   *FastLaneConfig
	clock *reply.Clock
	date  []byte
}

func newLane(c *Core, loop *eventloop.Loop, cfg *FastLaneConfig) *Lane {
	return NewLane(c, loop, http.MethodPost, fastparse.Target, func(l *Lane) Front {
		return &httpFront{lane: l, cfg: cfg, clock: reply.NewClock(time.Now)}
	})
}

// Conn.User counts the bytes to skip before the next request.
const (
	// answeredPost is set after a request, until the bytes that net/http would skip
	// after it are skipped.
	answeredPost uint32 = 1

	// awaited is set while the credentials of the next request are being checked.
	awaited uint32 = 2

	// The bits above count the missing body bytes of a request that was answered
	// before its body arrived. They can hold fastparse.MaxBodyBytes.
	passOverShift = 2
)

// Receive handles the requests at the beginning of b.
func (l *httpFront) Receive(c *eventloop.Conn, b []byte, ended bool) (taken int) {
	if c.Guest() {
		return l.rejectGuest(c, b, ended)
	}
	for taken < len(b) && !c.Full() {
		rest := b[taken:]
		if missing := int(c.User >> passOverShift); missing > 0 {
			n := min(missing, len(rest))
			taken += n
			if c.User -= uint32(n) << passOverShift; n == missing {
				c.Expect(0)
			}
			continue
		}
		if c.User&answeredPost != 0 {
			n, ok := fastparse.SkipBlank(rest, ended)
			if !ok {
				l.unfinished(c, fastparse.Request{Need: len(rest) + 1})
				return taken
			}
			if n > 0 {
				taken += n
				c.User &^= answeredPost
				continue
			}
		}
		r, verdict := fastparse.Recognise(rest)
		// The full lane rejects such a body without waiting for it.
		tooLarge := r.Body.End-r.Body.Start > l.lane.core.cfg.MaxBatchBytes
		switch {
		case verdict == fastparse.More && !ended && !tooLarge:
			if !l.rejectEarly(c, rest, r) {
				if !c.Full() {
					l.unfinished(c, r)
				}
				return taken
			}
		case verdict != fastparse.Accept, tooLarge, l.lane.core.cfg.Trace != nil &&
			r.Traceparent.End > 0, l.cfg.Host != nil && !l.cfg.Host(r.Host.Of(rest)), !l.take(c, rest, r):
			if !c.Full() { // otherwise it waits
				c.Move()
			}
			return taken
		}
		here := min(r.Body.End, len(rest))
		taken += here
		c.User = answeredPost | uint32(r.Body.End-here)<<passOverShift
		if here < r.Body.End {
			c.Expect(l.cfg.ReadTimeout)
		}
	}
	return taken
}

// rejectEarly answers a request whose header has arrived and whose body has not, if
// its client may not send it, or if the queue is full and the body small. The body is then
// skipped. (unfinished closes the connection if a larger body meets a full queue.)
func (l *httpFront) rejectEarly(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	if r.Body.End == 0 {
		return false
	}
	_, why := l.lane.core.enter(visitor(c, b, r), l.lane.begin().arrived)
	if why.kind == refusedUndecided {
		l.await(c)
		return false
	}
	if why.kind == 0 && c.Owed() == 0 && r.Body.End-len(b) < l.lane.core.memory.small && l.lane.core.full() {
		why.kind = refusedOverloaded
	}
	if why.kind == 0 || why.kind == refusedDraining {
		return false
	}
	job := l.lane.Job()
	job.refusal = why
	l.settle(c, job, r.Close)
	return true
}

// visitor returns the client that sent the request r, which begins at b.
func visitor(c *eventloop.Conn, b []byte, r fastparse.Request) gate.Credentials {
	return gate.Credentials{Bytes: r.Authorization.Of(b), TLS: c.TLS(), Peer: c, Quick: true}
}

// checkTime is how long a connection waits while its credentials are checked on another goroutine.
const checkTime = 10 * time.Millisecond

// await offers a request again when its credentials should have been checked. After that, if they are
// not accepted, the full lane answers.
func (l *httpFront) await(c *eventloop.Conn) {
	if c.User&awaited == 0 {
		c.User |= awaited
		c.Pause(checkTime)
	}
	if !c.Full() {
		c.User &^= awaited
		c.Move()
	}
}

// rejectGuest rejects the readings of a guest, whose connection exceeds the bound.
// The full lane answers all other requests of guests.
func (l *httpFront) rejectGuest(c *eventloop.Conn, b []byte, ended bool) (taken int) {
	r, verdict := fastparse.Recognise(b)
	switch {
	case verdict == fastparse.Other, verdict == fastparse.More && ended:
		c.Move()
		return 0
	case r.Body.End == 0:
		c.Need(r.Need)
		c.Within(min(l.cfg.HeaderTimeout, guestTimeout))
		return 0
	}
	l.refuse(c, refusal{kind: refusedOverloaded})
	return len(b)
}

// guestTimeout is the time that a guest has for the header of its only request.
const guestTimeout = 2 * time.Second

// drainHeaderTimeout is the time for a header, from its first byte on, while the
// server drains: the request will be rejected.
const drainHeaderTimeout = time.Second

// unfinished decides how long to wait for the rest of a request.
func (l *httpFront) unfinished(c *eventloop.Conn, r fastparse.Request) {
	c.Need(r.Need)
	draining := l.lane.core.draining.Load()
	switch {
	case r.Body.End == 0 && draining:
		c.Within(min(l.cfg.HeaderTimeout, drainHeaderTimeout))
	case r.Body.End == 0:
		c.Within(l.cfg.HeaderTimeout)
	case c.Owed() == 0 && draining:
		l.refuse(c, refusal{kind: refusedDraining}) // without reading the body
	case c.Owed() == 0 && l.lane.core.full():
		l.refuse(c, refusal{kind: refusedOverloaded})
	default:
		c.Within(l.cfg.ReadTimeout)
	}
}

// GiveUp closes a connection whose request will not be completed. A client that has
// not sent a complete header gets no answer, as with net/http.
func (l *httpFront) GiveUp(c *eventloop.Conn, b []byte, why eventloop.Reason) {
	r, _ := fastparse.Recognise(b)
	switch {
	case c.Owed() > 0: // the client would take the answer for one to an earlier request
	case why == eventloop.NoMemory:
		l.refuse(c, refusal{kind: refusedOverloaded})
	case r.Body.End > 0:
		l.refuse(c, refusal{kind: refusedTimeout})
	}
}

// refuse answers a request that was not read completely, and closes its connection. No
// other answer may be pending.
func (l *httpFront) refuse(c *eventloop.Conn, why refusal) {
	job := l.lane.Job()
	job.refusal = why
	c.End()
	l.lane.answerNow(c, job, 0)
}

// take decodes the request r, which begins at b, into the open turn. It returns
// false if the full lane must handle the request.
func (l *httpFront) take(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	job, ok := l.lane.Take(&Delivery{From: visitor(c, b, r), Message: r.Body.Of(b)})
	switch {
	case ok && job.refusal.kind == refusedUndecided:
		l.lane.Release(job)
		l.await(c)
		return false
	case ok:
		l.settle(c, job, r.Close)
	}
	return ok
}

// settle settles a request. closes reports whether the client asked to close the connection.
func (l *httpFront) settle(c *eventloop.Conn, job *Job, closes bool) {
	if closes || l.lane.core.outlived(c.TLS(), l.lane.begin().arrived) {
		c.End()
	}
	if job.refusal.kind == refusedOverloaded {
		c.Pause(pauseFor(int64(l.lane.loop.Paused())))
	}
	l.lane.Settle(c, job, 0)
}

// Answering implements Front.
func (l *httpFront) Answering() { l.date = l.clock.AppendDate(l.date[:0]) }

// AppendAnswer implements Front.
func (l *httpFront) AppendAnswer(dst []byte, m *Message) ([]byte, int) {
	answer, before := m.Job.Answer(), len(dst)
	if fields := (reply.HTTP1{Date: l.date, RetryAfter: answer.RetryAfter}); !m.Conn.Gone() {
		if m.Last {
			fields.Connection = "close"
		}
		dst = answer.Head.AppendHTTP1(dst, fields, answer.Body)
	}
	if l.cfg.Observe != nil {
		l.cfg.Observe(answer.Status(), dst[before:], m.Took, m.Conn.TLSVersion())
	}
	return dst, answer.Status()
}
