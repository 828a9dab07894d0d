package query

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// authorize authorizes and admits a request, or answers it. If ok is true, the caller
// must call leave at the end of the request.
//
// The gate comes before the bound, so that unauthorized clients take no places.
func (h *Handler) authorize(w http.ResponseWriter, r *http.Request) (access gate.Access, leave func(), ok bool) {
	access, verdict, _ := h.opt.Gate.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	if p, detail := Refusal(h.opt.Problems, verdict, access.WhyNotRead()); p != nil {
		p.Write(w, r, detail)
		return access, nil, false
	}
	leave, ok = h.admit(w, r, &access, h.opt.Bound)
	return access, leave, ok
}

// Refusal returns the problem with which a verdict is answered, and its detail; if the verdict is
// gate.Allowed, the problem is nil. whyForbidden is the detail of gate.Forbidden.
func Refusal(p *problem.Set, v gate.Verdict, whyForbidden string) (refused *reply.Problem, detail string) {
	switch v {
	case gate.Allowed:
		return nil, ""
	case gate.NoCredentials:
		return p.Unauthorized, ""
	case gate.BadCredentials:
		return p.InvalidCredentials, ""
	}
	return p.Forbidden, whyForbidden
}

// authorizeDevice is like authorize for a request about the device named in the path,
// which the token must cover.
func (h *Handler) authorizeDevice(w http.ResponseWriter, r *http.Request) (device vitals.Name, access gate.Access, leave func(), ok bool) {
	access, leave, ok = h.authorize(w, r)
	if !ok {
		return device, access, nil, false
	}
	device, err := h.device(r)
	if err != nil {
		h.refuse(w, r, err)
	} else if h.covers(w, r, &access, device) {
		return device, access, leave, true
	}
	leave()
	return device, access, nil, false
}

// admit takes a place of a Bound, or answers the request.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, access *gate.Access, bound *Bound) (leave func(), ok bool) {
	if leave, ok = bound.Admit(r, access, h.opt.Holders); !ok {
		h.opt.Problems.Overloaded.WriteRetryAfter(w, r, BusyFor(), TooManyReads)
	}
	return leave, ok
}

// mayRead reports whether an authorized request would still be authorized now.
func (h *Handler) mayRead(r *http.Request, device vitals.Name) bool {
	access, verdict, _ := h.opt.Gate.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	return verdict == gate.Allowed && access.Covers(&device)
}

// covers reports whether access covers a device. If not, it answers the request, with
// the same text whether the device exists or not.
func (h *Handler) covers(w http.ResponseWriter, r *http.Request, access *gate.Access, device vitals.Name) bool {
	if access.Covers(&device) {
		return true
	}
	h.opt.Gate.NotCovered(access, gate.PeerOf(r))
	h.opt.Problems.Forbidden.Write(w, r, "The token is not for this device.")
	return false
}

// firstOf returns the name after which a list of the covered devices starts, if it
// continues after the name after.
func firstOf(access *gate.Access, after vitals.Name) vitals.Name {
	if before := access.Before(); after.Compare(&before) < 0 {
		return before
	}
	return after
}

// isExport reports whether q requests readings in bulk: in a file format, or more than
// one default page.
func (q *Selection) isExport() bool { return q.Format != JSON || q.Limit > DefaultReadings }

// count takes the readings that a page may have out of the client's budget. If the
// budget is exhausted, it reports that the page is an export. The caller must call done
// with the actual number of readings.
func (h *Handler) count(access *gate.Access, q *Selection) (export bool, done func(readings int)) {
	if !h.opt.Gate.TakeReads(access, q.Limit, time.Now()) {
		return true, func(int) {}
	}
	return false, func(readings int) { h.opt.Gate.ReturnReads(access, q.Limit-readings, time.Now()) }
}

// recordExport records an export in the audit log before it begins.
func (h *Handler) recordExport(r *http.Request, access *gate.Access, q *Selection) error {
	e := gate.Export{Device: q.Range.Device}
	if q.Range.FromUnixMs > 0 {
		e.From = time.UnixMilli(q.Range.FromUnixMs)
	}
	if q.Range.ToUnixMs < math.MaxInt64 {
		e.To = time.UnixMilli(q.Range.ToUnixMs)
	}
	if err := h.opt.Gate.Exporting(r.Context(), access, gate.PeerOf(r), e); err != nil {
		return fmt.Errorf("%w: %w", errNotRecorded, err)
	}
	return nil
}
