package ingest

import (
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// A lane is the part of a FastLane that one event loop runs. What the loop reads
// in one turn is one group (or several, where one would be too large), which the
// committer is given whole; while it is committed, the loop reads the next.
//
// Everything but group.Done runs on the loop's goroutine.
type lane struct {
	core    *Core
	loop    *eventloop.Loop
	cfg     *FastLaneConfig
	decoder *vitals.Decoder // for all jobs: decoding ends before another begins
	clock   *reply.Clock

	open *group // is being filled; nil: none

	// oldest to newest are the groups whose requests are not answered. A request
	// that has nothing to commit waits with them only if it stands behind others
	// on its connection: a refusal must not wait for a disk.
	//
	// Invariant: they are answered in this order, the order in which their
	// requests came. So answers are in order on every connection; TestPipelined
	// checks it.
	oldest, newest *group

	groups *group // unused ones, linked by next
	jobs   []*Job // unused ones
	kept   int    // readings that jobs have room for; one without room counts as one
	out    []byte // answers under way to a connection
	date   []byte
}

// A group is the requests of one turn of the loop.
type group struct {
	lane     *lane
	refs     []*storage.Entry // of all jobs that have something to commit
	requests []request
	arrived  time.Time
	stalled  bool // the store was, when the group was opened: all its readings are refused
	next     *group

	submitted time.Time // only with Config.Trace

	// err is how the commit ended, and flush what it was. They are written before
	// done is set, and read after.
	err   error
	flush flush
	done  atomic.Bool
}

// A request waits for its answer.
//
// Ownership: the job's entries belong to the committer from submit until the
// group is done. The Conn may have lost its peer meanwhile; it is kept as long as
// an answer is owed.
type request struct {
	conn *eventloop.Conn
	job  *Job
}

func newLane(c *Core, loop *eventloop.Loop, cfg *FastLaneConfig) *lane {
	return &lane{core: c, loop: loop, cfg: cfg, decoder: c.newDecoder(), clock: reply.NewClock(time.Now)}
}

// In Conn.User stands what is to be passed over before the next request.
const (
	// answeredPost is set when a request was taken, until the bytes behind it are
	// dropped that net/http would drop.
	answeredPost uint32 = 1

	// The bits above count the bytes that are missing of the body of a request that
	// was answered without it. They hold fastparse.MaxBodyBytes.
	passOverShift = 1
)

// Receive takes the requests at the front of b.
func (l *lane) Receive(c *eventloop.Conn, b []byte, ended bool) (taken int) {
	if c.Guest() {
		return l.seeOff(c, b, ended)
	}
	for taken < len(b) && !c.Full() {
		rest := b[taken:]
		if missing := int(c.User >> passOverShift); missing > 0 {
			n := min(missing, len(rest))
			taken += n
			c.User -= uint32(n) << passOverShift
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
			if !l.turnAway(c, rest, r) {
				l.unfinished(c, r)
				return taken
			}
		case verdict != fastparse.Accept, tooLarge, l.moves(r), !l.take(c, rest, r):
			c.Move()
			return taken
		}
		here := min(r.Body.End, len(rest))
		taken += here
		c.User = answeredPost | uint32(r.Body.End-here)<<passOverShift
	}
	return taken
}

// turnAway answers a request of which the header is there and the body is not, if
// who sent it may not write. Its body is then passed over.
func (l *lane) turnAway(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	if r.Body.End == 0 || l.core.cfg.Gate == nil || l.core.draining.Load() {
		return false
	}
	_, why := l.core.enter(visitor(c, b, r), l.group().arrived)
	if why.kind == 0 {
		return false
	}
	job := l.job()
	job.refusal = why
	l.settle(c, job, r.Close)
	return true
}

// visitor says who sent the request r, which begins at b.
func visitor(c *eventloop.Conn, b []byte, r fastparse.Request) gate.Visitor {
	return gate.Visitor{Bytes: r.Authorization.Of(b), Peer: c}
}

// seeOff refuses the readings of a guest, for whose connection there is no room.
// The full lane answers what else a guest may want.
func (l *lane) seeOff(c *eventloop.Conn, b []byte, ended bool) (taken int) {
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
		l.cfg.Observe(answer.Status(), l.out, 0)
	}
	l.trace(nil, job, answer.Status())
	l.release(job)
}

// group returns the open group.
func (l *lane) group() *group {
	if l.open == nil {
		l.open = l.unused()
		l.open.arrived = l.core.cfg.Now()
		l.open.stalled = l.core.stalled()
	}
	return l.open
}

// take decodes the request r, which begins at b, into the open group. It reports
// false for one that the full lane must take.
func (l *lane) take(c *eventloop.Conn, b []byte, r fastparse.Request) bool {
	g := l.group()
	job := l.job()
	if l.core.draining.Load() {
		job.refusal = refusal{kind: refusedDraining}
	} else if l.core.cfg.Gate != nil {
		job.permitted, job.refusal = l.core.enter(visitor(c, b, r), g.arrived)
	}
	switch {
	case job.refusal.kind != 0:
	case g.stalled || l.core.room.full():
		job.refusal = refusal{kind: refusedOverloaded}
	case !job.decodeAt(r.Body.Of(b), g.arrived):
	case len(job.refs) > l.core.cfg.MaxGroup:
		l.release(job) // it takes several groups, one after another
		return false
	case !l.core.room.admit(len(job.refs)):
		job.refusal = refusal{kind: refusedOverloaded}
	case !job.charge():
		l.core.room.leave(len(job.refs))
	default:
		if len(g.refs)+len(job.refs) > l.core.cfg.MaxGroup {
			arrived, stalled := g.arrived, g.stalled
			l.submit()
			g = l.unused()
			g.arrived, g.stalled = arrived, stalled
			l.open = g
		}
		g.refs = append(g.refs, job.refs...)
	}
	l.settle(c, job, r.Close)
	return true
}

// settle puts a job into the open group, or answers it at once if it has nothing to
// commit and nothing to wait for. closes says that the client wants no further one.
func (l *lane) settle(c *eventloop.Conn, job *Job, closes bool) {
	if closes {
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
	switch g := l.open; {
	case g == nil:
	case len(g.requests) == 0: // all were answered at once
		l.open = nil
		l.reuse(g)
	default:
		l.submit()
		l.answerDone()
	}
	l.rest()
}

// submit hands the open group to the committer, behind the others.
func (l *lane) submit() {
	g := l.open
	l.open = nil
	if l.newest == nil {
		l.oldest = g
	} else {
		l.newest.next = g
	}
	l.newest = g
	if len(g.refs) == 0 {
		g.done.Store(true)
		return
	}
	if l.core.cfg.Trace != nil {
		g.submitted = l.core.cfg.Now()
	}
	if err := l.core.committer.Submit(g.refs, g); err != nil {
		g.err = err
		g.done.Store(true)
	}
}

// Done is told by the committer that the group is durable, or why not. It runs on
// the committer's goroutine.
func (g *group) Done(err error) {
	g.err, g.flush = err, g.lane.core.lastFlush
	g.done.Store(true)
	g.lane.loop.Wake()
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
// that the last group took, so that it scales with the disk, and not behind a group
// of one, whose client may be alone.
const maxGather = 500 * time.Microsecond

// maxRest bounds how long the loop leaves its connections alone while a group is
// committed.
const maxRest = 2 * time.Millisecond

// rest lets the next group gather while one is committed.
func (l *lane) rest() {
	if l.oldest != nil {
		l.loop.Rest(maxRest)
	}
}

// answerDone answers the groups that are done, oldest first. It returns how many
// requests these had, and how long the last group took.
func (l *lane) answerDone() (answered int, took time.Duration) {
	for l.oldest != nil && l.oldest.done.Load() {
		g := l.oldest
		answered += len(g.requests)
		if l.oldest = g.next; l.oldest == nil {
			l.newest = nil
		}
		took = l.answer(g)
		l.reuse(g)
	}
	return answered, took
}

// answer sends the answers of a group, and returns how long it took from the
// arrival of the first request. The answers of one connection stand side by side
// and are sent together.
func (l *lane) answer(g *group) (took time.Duration) {
	l.date = l.clock.AppendDate(l.date[:0])
	took = l.core.cfg.Now().Sub(g.arrived)
	if len(g.refs) > 0 {
		l.core.room.leave(len(g.refs)) // before the first answer: who is answered may come again at once
	}
	out, answers := l.out[:0], 0
	for i := range g.requests {
		c, job := g.requests[i].conn, g.requests[i].job
		if g.err != nil && job.admitted() {
			job.refuse(g.err)
			job.lost = false // the committer holds nothing any more
		}
		answer := job.Answer()
		answers++
		before := len(out)
		if !c.Gone() {
			out = answer.appendHTTP1(out, http1(l.date, c.Ending() && c.Owed() == answers))
		}
		if l.cfg.Observe != nil {
			l.cfg.Observe(answer.Status(), out[before:], took)
		}
		l.trace(g, job, answer.Status())
		l.release(job)
		if i+1 == len(g.requests) || g.requests[i+1].conn != c {
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
	if n := len(l.jobs); n > 0 {
		job := l.jobs[n-1]
		l.jobs = l.jobs[:n-1]
		l.kept -= max(cap(job.batch.Readings), 1)
		return job
	}
	return &Job{core: l.core, decoder: l.decoder}
}

// release takes a job back. What its answer returned must not be used any more.
func (l *lane) release(job *Job) {
	room := max(cap(job.batch.Readings), 1)
	if l.kept+room <= maxKeptRoom && job.reset() {
		l.kept += room
		l.jobs = append(l.jobs, job)
	}
}

// unused returns an empty group.
func (l *lane) unused() *group {
	g := l.groups
	if g == nil {
		return &group{lane: l}
	}
	l.groups, g.next = g.next, nil
	return g
}

// reuse empties a group and keeps it.
func (l *lane) reuse(g *group) {
	clear(g.refs)
	clear(g.requests)
	g.refs, g.requests = g.refs[:0], g.requests[:0]
	g.err, g.flush, g.submitted = nil, flush{}, time.Time{}
	g.done.Store(false)
	g.next = l.groups
	l.groups = g
}
