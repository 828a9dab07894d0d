package query

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// Options configure a [Handler].
type Options struct {
	Service
	Flags  vitals.FlagLimits // the signs, by default the built-in ones, and which values are flagged as unusual
	Limits vitals.Limits     // which readings are accepted, for clients that ask

	// Alerts, if not nil, sets alerts[i] to the first active alert of devices[i], by the place of its rule: one about
	// a sign if there is one. Only the parts of alerts from a time on count: an alert about a sign has none if the
	// latest value of devices[i] is older. Devices without active alerts are left as they are.
	Alerts func(devices []storage.Device, fromUnixMs int64, alerts []ActiveAlert)

	// StaleAfter is how long after its newest reading, by measured time, a device is stale;
	// 0: DefaultStaleAfter.
	StaleAfter time.Duration

	// Now returns the time; default time.Now.
	Now func() time.Time
}

// A Handler serves the read API. Its methods are http.HandlerFuncs for GET and HEAD.
type Handler struct {
	reader  Reader
	lister  Lister
	opt     Options
	streams [len(formatNames)]*reply.Head // 200 with a streamed body
	parquet *Bound                        // of pages in Parquet, which take much memory
	limits  []byte                        // answer of Limits

	ordering chan struct{} // holds one while order is read, or computed
	order    *order
}

// New returns a Handler that reads from reader and lister.
func New(reader Reader, lister Lister, opt Options) *Handler {
	opt.SetDefaults()
	if opt.Flags.Signs == nil {
		opt.Flags.Signs = vitals.NewSigns()
	}
	if opt.StaleAfter <= 0 {
		opt.StaleAfter = DefaultStaleAfter
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	h := &Handler{reader: reader, lister: lister, opt: opt, parquet: NewBoundOf(maxParquet, share.Parquet),
		ordering: make(chan struct{}, 1)}
	h.limits = limitsText(&opt)
	for f := range Format(len(formatNames)) {
		h.streams[f] = reply.NewHead(http.StatusOK, f.ContentType(), reply.NoStore())
	}
	return h
}

// Mount routes the read API of devices. read routes GET and HEAD of an address.
func (h *Handler) Mount(read func(template string, h http.Handler)) {
	read("/v1/devices", http.HandlerFunc(h.Devices))
	read("/v1/devices/{device}", http.HandlerFunc(h.Device))
	read("/v1/devices/{device}/readings", http.HandlerFunc(h.Readings))
	read("/v1/devices/{device}/aggregates", http.HandlerFunc(h.Aggregates))
	read("/v1/limits", http.HandlerFunc(h.Limits))
}

// Devices serves GET /v1/devices: a page of the devices that the token covers. Parameters:
// prefix of their names, match (a part of the name or the label), group, state (fresh, stale
// or flagged), sort (name, age or worst), counts (true: with the number of devices by state,
// and all groups), limit (1 to 1000, default 100), cursor.
func (h *Handler) Devices(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	access, leave, ok := h.opt.Admit(w, r)
	if !ok {
		return
	}
	defer leave()
	q, err := parseDevices(&access, h.opt.Roster.Current(), r.URL.RawQuery)
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	now := h.opt.Now().UnixMilli()
	f, err := h.newFleet(r.Context(), q, now)
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	assigned, err := h.opt.assignedTo(r.Context(), f.shown(), now)
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	WriteObject(w, r, f.appendTo(make([]byte, 0, 512*len(f.page)+256), assigned, now))
}

// Device serves GET /v1/devices/{device}: the latest value of each sign with its time, and the
// assignments of the device. Clients that may read what the device measures may see them.
func (h *Handler) Device(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	device, _, leave, ok := h.authorizeDevice(w, r)
	if !ok {
		return
	}
	defer leave()
	if err := ReadParams(r.URL.RawQuery, nil).Err; err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	d, err := h.reader.Latest(r.Context(), device)
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	all, err := h.opt.assignments(r.Context(), device)
	if err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	now := h.opt.Now().UnixMilli()
	text := appendDevice(make([]byte, 0, 1024), &d, h.flagger(), all, now)
	text = append(appendNotice(appendAssignments(text[:len(text)-1], all, now)), "}\n"...)
	WriteObject(w, r, text)
}

// Readings serves GET /v1/devices/{device}/readings. Parameters: from (inclusive) and
// to (exclusive), tz (zone of dates), limit, cursor, order (asc or desc), format (json,
// ndjson, csv or parquet; default: the Accept header decides), flags (true or false: show them),
// flag (only readings with this flag, or with any).
//
// If a limit ends the page, a JSON response includes the cursor of the next page, and
// an NDJSON or CSV response has it in the trailer Pulsegate-Next-Cursor.
//
// An export is recorded in the audit log before its first byte is sent. A response is
// an export if it is NDJSON or CSV, if its limit is more than 1000 readings, or if the
// client has recently read many readings in smaller pages.
func (h *Handler) Readings(w http.ResponseWriter, r *http.Request) {
	h.stream(w, r, Format(len(formatNames)), new(Selection))
}

// Aggregates serves GET /v1/devices/{device}/aggregates. Parameters: step (required), tz
// (default UTC), from (inclusive) and to (exclusive), limit, cursor, format. Cursors,
// exports and formats are as with Readings; NDJSON and CSV have a line per bucket and sign.
func (h *Handler) Aggregates(w http.ResponseWriter, r *http.Request) {
	h.stream(w, r, TextFormats, new(Aggregation))
}

// A page is a page of readings, or of what is computed from them.
type page interface {
	// parse parses the parameters of a request. format is the one negotiated with the Accept header.
	parse(h *Handler, raw string, format Format) error

	selection() *Selection
	write(ctx context.Context, w io.Writer, h *Handler) (Page, error)
}

func (q *Selection) selection() *Selection { return q }

func (q *Selection) write(ctx context.Context, w io.Writer, h *Handler) (Page, error) {
	q.Roster = h.opt.Roster.Current()
	return WriteReadings(ctx, w, h.reader, *q, h.opt.Flags.Signs, &h.opt.Flags)
}

func (a *Aggregation) write(ctx context.Context, w io.Writer, h *Handler) (Page, error) {
	return WriteAggregates(ctx, w, h.reader, *a, h.opt.Flags.Signs)
}

// stream answers a request for a page of the device in the path, in one of the first formats.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, formats Format, p page) {
	r = WithoutCancel(r)
	device, access, leave, ok := h.authorizeDevice(w, r)
	if !ok {
		return
	}
	defer leave()
	q := p.selection()
	q.Range.Device = device
	h.answer(w, r, formats, p, asked{
		access: &access, export: gate.Export{Device: device},
		allowed: func() bool { return h.mayRead(r, device) },
		find: func(ctx context.Context) (err error) {
			if r.Method == http.MethodHead {
				_, err = h.reader.Latest(ctx, device)
			} else {
				q.Assigned, err = h.opt.assignments(ctx, device)
			}
			return err
		},
	})
}

// An asked is what a request for a page asks for, and may read.
type asked struct {
	access   *gate.Access
	export   gate.Export // what the audit log records, without the times
	recorded bool        // always; otherwise only if it is an export

	allowed func() bool                     // whether the client may still read it
	find    func(ctx context.Context) error // looks it up, before the page is written
}

// answer answers an admitted request for a page in one of the first formats.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, formats Format, p page, of asked) {
	w.Header().Add("Vary", "Accept") // the media type depends on Accept
	format, acceptable := negotiate(r.Header["Accept"], formats)
	q := p.selection()
	if err := p.parse(h, r.URL.RawQuery, format); err != nil {
		h.opt.Fail(w, r, err)
		return
	}
	if !acceptable && !r.URL.Query().Has("format") {
		h.opt.Problems.NotAcceptable.Write(w, r,
			"Accept application/json, application/x-ndjson or text/csv, or set the parameter format.")
		return
	}
	if q.Format != JSON && !r.ProtoAtLeast(1, 1) { // the text of JSON shows its end
		h.opt.Problems.OldHTTP.Write(w, r, "")
		return
	}
	if q.Format == Parquet {
		leaveParquet, ok := h.opt.Enter(w, r, of.access, h.parquet)
		if !ok {
			return
		}
		defer leaveParquet()
	}
	coding := q.Format.coding(w, r)
	var written Page
	export := of.recorded || q.isExport()
	counted := func(readings int) {}
	begin := func() error {
		if r.Method != http.MethodHead {
			if !export {
				export, counted = h.count(of.access, q)
			}
			if export {
				if err := h.opt.Record(r, of.access, of.export, q.Range.FromUnixMs, q.Range.ToUnixMs); err != nil {
					return err
				}
			}
		}
		if q.Format != JSON && q.Limit > 0 {
			w.Header().Set("Trailer", cursorTrailer)
		}
		if q.Format == OMH {
			w.Header().Add("Trailer", leftOutTrailer)
		}
		if !q.NoFlags && q.Format != JSON {
			w.Header().Set("Pulsegate-Notice", vitals.FlagNotice)
		}
		if coding != "" {
			w.Header().Set("Content-Encoding", coding)
		}
		h.streams[q.Format].Begin(w)
		return nil
	}
	write := func(out io.Writer) (err error) {
		if err = of.find(r.Context()); err != nil || r.Method == http.MethodHead {
			return err
		}
		done := func() error { return nil }
		if coding != "" {
			coder, err := newCoder(out, coding)
			if err != nil {
				return err
			}
			out, done = coder, coder.Close
		}
		written, err = p.write(r.Context(), out, h)
		counted(written.Readings)
		if err == nil && q.end != "" {
			_, err = io.WriteString(out, q.end)
		}
		if err == nil {
			err = done()
		}
		return err
	}
	h.opt.Stream(w, of.allowed, begin, write, func(err error) { h.opt.Fail(w, r, err) })
	if w.Header().Get("Trailer") == "" {
		return
	}
	if written.Cursor != "" {
		w.Header().Set(cursorTrailer, written.Cursor)
	}
	if written.LeftOut != "" {
		w.Header().Set(leftOutTrailer, written.LeftOut)
	}
}

// leftOutTrailer is the trailer with the signs that a response in the form of Open mHealth does not have.
const leftOutTrailer = "Pulsegate-Left-Out"

// cursorTrailer is the trailer with the cursor of the next page in a streamed response.
const cursorTrailer = "Pulsegate-Next-Cursor"
