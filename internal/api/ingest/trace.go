package ingest

import (
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/storage/groupcommit"
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

// newTrace returns the trace of a message that did not come over HTTP, or nil. It began at a time, or now if that is
// zero.
func newTrace(c *Core, since time.Time) *trace {
	if c.cfg.Trace == nil {
		return nil
	}
	t := trace(c.cfg.Trace.Begin(tracing.Parent{}))
	if t.Start = since; since.IsZero() {
		t.Start = c.cfg.Now()
	}
	return &t
}

// record records the trace of a message.
func (t *trace) record(c *Core, d *Delivery) {
	if t != nil && t.Status != 0 {
		t.Method, t.Route, t.Lane, t.End = d.Method, d.Route, "full", c.cfg.Now()
		c.cfg.Trace.Record((*tracing.Request)(t))
	}
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
