package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/internal/observe/metrics"
	"github.com/pulsegate/pulsegate/vitals"
)

// MaxDevices is the number of devices that a request may list.
const MaxDevices = query.MaxListed

// ServeHTTP serves GET and HEAD of /v1/live. Parameters: device, which may be repeated, or
// prefix; without either, all devices that the token covers are selected. With a
// Last-Event-ID the stream begins with the latest readings.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	access, ok := h.opt.Authorize(w, r)
	if !ok {
		return
	}
	want, err := parse(r.URL.RawQuery)
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	for i := range want.devices {
		if !h.opt.Covers(w, r, &access, &want.devices[i]) {
			return
		}
	}
	if r.Method == http.MethodHead {
		h.begin(w, r)
		return
	}
	wake := make(chan struct{}, 1)
	s := &subscriber{
		hub: h, want: want, req: r, holder: access.Holder(h.opt.Holders, gate.PeerOf(r)),
		stream: stream{w: w, rc: http.NewResponseController(w), timeout: h.opt.PieceTimeout, wake: wake},
		queue: queue{wake: wake, access: access, resume: r.Header.Get("Last-Event-ID") != "",
			onDropped: func(n uint64) { h.dropped.Add(n) }},
	}
	defer h.opt.Holders.Put(s.holder)
	if err := h.subscribe(s); err != nil {
		h.refuse(w, r, err)
		return
	}
	// Deferred in this order, so that nothing uses w after the handler has returned.
	defer s.stream.close()
	defer h.unsubscribe(s)
	h.begin(w, r)
	// The clients of a server that stops do not all return at the same moment.
	hello := fmt.Appendf(nil, "id: %d\nretry: %d\n", s.since, 1000+rand.IntN(4000))
	if s.write(appendTime(hello)) == nil {
		_ = s.run(r.Context()) // the client sees the end of the stream, and resumes
	}
}

// refuse answers a request for which there is no place.
func (h *Hub) refuse(w http.ResponseWriter, r *http.Request, err error) {
	wait := query.BusyFor()
	if errors.Is(err, errDraining) {
		h.opt.Problems.Draining.WriteRetryAfter(w, r, wait, "")
		return
	}
	h.opt.Problems.Overloaded.WriteRetryAfter(w, r, wait, "Too many streams of live readings are open.")
}

// Full rejects a request as ServeHTTP does if there is no place.
func (h *Hub) Full(w http.ResponseWriter, r *http.Request) { h.refuse(w, r, errFull) }

// begin sends the header of a stream.
func (h *Hub) begin(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Pulsegate-Notice", vitals.FlagNotice)
	query.BeginEvents(w, r)
}

// parse parses a query.
func parse(raw string) (want selection, err error) {
	p := query.ReadParams(raw, []string{"device"}, "prefix")
	switch {
	case p.Err != nil:
		return want, p.Err
	case p.Count("device") > 0 && p.Count("prefix") > 0:
		return want, &query.ParamError{Name: "prefix", Reason: "not allowed together with device"}
	case p.Count("device") > MaxDevices:
		return want, &query.ParamError{Name: "device", Reason: fmt.Sprintf("given more than %d times", MaxDevices)}
	}
	want.devices, want.prefix = p.Names("device"), p.Name("prefix")
	return want, p.Err
}

// Describe implements prometheus.Collector.
func (h *Hub) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(h, ch) }

// Collect implements prometheus.Collector.
func (h *Hub) Collect(ch chan<- prometheus.Metric) {
	to := metrics.Sink(ch)
	to.Gauge("pulsegate_live_subscribers", "Open streams of live readings.", float64(h.listeners.Load()))
	to.Counter("pulsegate_live_events_total",
		"Readings, and changes of alerts, that were written to streams of live readings.", float64(h.events.Load()))
	to.Counter("pulsegate_live_dropped_total",
		"Events that streams did not get because their clients read too slowly, or because the dispatcher was overloaded.",
		float64(h.dropped.Load()))
}
