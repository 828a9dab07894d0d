package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/query"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// MaxDevices is the number of devices that a request may list.
const MaxDevices = 100

// ServeHTTP serves GET and HEAD of /v1/live. Parameters: device, which may be repeated, or
// prefix; without either, all devices that the token covers are selected. With a
// Last-Event-ID the stream begins with the latest readings.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	access, verdict, _ := h.opt.Gate.Authorize(gate.CredentialsOf(r), token.Read, time.Now())
	if p, detail := query.Refusal(h.opt.Problems, verdict, access.WhyNotRead()); p != nil {
		p.Write(w, r, detail)
		return
	}
	want, field, reason := parse(r.URL.RawQuery)
	switch {
	case reason != "" && field != "":
		h.opt.Problems.BadParameter.Write(w, r, "", reply.String("field", field), reply.String("reason", reason))
		return
	case reason != "":
		h.opt.Problems.BadParameter.Write(w, r, "", reply.String("reason", reason))
		return
	}
	for i := range want.devices {
		if !access.Covers(&want.devices[i]) {
			h.opt.Gate.NotCovered(&access, gate.PeerOf(r))
			h.opt.Problems.Forbidden.Write(w, r, "The token is not for this device.")
			return
		}
	}
	if r.Method == http.MethodHead {
		h.begin(w, r)
		return
	}
	s := &subscriber{
		hub: h, want: want, req: r, holder: access.Holder(h.opt.Holders, gate.PeerOf(r)), access: access,
		w: w, rc: http.NewResponseController(w), wake: make(chan struct{}, 1),
		resume: r.Header.Get("Last-Event-ID") != "",
	}
	defer h.opt.Holders.Put(s.holder)
	if err := h.subscribe(s); err != nil {
		h.refuse(w, r, err)
		return
	}
	// Deferred in this order, so that nothing uses w after the handler has returned.
	defer s.close()
	defer h.unsubscribe(s)
	h.begin(w, r)
	// The clients of a server that stops do not all return at the same moment.
	hello := fmt.Appendf(nil, "id: %d\nretry: %d\n\n", s.since, 1000+rand.IntN(4000))
	if s.write(hello) == nil {
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
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Accel-Buffering", "no") // nginx would hold events back
	header.Set("Pulsegate-Notice", vitals.FlagNotice)
	if r.ProtoMajor == 1 {
		header.Set("Connection", "close") // with HTTP/2 this would end the other streams
	}
	w.WriteHeader(http.StatusOK)
}

// parse parses a query. If it is not valid, it returns why, and the parameter unless it is
// the query as a whole.
func parse(raw string) (want selection, field, reason string) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return want, "", "the query is not well formed"
	}
	for name := range values {
		if name != "device" && name != "prefix" {
			return want, "", "unknown parameter; known here: device, prefix"
		}
	}
	devices, prefixes := values["device"], values["prefix"]
	switch {
	case len(devices) > 0 && len(prefixes) > 0:
		return want, "prefix", "not allowed together with device"
	case len(prefixes) > 1:
		return want, "prefix", "given more than once"
	case len(devices) > MaxDevices:
		return want, "device", fmt.Sprintf("given more than %d times", MaxDevices)
	}
	badName := (&vitals.FieldError{Err: vitals.ErrName}).Reason()
	seen := map[vitals.Name]bool{}
	for _, text := range devices {
		name, err := vitals.ParseName(text)
		if err != nil {
			return want, "device", badName
		}
		if !seen[name] {
			seen[name] = true
			want.devices = append(want.devices, name)
		}
	}
	if len(prefixes) == 1 {
		if want.prefix, err = vitals.ParseName(prefixes[0]); err != nil {
			return want, "prefix", badName
		}
	}
	return want, "", ""
}

// Describe implements prometheus.Collector.
func (h *Hub) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(h, ch) }

// Collect implements prometheus.Collector.
func (h *Hub) Collect(ch chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	show(prometheus.GaugeValue, "pulsegate_live_subscribers", "Open streams of live readings.", float64(h.listeners.Load()))
	show(prometheus.CounterValue, "pulsegate_live_events_total", "Readings that were written to streams of live readings.", float64(h.events.Load()))
	show(prometheus.CounterValue, "pulsegate_live_dropped_total",
		"Events that streams did not get because their clients read too slowly, or because the dispatcher was overloaded.", float64(h.dropped.Load()))
}
