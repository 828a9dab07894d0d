package ingest

import (
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

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

// flushed notes a group that holds so many readings of the request. Of several, the
// phases reach from the first to the last.
func (t *trace) flushed(f groupcommit.Flush, readings int) {
	if t == nil {
		return
	}
	t.Readings += readings
	if f.Items == 0 {
		return // it was not flushed, or that is not known
	}
	if t.Groups == 0 {
		t.Phases[tracing.Queue].End = f.Start
		t.Phases[tracing.Commit].Start = f.Start
	}
	t.Phases[tracing.Commit].End = f.End
	t.Group = f.Items
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
// turn is nil if it was answered at once. The phases are those of the turn: the lane
// decodes, queues and commits what came in it together.
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
