package ingest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

// A flush is what the committer's last call of the store was.
type flush struct {
	tracing.Period
	readings int
}

// timed returns the function that the committer flushes with. Where requests are
// traced it notes what the last flush was, for those who are told next: a Waiter's
// Done runs on the committer's goroutine, as this does.
func (c *Core) timed(appender Appender) func([]*storage.Entry) error {
	if c.cfg.Trace == nil {
		return appender.Append
	}
	return func(group []*storage.Entry) error {
		c.lastFlush = flush{tracing.Period{Start: c.cfg.Now()}, len(group)}
		err := appender.Append(group)
		c.lastFlush.End = c.cfg.Now()
		return err
	}
}

// A tracedCall is the Waiter of one call.
type tracedCall struct {
	core  *Core
	flush flush
	done  chan error // of one place; what is sent publishes flush
}

func (w *tracedCall) Done(err error) {
	w.flush = w.core.lastFlush
	w.done <- err
}

// commit commits what one group takes, as groupcommit.Committer.Commit does, and
// notes in j.trace, if there is one, when it waited and when it was committed.
func (j *Job) commit(ctx context.Context, refs []*storage.Entry) error {
	c, t := j.core, j.trace
	if t == nil {
		return c.committer.Commit(ctx, refs)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", groupcommit.ErrNotWritten, err)
	}
	t.Readings += len(refs)
	if t.Groups == 0 {
		t.begins(tracing.Queue, c.cfg.Now)
	}
	w := &tracedCall{core: c, done: make(chan error, 1)}
	if err := c.committer.Submit(refs, w); err != nil {
		return err
	}
	select {
	case err := <-w.done:
		t.flushed(w.flush)
		return err
	case <-ctx.Done():
	}
	// Both may have happened. The answer says more.
	select {
	case err := <-w.done:
		t.flushed(w.flush)
		return err
	default:
		return ctx.Err()
	}
}

// A trace is what the Core fills in of a tracing.Request. The nil trace, which is
// that of a request that nobody records, takes no notes.
type trace tracing.Request

// traceOf returns the trace of a request, or nil.
func (c *Core) traceOf(r *http.Request) *trace {
	if c.cfg.Trace == nil {
		return nil
	}
	return (*trace)(tracing.Of(r))
}

// flushed notes a group. Of several, the phases reach from the first to the last.
func (t *trace) flushed(f flush) {
	if t.Groups == 0 {
		t.Phases[tracing.Queue].End = f.Start
		t.Phases[tracing.Commit].Start = f.Start
	}
	t.Phases[tracing.Commit].End = f.End
	t.Group = f.readings
	t.Groups++
}

// begins notes that a phase begins.
func (t *trace) begins(p tracing.Phase, now func() time.Time) {
	if t != nil {
		t.Phases[p].Start = now()
	}
}

// ends notes that a phase has ended.
func (t *trace) ends(p tracing.Phase, now func() time.Time) {
	if t != nil {
		t.Phases[p].End = now()
	}
}

// moves reports whether a request goes to the full lane for the sake of the trace
// that it belongs to.
func (l *lane) moves(r fastparse.Request) bool {
	return l.core.cfg.Trace != nil && r.Traceparent.End > 0
}

// trace records a request that is answered now, if it is sampled or was slow. Its
// group is nil if it was answered at once. The phases are those of the group: the
// lane decodes, queues and commits what came in one turn together.
func (l *lane) trace(g *group, job *Job, status int) {
	t := l.core.cfg.Trace
	if t == nil {
		return
	}
	r := t.Begin(tracing.Parent{})
	r.End = l.core.cfg.Now()
	r.Start = r.End
	if g != nil {
		r.Start = g.arrived
	}
	if !t.Wants(r.Sampled, r.End.Sub(r.Start)) {
		return
	}
	r.Method, r.Route, r.Lane, r.Status = http.MethodPost, fastparse.Target, "fast", status
	if g != nil && job.admitted() && !g.submitted.IsZero() {
		r.Readings = len(job.refs)
		r.Phases[tracing.Decode] = tracing.Period{Start: g.arrived, End: g.submitted}
		if g.flush.readings > 0 {
			r.Group, r.Groups = g.flush.readings, 1
			r.Phases[tracing.Queue] = tracing.Period{Start: g.submitted, End: g.flush.Start}
			r.Phases[tracing.Commit] = g.flush.Period
		}
	}
	t.Record(&r)
}
