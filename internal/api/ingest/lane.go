package ingest

import (
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A lane is the part of a FastLane that one event loop runs. What the loop reads
// in one turn goes to the committer in one call (or several, where one would be too
// large); while it is committed, the loop reads the next.
//
// Everything but turn.Done runs on the loop's goroutine.
type lane struct {
	core    *Core
	loop    *eventloop.Loop
	cfg     *FastLaneConfig
	decoder *vitals.Decoder // for all jobs: decoding ends before another begins
	clock   *reply.Clock

	open *turn // is being filled; nil: none

	// oldest to newest are the turns whose requests are not answered. A request
	// that has nothing to commit waits with them only if it stands behind others
	// on its connection: a refusal must not wait for a disk.
	//
	// Invariant: they are answered in this order, the order in which their
	// requests came. So answers are in order on every connection; TestPipelined
	// checks it.
	oldest, newest *turn

	turns *turn   // unused ones, linked by next
	jobs  jobList // unused ones
	out   []byte  // answers under way to a connection
	date  []byte
}

// A turn is the requests that one turn of the loop has read, or as many of them as
// one call of the committer takes.
type turn struct {
	lane     *lane
	refs     []*storage.Entry // of all jobs that have something to commit
	requests []request
	arrived  time.Time
	stalled  bool // the store was, when the turn began: all its readings are refused
	next     *turn

	submitted time.Time // only with Config.Trace

	// flush is how the commit ended. It is written before done is set, and read
	// after.
	flush groupcommit.Flush
	done  atomic.Bool
}

// A request waits for its answer.
//
// Ownership: the job's entries belong to the committer from submit until the turn
// is done. The Conn may have lost its peer meanwhile; it is kept as long as an
// answer is owed.
type request struct {
	conn *eventloop.Conn
	job  *Job
}

func newLane(c *Core, loop *eventloop.Loop, cfg *FastLaneConfig) *lane {
	return &lane{core: c, loop: loop, cfg: cfg, decoder: c.newDecoder(), clock: reply.NewClock(time.Now)}
}

// In Conn.User stands what is to be passed over before the next request.
const (
	// answeredPost is set when a request was taken, until the bytes after it are
	// dropped that net/http would drop.
	answeredPost uint32 = 1

	// The bits above count the bytes that are missing of the body of a request that
	// was answered without it. They hold fastparse.MaxBodyBytes.
	passOverShift = 1
)

// Receive takes the requests at the front of b.
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
		// The full lane refuses such a body without waiting for it.
		tooLarge := r.Body.End-r.Body.Start > l.core.cfg.MaxBatchBytes
		switch {
		case verdict == fastparse.More && !ended && !tooLarge:
			if !l.rejectEarly(c, rest, r) {
				l.unfinished(c, r)
				return taken
			}
		case verdict != fastparse.Accept, tooLarge, l.moves(r), l.cfg.Host != nil && !l.cfg.Host(r.Host.Of(rest)), !l.take(c, rest, r):
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

// rejectEarly answers a request of which the header is there and the body is not, if
// its client may not send it. The body is then passed over.
func (l *lane) rejectEarly(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	if r.Body.End == 0 || l.core.cfg.Gate == nil {
		return false
	}
	_, why := l.core.enter(visitor(c, b, r), l.begin().arrived)
	if why.kind == 0 || why.kind == refusedDraining {
		return false
	}
	job := l.job()
	job.refusal = why
	l.settle(c, job, r.Close)
	return true
}

// visitor returns who sent the request r, which begins at b.
func visitor(c *eventloop.Conn, b []byte, r fastparse.Request) gate.Credentials {
	return gate.Credentials{Bytes: r.Authorization.Of(b), TLS: c.TLS(), Peer: c}
}

// rejectGuest rejects the readings of a guest, for whose connection there is no room.
// The full lane answers what else a guest may want.
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

// drainHeaderTimeout is the time for a header, from its first byte on, when the
// server drains: the request will be refused.
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
		l.refuse(c, refusal{kind: refusedDraining}) // a body is not read to be refused
	case c.Owed() == 0 && l.core.full():
		l.refuse(c, refusal{kind: refusedOverloaded})
	default:
		c.Within(l.cfg.ReadTimeout)
	}
}

// GiveUp ends a connection whose request will not become whole. A client that has
// not sent a whole header is told nothing, as net/http does.
func (l *lane) GiveUp(c *eventloop.Conn, b []byte, why eventloop.Reason) {
	r, _ := fastparse.Recognise(b)
	switch {
	case c.Owed() > 0: // what the client is told would be taken for another answer
	case why == eventloop.NoMemory:
		l.refuse(c, refusal{kind: refusedOverloaded})
	case r.Body.End > 0:
		l.refuse(c, refusal{kind: refusedTimeout})
	}
}

// refuse answers a request that was not read whole, and ends its connection. No
// other answer may be owed.
func (l *lane) refuse(c *eventloop.Conn, why refusal) {
	job := l.job()
	job.refusal = why
	c.End()
	l.answerNow(c, job)
}

// answerNow answers a request that has nothing to commit, on a connection on
// which no other answer is owed.
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

// take decodes the request r, which begins at b, into the open turn. It reports
// false for one that the full lane must take.
func (l *lane) take(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	t := l.begin()
	job := l.job()
	job.permitted, job.refusal = l.core.enter(visitor(c, b, r), t.arrived)
	switch {
	case job.refusal.kind != 0:
	case t.stalled || l.core.queue.full():
		job.refusal.kind = refusedOverloaded
	case !job.decodeAt(r.Body.Of(b), t.arrived):
	case len(job.entries) > l.core.cfg.MaxGroup:
		l.release(job) // it takes several groups, one after another
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

// settle puts a job into the open turn, or answers it at once if it has nothing to
// commit and nothing to wait for. closes says that the client wants no further one.
func (l *lane) settle(c *eventloop.Conn, job *Job, closes bool) {
	if closes || l.core.outlived(c.TLS(), l.open.arrived) {
		c.End()
	}
	if job.refusal.kind == refusedOverloaded {
		l.pause(c)
	}
	if !job.admitted() && c.Owed() == 0 {
		l.answerNow(c, job)
		return
	}
	c.Owe()
	l.open.requests = append(l.open.requests, request{c, job})
}

// Round gives the committer what was read in this turn.
func (l *lane) Round() {
	switch t := l.open; {
	case t == nil:
	case len(t.requests) == 0: // all were answered at once
		l.open = nil
		l.reuse(t)
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

// Woken answers what is done.
func (l *lane) Woken() {
	answered, took := l.answerDone()
	l.rest()
	if answered > 1 && l.oldest == nil {
		l.loop.Gather(min(took/4, maxGather))
	}
}

// maxGather bounds how long the lane waits for those whom it has just answered.
//
// Clients that wait for their answers fall into two halves that take turns: while
// the requests of one are committed, those of the other are read, and groups are
// half as large as they could be. So the lane waits a moment: a quarter of the time
// that the last turn took, so that it scales with the disk, and not after a turn of
// one request, whose client may be alone.
const maxGather = 500 * time.Microsecond

// maxRest bounds how long the loop leaves its connections alone while a turn is
// committed.
const maxRest = 2 * time.Millisecond

// rest lets the next turn gather while one is committed.
func (l *lane) rest() {
	if l.oldest != nil {
		l.loop.Rest(maxRest)
	}
}

// answerDone answers the turns that are done, oldest first. It returns how many
// requests these had, and how long the last one took.
func (l *lane) answerDone() (answered int, took time.Duration) {
	for l.oldest != nil && l.oldest.done.Load() {
		t := l.oldest
		answered += len(t.requests)
		if l.oldest = t.next; l.oldest == nil {
			l.newest = nil
		}
		took = l.answer(t)
		l.reuse(t)
	}
	return answered, took
}

// answer sends the answers of a turn, and returns how long it took from the
// arrival of the first request. The answers of one connection stand side by side
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
			job.lost = false // the committer holds nothing any more
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
	return &Job{core: l.core, decoder: l.decoder}
}

// release takes a job back. What its answer returned must not be used any more.
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

// reuse empties a turn and keeps it.
func (l *lane) reuse(t *turn) {
	clear(t.refs)
	clear(t.requests)
	t.refs, t.requests = t.refs[:0], t.requests[:0]
	t.flush, t.submitted = groupcommit.Flush{}, time.Time{}
	t.done.Store(false)
	t.next = l.turns
	l.turns = t
}
