package ingest

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A lane is the part of a FastLane that one event loop runs. The requests that the
// loop reads in one turn are submitted to the committer in one call, or in several if
// they exceed a group. While they are committed, the loop reads the next ones.
//
// Everything except turn.Done runs on the loop's goroutine.
type lane struct {
	core    *Core
	loop    *eventloop.Loop
	cfg     *FastLaneConfig
	decoder *vitals.Decoder // for all jobs, which are decoded one after another
	clock   *reply.Clock

	open *turn // the turn being filled; nil means none

	// oldest to newest are the turns with unanswered requests. A request with
	// nothing to commit, such as a rejected one, waits in them only if earlier requests on its
	// connection do, so that rejections do not wait for the disk.
	//
	// Invariant: turns are answered in this order, the order in which their
	// requests arrived. So answers are in order on every connection; TestPipelined
	// checks it.
	oldest, newest *turn

	turns *turn   // unused ones, linked by next
	jobs  jobList // unused ones
	out   []byte  // answers being sent to a connection
	date  []byte
}

// A turn holds the requests that the loop has read in one turn, or as many of them as
// fit into one call of the committer.
type turn struct {
	lane     *lane
	refs     []*storage.Entry // of all jobs that have something to commit
	requests []request
	arrived  time.Time
	stalled  bool // the store was stalled when the turn began: all its readings are rejected
	next     *turn

	submitted time.Time // only with Config.Trace

	// flush is the result of the commit. It is written before done is set, and read
	// afterwards.
	flush groupcommit.Flush
	done  atomic.Bool
}

// A request is waiting for its answer.
//
// Ownership: the job's entries belong to the committer from submit until the turn
// is done. The peer may disconnect before; the Conn is kept until all of its
// answers were passed to it.
type request struct {
	conn *eventloop.Conn
	job  *Job
}

func newLane(c *Core, loop *eventloop.Loop, cfg *FastLaneConfig) *lane {
	return &lane{core: c, loop: loop, cfg: cfg, decoder: c.newDecoder(), clock: reply.NewClock(time.Now)}
}

// Conn.User counts the bytes to skip before the next request.
const (
	// answeredPost is set after a request, until the bytes that net/http would skip
	// after it are skipped.
	answeredPost uint32 = 1

	// The bits above count the missing body bytes of a request that was answered
	// before its body arrived. They can hold fastparse.MaxBodyBytes.
	passOverShift = 1
)

// Receive handles the requests at the beginning of b.
func (l *lane) Receive(c *eventloop.Conn, b []byte, ended bool) (taken int) {
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
		tooLarge := r.Body.End-r.Body.Start > l.core.cfg.MaxBatchBytes
		switch {
		case verdict == fastparse.More && !ended && !tooLarge:
			if !l.rejectEarly(c, rest, r) {
				l.unfinished(c, r)
				return taken
			}
		case verdict != fastparse.Accept, tooLarge, l.core.cfg.Trace != nil && r.Traceparent.End > 0, l.cfg.Host != nil && !l.cfg.Host(r.Host.Of(rest)), !l.take(c, rest, r):
			c.Move()
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
func (l *lane) rejectEarly(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	if r.Body.End == 0 {
		return false
	}
	_, why := l.core.enter(visitor(c, b, r), l.begin().arrived)
	if why.kind == 0 && c.Owed() == 0 && r.Body.End-len(b) < l.core.memory.small && l.core.full() {
		why.kind = refusedOverloaded
	}
	if why.kind == 0 || why.kind == refusedDraining {
		return false
	}
	job := l.job()
	job.refusal = why
	l.settle(c, job, r.Close)
	return true
}

// visitor returns the client that sent the request r, which begins at b.
func visitor(c *eventloop.Conn, b []byte, r fastparse.Request) gate.Credentials {
	return gate.Credentials{Bytes: r.Authorization.Of(b), TLS: c.TLS(), Peer: c}
}

// rejectGuest rejects the readings of a guest, whose connection exceeds the bound.
// The full lane answers all other requests of guests.
func (l *lane) rejectGuest(c *eventloop.Conn, b []byte, ended bool) (taken int) {
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
func (l *lane) unfinished(c *eventloop.Conn, r fastparse.Request) {
	c.Need(r.Need)
	draining := l.core.draining.Load()
	switch {
	case r.Body.End == 0 && draining:
		c.Within(min(l.cfg.HeaderTimeout, drainHeaderTimeout))
	case r.Body.End == 0:
		c.Within(l.cfg.HeaderTimeout)
	case c.Owed() == 0 && draining:
		l.refuse(c, refusal{kind: refusedDraining}) // without reading the body
	case c.Owed() == 0 && l.core.full():
		l.refuse(c, refusal{kind: refusedOverloaded})
	default:
		c.Within(l.cfg.ReadTimeout)
	}
}

// GiveUp closes a connection whose request will not be completed. A client that has
// not sent a complete header gets no answer, as with net/http.
func (l *lane) GiveUp(c *eventloop.Conn, b []byte, why eventloop.Reason) {
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
func (l *lane) refuse(c *eventloop.Conn, why refusal) {
	job := l.job()
	job.refusal = why
	c.End()
	l.answerNow(c, job)
}

// answerNow answers a request that has nothing to commit, on a connection without
// pending answers.
func (l *lane) answerNow(c *eventloop.Conn, job *Job) {
	answer := job.Answer()
	c.Owe()
	l.date = l.clock.AppendDate(l.date[:0])
	l.out = answer.appendHTTP1(l.out[:0], http1(l.date, c.Ending()))
	c.Send(l.out, 1)
	if l.cfg.Observe != nil {
		l.cfg.Observe(answer.Status(), l.out, 0, c.TLSVersion())
	}
	l.trace(nil, job, answer.Status())
	l.release(job)
}

// begin returns the open turn.
func (l *lane) begin() *turn {
	if l.open == nil {
		l.open = l.unused(l.core.cfg.Now(), l.core.stalled())
	}
	return l.open
}

// take decodes the request r, which begins at b, into the open turn. It returns
// false if the full lane must handle the request.
func (l *lane) take(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	t := l.begin()
	job := l.job()
	job.auth, job.refusal = l.core.enter(visitor(c, b, r), t.arrived)
	switch {
	case job.refusal.kind != 0:
	case t.stalled || l.core.queue.full():
		job.refusal.kind = refusedOverloaded
	case !job.decodeAt(r.Body.Of(b), t.arrived):
	case len(job.entries) > l.core.cfg.MaxGroup:
		l.release(job) // it needs several groups, one after another
		return false
	case job.admit(len(job.entries)):
		if len(t.refs)+len(job.entries) > l.core.cfg.MaxGroup {
			l.submit()
			t = l.unused(t.arrived, t.stalled)
			l.open = t
		}
		t.refs = appendRefs(t.refs, job.entries)
	}
	l.settle(c, job, r.Close)
	return true
}

// settle puts a job into the open turn, or answers it immediately if it has nothing to
// commit and no earlier answer to wait for. closes reports whether the client asked to close
// the connection.
func (l *lane) settle(c *eventloop.Conn, job *Job, closes bool) {
	if closes || l.core.outlived(c.TLS(), l.open.arrived) {
		c.End()
	}
	if job.refusal.kind == refusedOverloaded {
		c.Pause(pauseFor(int64(l.loop.Paused())))
	}
	if !job.admitted() && c.Owed() == 0 {
		l.answerNow(c, job)
		return
	}
	c.Owe()
	l.open.requests = append(l.open.requests, request{c, job})
}

// Round submits the requests read in this turn to the committer.
func (l *lane) Round() {
	switch t := l.open; {
	case t == nil:
	case len(t.requests) == 0: // all were answered immediately
		l.open = nil
		t.reuse()
	default:
		l.submit()
		l.answerDone()
	}
	l.rest()
}

// submit hands the open turn to the committer.
func (l *lane) submit() {
	t := l.open
	l.open = nil
	if l.newest == nil {
		l.oldest = t
	} else {
		l.newest.next = t
	}
	l.newest = t
	if len(t.refs) == 0 {
		t.done.Store(true)
		return
	}
	if l.core.cfg.Trace != nil {
		t.submitted = l.core.cfg.Now()
	}
	if err := l.core.committer.Submit(t.refs, t); err != nil {
		t.flush.Err = err
		t.done.Store(true)
	}
}

// Done implements groupcommit.Waiter. It runs on the committer's goroutine.
func (t *turn) Done(f groupcommit.Flush) {
	t.flush = f
	t.done.Store(true)
	t.lane.loop.Wake()
}

// Woken answers the requests whose commits are done.
func (l *lane) Woken() {
	answered, took := l.answerDone()
	l.rest()
	if answered > 1 && l.oldest == nil {
		l.loop.Gather(min(took/4, maxGather))
	}
}

// maxGather bounds how long the lane waits for the next requests of the clients that it
// has just answered.
//
// Without this wait, clients that wait for their answers form two alternating halves: while
// the requests of one half are committed, those of the other are read, and groups are
// half as large as they could be. The lane waits for a quarter of the time that the last
// turn took, which adapts to the disk. It does not wait after a turn of one request, whose
// client may be alone.
const maxGather = 500 * time.Microsecond

// maxRest bounds how long the loop does not read its connections while a turn is
// committed.
const maxRest = 2 * time.Millisecond

// rest gathers requests for the next turn while one is committed.
func (l *lane) rest() {
	if l.oldest != nil {
		l.loop.Rest(maxRest)
	}
}

// answerDone answers the turns that are done, oldest first. It returns their number of
// requests, and how long the last one took.
func (l *lane) answerDone() (answered int, took time.Duration) {
	for l.oldest != nil && l.oldest.done.Load() {
		t := l.oldest
		answered += len(t.requests)
		if l.oldest = t.next; l.oldest == nil {
			l.newest = nil
		}
		took = l.answer(t)
		t.reuse()
	}
	return answered, took
}

// answer sends the answers of a turn, and returns how long it took from the
// arrival of the first request. The answers of one connection are adjacent
// and are sent together.
func (l *lane) answer(t *turn) (took time.Duration) {
	l.date = l.clock.AppendDate(l.date[:0])
	took = l.core.cfg.Now().Sub(t.arrived)
	l.core.queue.leave(len(t.refs)) // leave first: the clients may retry immediately
	out, answers := l.out[:0], 0
	for i := range t.requests {
		c, job := t.requests[i].conn, t.requests[i].job
		if t.flush.Err != nil && job.admitted() {
			job.refuse(t.flush.Err, false)
			job.lost = false // the committer has released the entries
		}
		answer := job.Answer()
		answers++
		before := len(out)
		if !c.Gone() {
			out = answer.appendHTTP1(out, http1(l.date, c.Ending() && c.Owed() == answers))
		}
		if l.cfg.Observe != nil {
			l.cfg.Observe(answer.Status(), out[before:], took, c.TLSVersion())
		}
		l.trace(t, job, answer.Status())
		l.release(job)
		if i+1 == len(t.requests) || t.requests[i+1].conn != c {
			c.Send(out, answers)
			out, answers = out[:0], 0
		}
	}
	if cap(out) <= maxKeptOut {
		l.out = out[:0]
	}
	return took
}

// job returns an unused job.
func (l *lane) job() *Job {
	if job := l.jobs.get(); job != nil {
		return job
	}
	return newJob(l.core, l.decoder)
}

// release takes a job back. Its answer is no longer valid.
func (l *lane) release(job *Job) {
	if job.reset() {
		l.jobs.put(job)
	}
}

// unused returns an empty turn.
func (l *lane) unused(arrived time.Time, stalled bool) *turn {
	t := l.turns
	if t == nil {
		t = &turn{lane: l}
	} else {
		l.turns, t.next = t.next, nil
	}
	t.arrived, t.stalled = arrived, stalled
	return t
}

// reuse empties a turn and returns it to its lane.
func (t *turn) reuse() {
	clear(t.refs)
	clear(t.requests)
	t.refs, t.requests = t.refs[:0], t.requests[:0]
	t.flush, t.submitted = groupcommit.Flush{}, time.Time{}
	t.done.Store(false)
	t.next = t.lane.turns
	t.lane.turns = t
}

// trace records an answered request if it is sampled or was slow. t is the request's turn, or
// nil if it was answered immediately. The phases are those of the turn, because the lane
// decodes, queues and commits all requests of a turn together.
func (l *lane) trace(t *turn, job *Job, status int) {
	tracer := l.core.cfg.Trace
	if tracer == nil {
		return
	}
	r := tracer.Begin(tracing.Parent{})
	r.End = l.core.cfg.Now()
	r.Start = r.End
	if t != nil {
		r.Start = t.arrived
	}
	if !tracer.Wants(r.Sampled, r.End.Sub(r.Start)) {
		return
	}
	r.Method, r.Route, r.Lane, r.Status = http.MethodPost, fastparse.Target, "fast", status
	if t != nil && job.admitted() && !t.submitted.IsZero() {
		r.Readings = len(job.entries)
		r.Phases[tracing.Decode] = tracing.Period{Start: t.arrived, End: t.submitted}
		if f := t.flush; f.Items > 0 {
			r.Group, r.Groups = f.Items, 1
			r.Phases[tracing.Queue] = tracing.Period{Start: t.submitted, End: f.Start}
			r.Phases[tracing.Commit] = tracing.Period{Start: f.Start, End: f.End}
		}
	}
	tracer.Record(&r)
}

// http1 returns the fields of a response that are not part of its answer.
func http1(date []byte, closes bool) reply.HTTP1 {
	m := reply.HTTP1{Date: date}
	if closes {
		m.Connection = "close"
	}
	return m
}
