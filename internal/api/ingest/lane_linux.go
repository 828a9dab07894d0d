package ingest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/eventloop"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Front speaks a protocol with the clients of a [Lane]. Its methods are called on the loop's
// goroutine and must not block.
type Front interface {
	// Receive and GiveUp are those of an eventloop.Handler. Receive passes messages to
	// Lane.Take and then to Lane.Settle or Lane.Release.
	Receive(c *eventloop.Conn, b []byte, ended bool) (taken int)
	GiveUp(c *eventloop.Conn, b []byte, why eventloop.Reason)

	// Answering is called before the answers of a turn are appended.
	Answering()

	// AppendAnswer appends the answer to a message, which has called Settle with m.Tag, and
	// returns its status in terms of HTTP, for traces; 0 is not traced. It appends nothing if the client is
	// Gone.
	AppendAnswer(dst []byte, m *Message) (answer []byte, status int)
}

// A Message waits for its answer.
//
// Ownership: the job's entries belong to the committer from submit until the turn
// is done. The peer may disconnect before; the Conn is kept until all of its
// answers were passed to it.
type Message struct {
	Conn *eventloop.Conn
	Job  *Job
	Tag  uint32        // of the front
	Took time.Duration // since it arrived; set for AppendAnswer
	Last bool          // the answer is the last one of the connection; set for AppendAnswer
}

// A Lane is the part of a front that one event loop runs. The messages that the
// loop reads in one turn are submitted to the committer in one call, or in several if
// they exceed a group. While they are committed, the loop reads the next ones.
//
// Everything except turn.Done runs on the loop's goroutine.
type Lane struct {
	Front   // whose Receive and GiveUp are those of the handler
	core    *Core
	loop    *eventloop.Loop
	method  string // for traces, like route
	route   string
	decoder *vitals.Decoder // for all jobs, which are decoded one after another

	open *turn // the turn being filled; nil means none

	// waiting has the turns with unanswered messages, oldest first. A message with
	// nothing to commit, such as a rejected one, waits in them only if earlier ones on its
	// connection do, so that rejections do not wait for the disk.
	//
	// Invariant: turns are answered in this order, the order in which their
	// messages arrived. So answers are in order on every connection; TestPipelined
	// checks it.
	waiting []*turn

	turns []*turn // unused ones
	jobs  jobList // unused ones
	out   []byte  // answers being sent to a connection
	now   Message // the one that answerNow answers
}

// NewLane returns a handler of a loop's connections, which speak the protocol of a front. The front may
// use the Lane once its first method is called. method and route name the messages in traces.
func NewLane(c *Core, loop *eventloop.Loop, method, route string, front func(*Lane) Front) *Lane {
	l := &Lane{core: c, loop: loop, method: method, route: route, decoder: c.newDecoder()}
	l.Front = front(l)
	return l
}

// A turn holds the messages that the loop has read in one turn, or as many of them as
// fit into one call of the committer.
type turn struct {
	lane     *Lane
	refs     []*storage.Entry // of all jobs that have something to commit
	messages []Message
	arrived  time.Time
	stalled  bool // the store was stalled when the turn began: all its readings are rejected

	submitted time.Time // only with Config.Trace

	// flush is the result of the commit. It is written before done is set, and read
	// afterwards.
	flush groupcommit.Flush
	done  atomic.Bool
}

// begin returns the open turn.
func (l *Lane) begin() *turn {
	if l.open == nil {
		l.open = l.unused(l.core.cfg.Now(), l.core.stalled())
	}
	return l.open
}

// Take decodes a message into the open turn. It returns false if the message
// must be handled outside of the lane, because it needs several groups. Otherwise the caller must
// Settle or, if nothing of it was admitted, Release the job.
func (l *Lane) Take(d *Delivery) (job *Job, ok bool) {
	t := l.begin()
	job = l.Job()
	d.to(job)
	job.auth, job.refusal = l.core.enter(d.From, t.arrived)
	switch {
	case job.refusal.kind != 0:
	case t.stalled || l.core.queue.full():
		job.refusal.kind = refusedOverloaded
	case !job.decodeAt(d.Message, t.arrived):
	case len(job.entries) > l.core.cfg.MaxGroup:
		l.Release(job) // it needs several groups, one after another
		return nil, false
	case job.admit(len(job.entries)):
		if len(t.refs)+len(job.entries) > l.core.cfg.MaxGroup {
			l.submit()
			t = l.unused(t.arrived, t.stalled)
			l.open = t
		}
		t.refs = appendRefs(t.refs, job.entries)
	}
	return job, true
}

// Settle puts the message of a job that Take returned into the open turn, or answers it immediately if
// it has nothing to commit and no earlier answer to wait for. tag is for the front.
func (l *Lane) Settle(c *eventloop.Conn, job *Job, tag uint32) {
	if !job.Admitted() && c.Owed() == 0 {
		l.answerNow(c, job, tag)
		return
	}
	c.Owe()
	t := l.begin()
	t.messages = append(t.messages, Message{Conn: c, Job: job, Tag: tag})
}

// answerNow answers a message that has nothing to commit, on a connection without
// pending answers.
func (l *Lane) answerNow(c *eventloop.Conn, job *Job, tag uint32) {
	c.Owe()
	l.Front.Answering()
	l.now = Message{Conn: c, Job: job, Tag: tag, Last: c.Ending()}
	out, status := l.Front.AppendAnswer(l.out[:0], &l.now)
	l.now, l.out = Message{}, out
	c.Send(out, 1)
	l.trace(nil, job, status)
	l.Release(job)
}

// Round submits the messages read in this turn to the committer.
func (l *Lane) Round() {
	switch t := l.open; {
	case t == nil:
	case len(t.messages) == 0: // all were answered immediately
		l.open = nil
		t.reuse()
	default:
		l.submit()
		l.answerDone()
	}
	l.rest()
}

// submit hands the open turn to the committer.
func (l *Lane) submit() {
	t := l.open
	l.open = nil
	l.waiting = append(l.waiting, t)
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

// Woken answers the messages whose commits are done.
func (l *Lane) Woken() {
	answered, took := l.answerDone()
	l.rest()
	if answered > 1 && len(l.waiting) == 0 {
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
func (l *Lane) rest() {
	if len(l.waiting) > 0 {
		l.loop.Rest(maxRest)
	}
}

// answerDone answers the turns that are done, oldest first. It returns their number of
// messages, and how long the last one took.
func (l *Lane) answerDone() (answered int, took time.Duration) {
	for len(l.waiting) > 0 && l.waiting[0].done.Load() {
		t := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		answered += len(t.messages)
		took = l.answer(t)
		t.reuse()
	}
	return answered, took
}

// answer sends the answers of a turn, and returns how long it took from the
// arrival of the first message. The answers of one connection are adjacent
// and are sent together.
func (l *Lane) answer(t *turn) (took time.Duration) {
	l.Front.Answering()
	took = l.core.cfg.Now().Sub(t.arrived)
	l.core.queue.leave(len(t.refs)) // leave first: the clients may retry immediately
	out, answers := l.out[:0], 0
	for i := range t.messages {
		m := &t.messages[i]
		c, job := m.Conn, m.Job
		if t.flush.Err != nil && job.Admitted() {
			job.refuse(t.flush.Err, false)
			job.lost = false // the committer has released the entries
		}
		answers++
		m.Took, m.Last = took, c.Ending() && c.Owed() == answers
		var status int
		out, status = l.Front.AppendAnswer(out, m)
		l.trace(t, job, status)
		l.Release(job)
		if i+1 == len(t.messages) || t.messages[i+1].Conn != c {
			c.Send(out, answers)
			out, answers = out[:0], 0
		}
	}
	if cap(out) <= maxKeptOut {
		l.out = out[:0]
	}
	return took
}

// Job returns an unused job, for a message without readings.
func (l *Lane) Job() *Job {
	if job := l.jobs.get(); job != nil {
		return job
	}
	return newJob(l.core, l.decoder)
}

// Release takes a job back. Its answer is no longer valid.
func (l *Lane) Release(job *Job) {
	if job.reset() {
		l.jobs.put(job)
	}
}

// unused returns an empty turn.
func (l *Lane) unused(arrived time.Time, stalled bool) *turn {
	if len(l.turns) == 0 {
		l.turns = append(l.turns, &turn{lane: l})
	}
	last := len(l.turns) - 1
	t := l.turns[last]
	l.turns = l.turns[:last]
	t.arrived, t.stalled = arrived, stalled
	return t
}

// reuse empties a turn and returns it to its lane.
func (t *turn) reuse() {
	clear(t.refs)
	clear(t.messages)
	t.refs, t.messages = t.refs[:0], t.messages[:0]
	t.flush, t.submitted = groupcommit.Flush{}, time.Time{}
	t.done.Store(false)
	t.lane.turns = append(t.lane.turns, t)
}

// trace records an answered message if it is sampled or was slow. t is the request's turn, or
// nil if it was answered immediately. The phases are those of the turn, because the lane
// decodes, queues and commits all messages of a turn together.
func (l *Lane) trace(t *turn, job *Job, status int) {
	tracer := l.core.cfg.Trace
	if tracer == nil || status == 0 {
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
	r.Method, r.Route, r.Lane, r.Status = l.method, l.route, "fast", status
	if t != nil && job.Admitted() && !t.submitted.IsZero() {
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
