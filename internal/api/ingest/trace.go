package ingest

import (
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
)

// A trace is a tracing.Request that the Core fills in. The nil trace, that of a request that is
// not recorded, ignores all calls.
type trace tracing.Request

// traceOf returns the trace of a request, or nil.
func (c *Core) traceOf(r *http.Request) *trace {
	if c.cfg.Trace == nil {
		return nil
	}
	return (*trace)(tracing.Of(r))
}

// flushed records a group with the given number of the request's readings. With several
// groups, the phases extend from the first to the last.
func (t *trace) flushed(f groupcommit.Flush, readings int) {
	if t == nil {
		return
	}
	t.Readings += readings
	if f.Items == 0 {
		return // it was not flushed, or the outcome is unknown
	}
	if t.Groups == 0 {
		t.Phases[tracing.Queue].End = f.Start
		t.Phases[tracing.Commit].Start = f.Start
	}
	t.Phases[tracing.Commit].End = f.End
	t.Group = f.Items
	t.Groups++
}

// begins records the start of a phase.
func (t *trace) begins(p tracing.Phase, now func() time.Time) {
	if t != nil {
		t.Phases[p].Start = now()
	}
}

// ends records the end of a phase.
func (t *trace) ends(p tracing.Phase, now func() time.Time) {
	if t != nil {
		t.Phases[p].End = now()
	}
}

// moves reports whether a request is moved to the full lane because it belongs to a trace.
func (l *lane) moves(r fastparse.Request) bool {
	return l.core.cfg.Trace != nil && r.Traceparent.End > 0
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
