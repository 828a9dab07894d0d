package alert

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/sys/settings"
	"github.com/pulsegate/pulsegate/vitals"
)

// Bounds of the alerts of a range.
const (
	MaxRange = 31 * 24 * time.Hour
	// readings of 33 bytes, and 4 for each value that rules are about; twice that while they are read
	MaxReplayed   = 1 << 19
	MaxReplays    = 2       // at a time
	MaxPast       = 1 << 14 // alerts, while the readings are evaluated
	MaxReplayTime = 10 * time.Second
)

// PastNotice must be shown wherever alerts of a range are shown.
const PastNotice = "These are alerts by today's rules, over what is stored now: what was reported then may have " +
	"been other. " +
	Notice

// listPast answers a request for the alerts of one device in a range: the parts that lie in each of its assignments,
// the newest first.
func (h *Handler) listPast(w http.ResponseWriter, r *http.Request, list *query.List) {
	leave, ok := h.opt.Enter(w, r, &list.Access, h.replays)
	if !ok {
		return
	}
	defer leave()
	body := answer{Notice: PastNotice, Ready: true, Alerts: []listed{}}
	parts, err := []part(nil), h.clamp(list, &body)
	if err == nil && len(list.Devices) != 1 {
		err = &query.ParamError{Name: "device", Reason: "with from and to, give one device"}
	}
	if err == nil {
		parts, err = h.past(r.Context(), list, &body, func(ctx context.Context, p *Replay) ([]part, error) {
			return p.partsOf(ctx, &h.opt, list.Devices[0])
		})
	}
	if err == nil {
		device := list.Devices[0]
		for _, p := range parts[:min(len(parts), list.Limit)] {
			body.Alerts = append(body.Alerts, p.listed(device, h.opt.Roster.Current().Of(&device)))
		}
		body.Total = len(parts)
		err = h.mayHave(r, list, len(body.Alerts))
	}
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	query.WriteJSON(w, r, body)
}

// mayHave returns nil if a request may still read the device of a list, and counts n alerts as readings that it reads:
// if those are too many for its budget, the audit log records it.
func (h *Handler) mayHave(r *http.Request, list *query.List, n int) error {
	device := list.Devices[0]
	access, verdict := h.opt.May(r, token.Read)
	switch {
	case verdict != gate.Allowed || !access.Covers(&device):
		return query.ErrRevoked
	case h.opt.Gate.TakeReads(&access, n, time.Now()):
		return nil
	}
	return h.opt.Record(r, &access, gate.Export{Device: device}, list.FromUnixMs, list.ToUnixMs)
}

// clamp ends the range of a list now, checks it, and sets the times of the answer.
func (h *Handler) clamp(list *query.List, body *answer) error {
	until := min(list.ToUnixMs, h.nowUnixMs())
	list.FromUnixMs, list.ToUnixMs = min(list.FromUnixMs, until), until
	switch {
	case list.FromUnixMs == 0:
		return &query.ParamError{Name: "from", Reason: "missing, or 1970"}
	case until-list.FromUnixMs > MaxRange.Milliseconds():
		reason := fmt.Sprintf("more than %d days before to, or before now", MaxRange/(24*time.Hour))
		return &query.ParamError{Name: "from", Reason: reason}
	}
	body.From, body.To = utc(list.FromUnixMs), utc(until)
	return nil
}

// past returns the parts of alerts in the range of a list that find finds, and sets the number of rules of the answer.
func (h *Handler) past(ctx context.Context, list *query.List, body *answer,
	find func(context.Context, *Replay) ([]part, error)) (parts []part, err error) {
	if h.engine == nil {
		return nil, nil
	}
	p := Replay{
		Rules: rulesOf(h.engine), FromUnixMs: list.FromUnixMs, UntilUnixMs: list.ToUnixMs,
		MostReadings: h.readings, MostAlerts: MaxPast, Read: ReadFrom(h.engine.reader.Scan),
	}
	body.Rules = len(p.Rules)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), MaxReplayTime)
	defer cancel()
	parts, err = find(ctx, &p)
	before := settings.FormatDuration(Memory(p.Rules))
	switch {
	case errors.Is(err, ErrTooMany):
		reason := fmt.Sprintf("the alerts depend on more than %d readings, from %s before it on, or there are more than %d: "+
			"choose a shorter range", h.readings, before, MaxPast)
		err = &query.ParamError{Name: "from", Reason: reason}
	case errors.Is(err, errInterrupted):
		reason := fmt.Sprintf("evaluating the readings from %s before it on takes more than %v: "+
			"choose a shorter range", before, MaxReplayTime)
		err = &query.ParamError{Name: "from", Reason: reason}
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: those of a device were not read within %v", storage.ErrUnavailable, MaxReplayTime)
	}
	return parts, err
}

// partsOf returns the parts of alerts of a device, the newest first.
func (p *Replay) partsOf(ctx context.Context, service *query.Service, device vitals.Name) (parts []part, err error) {
	if newRuns(p.Rules, &device) == nil {
		return nil, nil
	}
	found, err := p.Of(ctx, device)
	if err != nil {
		return nil, err
	}
	var all []storage.Assignment
	if service.Subjects != nil {
		if all, err = service.Subjects.DeviceAssignments(ctx, device); err != nil {
			return nil, err
		}
	}
	return found.parts(ctx, all, p.FromUnixMs)
}
