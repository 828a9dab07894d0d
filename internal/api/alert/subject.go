package alert

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/api/roster"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// SubjectPath is the address of the alerts of a subject.
const SubjectPath = query.SubjectsPath + "/alerts"

// OfSubject returns a handler of POST of [SubjectPath]: the parts of alerts of all devices that lie in the assignments
// of a subject, the newest first. The parameters are those of [Handler.ServeHTTP] for a range, without device. Who may
// read them, and what the audit log has of it, is as in [query.Subjects].
func (h *Handler) OfSubject(subjects *query.Subjects) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.listSubject(w, query.WithoutCancel(r), subjects)
	})
}

func (h *Handler) listSubject(w http.ResponseWriter, r *http.Request, subjects *query.Subjects) {
	list := h.newList()
	of, leave, ok := subjects.AdmitList(w, r, &list)
	if !ok {
		return
	}
	defer leave()
	done, ok := h.opt.Enter(w, r, &list.Access, h.replays)
	if !ok {
		return
	}
	defer done()
	body := answer{Notice: PastNotice, Ready: true, Alerts: []listed{}}
	parts, err := []part(nil), h.clamp(&list, &body)
	if err == nil {
		err = of.Record(&list)
	}
	if err == nil {
		parts, err = h.past(r.Context(), &list, &body, func(ctx context.Context, p *Replay) ([]part, error) {
			return p.partsIn(ctx, of.Assignments)
		})
	}
	if err == nil {
		err = of.Verify(r.Context())
	}
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	for _, p := range parts[:min(len(parts), list.Limit)] {
		var place roster.Device
		if !list.Access.BoundToSubjects() { // others may see where a device is
			place = h.opt.Roster.Current().Of(&p.device)
		}
		body.Alerts = append(body.Alerts, p.listed(p.device, place))
	}
	body.Total = len(parts)
	query.WriteJSON(w, r, body)
}

// partsIn returns the parts of alerts that lie in some assignments of one subject, which are by device, the newest
// first. [Replay.MostAlerts] bounds those of all devices.
func (p *Replay) partsIn(ctx context.Context, all []storage.Assignment) (parts []part, err error) {
	for first := true; len(all) > 0; first = false {
		n := slices.IndexFunc(all, func(a storage.Assignment) bool { return a.Device != all[0].Device })
		if n < 0 {
			n = len(all)
		}
		some, err := p.partsWithin(ctx, all[:n])
		if !first && errors.Is(err, context.DeadlineExceeded) { // the store answers, and there are too many devices
			err = errInterrupted
		}
		if err != nil {
			return nil, err
		}
		if all, parts = all[n:], append(parts, some...); len(parts) > p.MostAlerts {
			return nil, ErrTooMany
		}
	}
	slices.SortStableFunc(parts, newestPart)
	return parts, nil
}

// partsWithin returns the parts of alerts of a device that lie in some of its assignments, those of one subject. What
// is between them counts as nobody's, whoever wore the device then.
func (p *Replay) partsWithin(ctx context.Context, all []storage.Assignment) (parts []part, err error) {
	all = slices.DeleteFunc(slices.Clone(all), func(a storage.Assignment) bool {
		return a.ToUnixMs < p.FromUnixMs || a.FromUnixMs > p.UntilUnixMs+maxAhead.Milliseconds()
	})
	if len(all) == 0 || newRuns(p.Rules, &all[0].Device) == nil {
		return nil, nil
	}
	begin := all[0].FromUnixMs
	for i := range all {
		begin = min(begin, all[i].FromUnixMs)
	}
	worn := *p
	// Alerts end by the server's clock, and the device's may be ahead of it.
	worn.FromUnixMs = max(p.FromUnixMs, min(begin-maxAhead.Milliseconds(), p.UntilUnixMs))
	found, err := worn.Of(ctx, all[0].Device)
	if err != nil {
		return nil, err
	}
	parts, err = found.parts(ctx, all, p.FromUnixMs)
	return slices.DeleteFunc(parts, func(some part) bool { return some.subject == "" }), err
}
