package rejections

import (
	"net/http"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/vitals"
)

// Path is the address of the list.
const Path = "/v1/rejections"

// DefaultLimit is how many rejections an answer has at most if the request does not say.
const DefaultLimit = 100

// A Handler serves a list.
type Handler struct {
	list *List
	opt  query.Service
}

// NewHandler returns a Handler of a list.
func NewHandler(list *List, opt query.Service) *Handler {
	opt.SetDefaults()
	return &Handler{list, opt}
}

// A listed is a rejection in an answer.
type listed struct {
	Time    string `json:"time"`
	Input   string `json:"input"`
	Gateway string `json:"gateway,omitempty"`
	Device  string `json:"device,omitempty"`
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	LeftOut uint64 `json:"left_out,omitzero"` // number of values
}

// ServeHTTP serves GET and HEAD of [Path]: the newest rejections first. Parameters: device, which may be repeated,
// limit (1 to Max, default DefaultLimit). A token for some devices sees only theirs, and not how many
// there are in total. Nor does it see those of clients that may not write for the device: another tenant
// could make them up.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := query.List{DefaultLimit: DefaultLimit, MaxLimit: Max}
	leave, ok := h.opt.AdmitList(w, r, &list)
	if !ok {
		return
	}
	defer leave()
	newest, total := h.list.Newest(list.Limit, func(r *Rejection) bool {
		return list.Access.Covers(&r.Device) && (!r.Foreign || list.Access.CoversAll()) &&
			(len(list.Devices) == 0 || slices.Contains(list.Devices, r.Device))
	})
	body := struct {
		Rejections []listed `json:"rejections"`
		Total      *uint64  `json:"total,omitempty"`
	}{Rejections: make([]listed, 0, len(newest))}
	if list.Access.CoversAll() {
		body.Total = &total
	}
	for i := range newest {
		r := &newest[i]
		leftOut := uint64(0)
		if r.LeftOut {
			leftOut = r.Count
		}
		body.Rejections = append(body.Rejections, listed{
			string(vitals.AppendTime(nil, r.UnixMs)), r.Input, r.Gateway.String(), r.Device.String(), r.Field, r.Reason, leftOut,
		})
	}
	query.WriteJSON(w, r, body)
}
