package query

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// enter lets a request in, or answers it. The caller must call leave when the request
// that was let in is answered.
//
// The gate comes before the bound: who may not read takes no place from those who may.
func (h *Handler) enter(w http.ResponseWriter, r *http.Request) (pass gate.Access, leave func(), ok bool) {
	pass, verdict, _ := h.cfg.Gate.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	switch verdict {
	case gate.Allowed:
		leave, ok = h.takePlace(w, r, &pass)
		return pass, leave, ok
	case gate.NoCredentials:
		h.cfg.Problems.Unauthorized.Write(w, r, "")
	case gate.BadCredentials:
		h.cfg.Problems.InvalidCredentials.Write(w, r, "")
	default:
		h.cfg.Problems.Forbidden.Write(w, r, "A token with the right read is needed.")
	}
	return pass, nil, false
}

// enterDevice is enter for a question about the device in the request's path, which the
// pass must be for.
func (h *Handler) enterDevice(w http.ResponseWriter, r *http.Request) (device vitals.Name, pass gate.Access, leave func(), ok bool) {
	pass, leave, ok = h.enter(w, r)
	if !ok {
		return device, pass, nil, false
	}
	device, err := h.device(r)
	if err != nil {
		h.refuse(w, r, err)
	} else if h.covers(w, r, &pass, device) {
		return device, pass, leave, true
	}
	leave()
	return device, pass, nil, false
}

// maxBusySeconds is the longest Retry-After; the shortest is 1.
const maxBusySeconds = 5

// takePlace takes one of the places for questions, or answers the request.
func (h *Handler) takePlace(w http.ResponseWriter, r *http.Request, pass *gate.Access) (leave func(), ok bool) {
	bound, holders := h.cfg.Bound, h.cfg.Holders
	if bound == nil {
		return func() {}, true
	}
	holder := pass.Holder(holders, gate.PeerOf(r))
	if !bound.Enter(r.Context(), holder) {
		holders.Put(holder)
		// Clients that were refused at one moment must not come back at one.
		wait := time.Duration(1+rand.IntN(maxBusySeconds)) * time.Second
		h.cfg.Problems.Overloaded.WriteRetryAfter(w, r, wait, "Too many questions are being answered.")
		return nil, false
	}
	return func() {
		bound.Leave(holder)
		holders.Put(holder)
	}, true
}

// mayRead reports whether a request that was let in would be now.
func (h *Handler) mayRead(r *http.Request, device vitals.Name) bool {
	pass, verdict, _ := h.cfg.Gate.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	return verdict == gate.Allowed && pass.Covers(&device)
}

// covers reports whether a pass is for a device, or answers the request: in the
// same words whether there is such a device or not.
func (h *Handler) covers(w http.ResponseWriter, r *http.Request, pass *gate.Access, device vitals.Name) bool {
	if pass.Covers(&device) {
		return true
	}
	h.cfg.Gate.NotCovered(pass, gate.PeerOf(r))
	h.cfg.Problems.Forbidden.Write(w, r, "The token is not for this device.")
	return false
}

// firstOf returns where a list of devices begins for a pass, if it is to go on
// after a name.
func firstOf(pass *gate.Access, after vitals.Name) vitals.Name {
	if before := pass.Before(); after.Compare(&before) < 0 {
		return before
	}
	return after
}

// covered returns how many devices at the front of a list, which begins at
// firstOf, a pass is for. No other device of the list is.
func covered(pass *gate.Access, devices []storage.Device) int {
	n := 0
	for n < len(devices) && pass.Covers(&devices[n].Name) {
		n++
	}
	return n
}

// isExport reports whether a question asks for readings in bulk: in a format for
// files, or for more than a page of them.
func (q *Question) isExport() bool { return q.Format != JSON || q.Limit > defaultReadings }

// count counts the readings that a page may hold, and reports whether so many were read
// in pages lately that this one is an export too. done is called with how many it held.
func (h *Handler) count(pass *gate.Access, q *Question) (export bool, done func(readings int)) {
	if !h.cfg.Gate.TakeReads(pass, q.Limit, time.Now()) {
		return true, func(int) {}
	}
	return false, func(readings int) { h.cfg.Gate.ReturnReads(pass, q.Limit-readings, time.Now()) }
}

// exporting has an export recorded, before it begins.
func (h *Handler) exporting(r *http.Request, pass *gate.Access, q *Question) error {
	e := gate.Export{Device: q.Range.Device}
	if q.Range.FromUnixMs > 0 {
		e.From = time.UnixMilli(q.Range.FromUnixMs)
	}
	if q.Range.ToUnixMs < math.MaxInt64 {
		e.To = time.UnixMilli(q.Range.ToUnixMs)
	}
	if err := h.cfg.Gate.Exporting(r.Context(), pass, gate.PeerOf(r), e); err != nil {
		return fmt.Errorf("%w: %w", errNotRecorded, err)
	}
	return nil
}
