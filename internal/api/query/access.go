package query

import (
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/vitals"
)

// authorizeDevice is like authorize for a request about the device named in the path,
// which the token must cover.
func (h *Handler) authorizeDevice(w http.ResponseWriter, r *http.Request) (device vitals.Name, access gate.Access,
	leave func(), ok bool) {
	access, leave, ok = h.opt.Admit(w, r)
	if !ok {
		return device, access, nil, false
	}
	device, err := vitals.ParseName(h.opt.Param(r, "device"))
	if err != nil {
		h.opt.Fail(w, r, &ParamError{"device", badName})
	} else if h.opt.Covers(w, r, &access, &device) {
		return device, access, leave, true
	}
	leave()
	return device, access, nil, false
}

// badName explains which names devices have.
var badName = (&vitals.FieldError{Err: vitals.ErrName}).Reason()

// mayRead reports whether an authorized request would still be authorized now.
func (h *Handler) mayRead(r *http.Request, device vitals.Name) bool {
	access, verdict := h.opt.May(r, token.Read)
	return verdict == gate.Allowed && access.Covers(&device)
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
