package alert

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/vitals"
)

// Path is the address of the active alerts.
const Path = "/v1/alerts"

// Limits of an answer.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// A Handler serves the active alerts, and those of a range.
type Handler struct {
	engine *Engine
	opt    query.Service
	limits *vitals.Limits // of the times in requests

	replays  *query.Bound
	readings int // of one
}

// NewHandler returns a Handler of an engine's alerts. If engine is nil, there are none.
func NewHandler(engine *Engine, opt query.Service, limits *vitals.Limits) *Handler {
	opt.SetDefaults()
	return &Handler{engine, opt, limits, query.NewBoundOf(MaxReplays, share.Replays), MaxReplayed}
}

func (h *Handler) nowUnixMs() int64 {
	if h.engine == nil {
		return time.Now().UnixMilli()
	}
	return h.engine.opt.nowUnixMs()
}

func (h *Handler) newList() query.List {
	return query.List{
		DefaultLimit: DefaultLimit, MaxLimit: MaxLimit, Times: &query.Times{NowUnixMs: h.nowUnixMs(), Limits: h.limits},
	}
}

// An answer is the body of an answer.
type answer struct {
	Notice string   `json:"notice"`
	From   string   `json:"from,omitempty"`
	To     string   `json:"to,omitempty"`
	Rules  int      `json:"rules"`
	Ready  bool     `json:"ready"`
	Alerts []listed `json:"alerts"`
	Total  int      `json:"total"`
	Unread int      `json:"unread"`
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
	Subject   string            `json:"subject,omitempty"` // with Fired
	Since     string            `json:"since"`
	Fired     string            `json:"fired,omitempty"` // only of a range
	Ended     string            `json:"ended,omitempty"`
}

// ServeHTTP serves GET and HEAD of [Path]: the parts of active alerts that lie in the present assignments of their
// devices, the newest first. Parameters: device, which may be repeated, limit (1 to MaxLimit, default DefaultLimit).
// A token for some devices sees only theirs.
//
// With from (inclusive), to (exclusive, default now) or tz (zone of dates), it serves the alerts of one device that
// were active in that range: see [Replay].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := h.newList()
	leave, ok := h.opt.AdmitList(w, r, &list)
	if !ok {
		return
	}
	defer leave()
	if list.Timed {
		h.listPast(w, r, &list)
		return
	}
	body := answer{Notice: Notice, Ready: true, Alerts: []listed{}}
	if h.engine != nil {
		newest, total, unread, c := h.engine.Newest(list.Limit, func(d *vitals.Name) bool {
			return list.Access.Covers(d) && (len(list.Devices) == 0 || slices.Contains(list.Devices, *d))
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
