package alert

import (
	"cmp"
	"context"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A part is the part of an episode that lies in one assignment of its device, or in one span of nobody.
type part struct {
	// ResolvedUnixMs is not after the end of the span, if that had come when the replay ended. FiredUnixMs is 0 if the
	// part had ended before the alert was reported.
	Episode
	device  vitals.Name
	subject storage.Subject
}

// newestPart orders parts, the newest first.
func newestPart(a, b part) int {
	return cmp.Or(cmp.Compare(b.SinceUnixMs, a.SinceUnixMs), cmp.Compare(a.Rule.Name, b.Rule.Name))
}

// parts divides the episodes where assignments of the device begin and end; all are these. An alert about values has
// parts only in the spans in which a value was measured that belongs to it. Parts that ended before fromUnixMs are left
// out, and the newest come first. See [present], which does the same for active alerts.
func (p *Replayed) parts(ctx context.Context, all []storage.Assignment, fromUnixMs int64) (parts []part, err error) {
	for i := range p.Episodes {
		e := &p.Episodes[i]
		next := p.evidence(e)
		for at, more := e.SinceUnixMs, true; more && err == nil; err = interrupted(ctx) {
			span := storage.SpanAt(all, at)
			some := e.within(&span, p.untilUnixMs)
			some.device = p.history.summary.Name
			if some.ResolvedUnixMs == 0 || some.ResolvedUnixMs >= fromUnixMs {
				parts = append(parts, some)
			}
			at, more = next(span.ToUnixMs)
		}
	}
	slices.SortStableFunc(parts, newestPart)
	return parts, err
}

func (p *part) listed(device vitals.Name, place roster.Device) listed {
	a := Alert{Rule: p.Rule, Device: device, SinceUnixMs: p.SinceUnixMs, EndedUnixMs: p.ResolvedUnixMs, Place: place}
	l := a.listed()
	if l.Subject = string(p.subject); p.FiredUnixMs != 0 {
		l.Fired = utc(p.FiredUnixMs)
	}
	return l
}

// within returns the part of an episode in a span. untilUnixMs is when the replay ended.
func (e *Episode) within(span *storage.Assignment, untilUnixMs int64) part {
	p := part{Episode: *e, subject: span.Subject}
	if p.ResolvedUnixMs == 0 && span.ToUnixMs <= untilUnixMs || span.ToUnixMs < p.ResolvedUnixMs {
		p.ResolvedUnixMs = span.ToUnixMs
	}
	if p.SinceUnixMs < span.FromUnixMs { // it began before, and what was before is not of this span
		p.SinceUnixMs, p.FiredUnixMs = span.FromUnixMs, max(p.FiredUnixMs, span.FromUnixMs)
		if p.ResolvedUnixMs != 0 { // by the server's clock, which may be behind the device's
			p.ResolvedUnixMs = max(p.ResolvedUnixMs, p.SinceUnixMs)
		}
	}
	if p.ResolvedUnixMs != 0 && p.ResolvedUnixMs < p.FiredUnixMs {
		p.FiredUnixMs = 0
	}
	return p
}

// evidence returns a function that returns the first time at or after another one at which an episode has evidence: the
// silence, or a value that prolongs it. The times must not decrease.
func (p *Replayed) evidence(e *Episode) func(fromUnixMs int64) (unixMs int64, found bool) {
	end := p.untilUnixMs
	if e.ResolvedUnixMs != 0 {
		end = e.ResolvedUnixMs
	}
	if e.Rule.Silent != 0 {
		return func(fromUnixMs int64) (int64, bool) { return fromUnixMs, fromUnixMs < end }
	}
	h, i, last := p.history, p.history.at(e.SinceUnixMs), e.SinceUnixMs
	return func(fromUnixMs int64) (int64, bool) {
		for ; fromUnixMs <= h.summary.NewestUnixMs && i < len(h.records); i++ {
			v, has := h.value(i, e.Rule.Sign)
			at, met := h.records[i].unixMs, has && e.Rule.Met.Contains(v)
			switch {
			case !has || h.records[i].receivedUnixMs > end: // what arrived after the end did not prolong it
				continue
			case at > e.newestUnixMs && (!met || at-last >= Lasts.Milliseconds()):
				i = len(h.records)
				return 0, false
			case !met:
				continue
			}
			if last = at; at >= fromUnixMs {
				return at, true
			}
		}
		return 0, false
	}
}
