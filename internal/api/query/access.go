package query

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// authorize authorizes and admits a request, or answers it. If ok is true, the caller
// must call leave at the end of the request.
//
// The gate comes before the bound, so that unauthorized clients take no places.
func (h *Handler) authorize(w http.ResponseWriter, r *http.Request) (access gate.Access, leave func(), ok bool) {
	access, verdict, _ := h.opt.Gate.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	switch verdict {
	case gate.Allowed:
		leave, ok = h.admit(w, r, &access, h.opt.Bound)
		return access, leave, ok
	case gate.NoCredentials:
		h.opt.Problems.Unauthorized.Write(w, r, "")
	case gate.BadCredentials:
		h.opt.Problems.InvalidCredentials.Write(w, r, "")
	default:
		h.opt.Problems.Forbidden.Write(w, r, access.WhyNotRead())
	}
	return access, nil, false
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

// maxBusySeconds is the longest Retry-After; the shortest is 1.
const maxBusySeconds = 5

// admit takes a place of a Bound, or answers the request.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, access *gate.Access, bound *Bound) (leave func(), ok bool) {
	holders := h.opt.Holders
	if bound == nil {
		return func() {}, true
	}
	holder := access.Holder(holders, gate.PeerOf(r))
	if !bound.Enter(r.Context(), holder) {
		holders.Put(holder)
		// Jitter, so that clients that were rejected together do not retry together.
		wait := time.Duration(1+rand.IntN(maxBusySeconds)) * time.Second
		h.opt.Problems.Overloaded.WriteRetryAfter(w, r, wait, "Too many read requests are in progress.")
		return nil, false
	}
	return func() {
		bound.Leave(holder)
		holders.Put(holder)
	}, true
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
