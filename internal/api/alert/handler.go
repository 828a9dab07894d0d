package alert

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/vitals"
)

// Path is the address of the active alerts.
const Path = "/v1/alerts"

// Limits of an answer.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// A Handler serves the active alerts.
type Handler struct {
	engine *Engine
	opt    query.Service
}

// NewHandler returns a Handler of an engine's alerts. If engine is nil, there are none.
func NewHandler(engine *Engine, opt query.Service) *Handler {
	opt.SetDefaults()
	return &Handler{engine, opt}
}

// AppendJSON appends the alert as GET /v1/alerts lists it, with the time at which it ended if it has.
func (a *Alert) AppendJSON(dst []byte) []byte {
	text, err := json.Marshal(a.listed())
	if err != nil {
		panic(err) // no value of the type has this error
	}
	return append(dst, text...)
}

func (a *Alert) listed() listed {
	l := listed{
		Name: a.Rule.Name, Device: a.Device.String(), Label: a.Place.Label, Group: a.Place.Group,
		Sign: a.Rule.Field, Condition: a.Rule.Condition, Labels: a.Rule.Labels,
	}
	if l.Since = utc(a.SinceUnixMs); a.EndedUnixMs != 0 {
		l.Ended = utc(a.EndedUnixMs)
	}
	return l
}

func utc(unixMs int64) string { return string(vitals.AppendTime(nil, unixMs)) }

// A listed is an alert in an answer.
type listed struct {
	Name      string            `json:"name"`
	Device    string            `json:"device"`
	Label     string            `json:"label,omitempty"`
	Group     string            `json:"group,omitempty"`
	Sign      string            `json:"sign,omitempty"`
	Condition string            `json:"condition"`
	Labels    map[string]string `json:"labels,omitempty"`
	Since     string            `json:"since"`
	Ended     string            `json:"ended,omitempty"`
}

// ServeHTTP serves GET and HEAD of [Path]: the parts of active alerts that lie in the present assignments of their
// devices, the newest first. Parameters: device, which may be repeated, limit (1 to MaxLimit, default DefaultLimit).
// A token for some devices sees only theirs.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	access, devices, limit, leave, ok := h.opt.AdmitList(w, r, DefaultLimit, MaxLimit)
	if !ok {
		return
	}
	defer leave()
	body := struct {
		Notice string   `json:"notice"`
		Rules  int      `json:"rules"`
		Ready  bool     `json:"ready"`
		Alerts []listed `json:"alerts"`
		Total  int      `json:"total"`
		Unread int      `json:"unread"`
	}{Notice: Notice, Ready: true, Alerts: []listed{}}
	if h.engine != nil {
		newest, total, unread, c := h.engine.Newest(limit, func(d *vitals.Name) bool {
			return access.Covers(d) && (len(devices) == 0 || slices.Contains(devices, *d))
		})
		parts, err := present(context.WithoutCancel(r.Context()), h.engine, &h.opt, newest)
		if err != nil {
			h.opt.Fail(w, r, err)
			return
		}
		body.Rules, body.Ready, body.Total, body.Unread = c.Rules, c.Ready, total-len(newest)+len(parts), unread
		slices.SortFunc(parts, newestFirst)
		for _, a := range parts {
			body.Alerts = append(body.Alerts, a.listed())
		}
	}
	query.WriteJSON(w, r, body)
}
