package query

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/wire/share"
	"github.com/pulsegate/pulsegate/reply"
	"github.com/pulsegate/pulsegate/vitals"
)

// defaultPieceTimeout is the default of Options.PieceTimeout.
const defaultPieceTimeout = 30 * time.Second

// Options configure a [Handler].
type Options struct {
	Problems *problem.Set
	Flags    vitals.FlagLimits // which values are flagged as unusual
	Limits   vitals.Limits     // which readings are accepted, for clients that ask

	// Param returns a variable in the request's path, such as "device".
	Param func(r *http.Request, name string) string

	// Gate authorizes requests. If nil, every request may read everything.
	Gate *gate.Gate

	// Subjects, if not nil, knows to which subjects devices are assigned.
	Subjects Assigner

	// PieceTimeout is how long a client may take to read one piece of a response, about
	// 64 KiB. It replaces the server's WriteTimeout, so that a long response as a whole
	// has no limit. Default 30 s.
	PieceTimeout time.Duration

	// Bound bounds the number of concurrent authorized requests; nil: no bound. Holders
	// divide it among clients; nil: it is not divided.
	Bound   *Bound
	Holders *share.Holders

	// StaleAfter is how long after its newest reading, by measured time, a device is stale;
	// 0: DefaultStaleAfter.
	StaleAfter time.Duration

	// Now returns the time; default time.Now.
	Now func() time.Time

	// OnError, if not nil, is called with errors of the store and of the audit log.
	OnError func(error)
}

// An Assigner returns the assignments of a device to subjects.
type Assigner interface {
	DeviceAssignments(ctx context.Context, device vitals.Name) ([]storage.Assignment, error)
}

// A Handler serves the read API. Its methods are http.HandlerFuncs for GET and HEAD.
type Handler struct {
	reader  Reader
	lister  Lister
	opt     Options
	object  *reply.Head                   // 200 with a complete JSON body
	streams [len(formatNames)]*reply.Head // 200 with a streamed body
	parquet *Bound                        // of pages in Parquet, which take much memory
	limits  []byte                        // answer of Limits
	zones   zones
}

// New returns a Handler that reads from reader and lister.
func New(reader Reader, lister Lister, opt Options) *Handler {
	if opt.PieceTimeout <= 0 {
		opt.PieceTimeout = defaultPieceTimeout
	}
	if opt.StaleAfter <= 0 {
		opt.StaleAfter = DefaultStaleAfter
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	h := &Handler{reader: reader, lister: lister, opt: opt, parquet: newBound(maxParquet, share.Parquet)}
	h.limits = limitsText(&opt)
	if opt.Gate == nil {
		h.opt.Gate = &gate.Gate{}
	}
	h.object = reply.NewHead(http.StatusOK, JSON.ContentType(), reply.NoStore())
	for f := range Format(len(formatNames)) {
		h.streams[f] = reply.NewHead(http.StatusOK, f.ContentType(), reply.NoStore())
	}
	return h
}

// Mount routes the read API. read routes GET and HEAD of an address.
func (h *Handler) Mount(read func(template string, h http.Handler)) {
	read("/v1/devices", http.HandlerFunc(h.Devices))
	read("/v1/devices/{device}", http.HandlerFunc(h.Device))
	read("/v1/devices/{device}/readings", http.HandlerFunc(h.Readings))
	read("/v1/devices/{device}/aggregates", http.HandlerFunc(h.Aggregates))
	read("/v1/limits", http.HandlerFunc(h.Limits))
}

// Devices serves GET /v1/devices: a page of the devices that the token covers. Parameters:
// prefix of their names, state (fresh, stale or flagged), sort (name, age or worst), counts
// (true: with the number of devices by state), limit (1 to 1000, default 100), cursor.
func (h *Handler) Devices(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	access, leave, ok := h.authorize(w, r)
	if !ok {
		return
	}
	defer leave()
	q, err := parseDevices(&access, r.URL.RawQuery)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	f, err := h.newFleet(r.Context(), q, h.opt.Now().UnixMilli())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.writeObject(w, r, f.appendTo(make([]byte, 0, 512*len(f.found)+256)))
}

// Device serves GET /v1/devices/{device}: the latest value of each sign with its time, and the
// subject to which the device is assigned now. Who may read what the device measures may see it.
func (h *Handler) Device(w http.ResponseWriter, r *http.Request) {
	r = WithoutCancel(r)
	device, _, leave, ok := h.authorizeDevice(w, r)
	if !ok {
		return
	}
	defer leave()
	if _, err := parseParams(r.URL.RawQuery); err != nil {
		h.refuse(w, r, err)
		return
	}
	d, err := h.reader.Latest(r.Context(), device)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	text := appendDevice(make([]byte, 0, 1024), &d, &h.opt.Flags)
	text = text[:len(text)-1] // the rest goes inside
	if h.opt.Subjects != nil {
		all, err := h.opt.Subjects.DeviceAssignments(r.Context(), device)
		if err != nil {
			h.fail(w, r, err)
			return
		}
		if subject := storage.SubjectAt(all, h.opt.Now().UnixMilli()); subject != "" {
			text = append(append(append(text, `,"subject":"`...), subject...), '"')
		}
	}
	text = append(appendNotice(text), "}\n"...)
	h.writeObject(w, r, text)
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
	parse(h *Handler, device vitals.Name, raw string, format Format) error

	selection() *Selection
	write(ctx context.Context, w io.Writer, h *Handler) (Page, error)
}

func (q *Selection) selection() *Selection { return q }

func (q *Selection) write(ctx context.Context, w io.Writer, h *Handler) (Page, error) {
	return WriteReadings(ctx, w, h.reader, *q, &h.opt.Flags)
}

func (a *Aggregation) write(ctx context.Context, w io.Writer, h *Handler) (Page, error) {
	return WriteAggregates(ctx, w, h.reader, *a)
}

// stream answers a request for a page, in one of the first formats.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, formats Format, p page) {
	r = WithoutCancel(r)
	device, access, leave, ok := h.authorizeDevice(w, r)
	if !ok {
		return
	}
	defer leave()
	w.Header().Add("Vary", "Accept") // the media type depends on Accept
	format, acceptable := negotiate(r.Header["Accept"], formats)
	q := p.selection()
	err := p.parse(h, device, r.URL.RawQuery, format)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if !acceptable && !hasFormat(r) {
		h.opt.Problems.NotAcceptable.Write(w, r, "Accept application/json, application/x-ndjson or text/csv, or set the parameter format.")
		return
	}
	if q.Format == Parquet {
		leaveParquet, ok := h.admit(w, r, &access, h.parquet)
		if !ok {
			return
		}
		defer leaveParquet()
	}
	trailer := q.Format != JSON && q.Limit > 0
	counted := func(readings int) {}
	allowed := func() bool { return h.mayRead(r, device) }
	out := NewPieceWriter(w, h.opt.PieceTimeout, allowed, func() error {
		export := q.isExport()
		if !export && r.Method != http.MethodHead {
			export, counted = h.count(&access, q)
		}
		if export && r.Method != http.MethodHead {
			if err := h.recordExport(r, &access, q); err != nil {
				return err
			}
		}
		if trailer {
			w.Header().Set("Trailer", cursorTrailer)
		}
		if !q.NoFlags && q.Format != JSON {
			w.Header().Set("Pulsegate-Notice", vitals.FlagNotice)
		}
		h.streams[q.Format].Begin(w)
		return nil
	})
	defer out.Watch()()
	var written Page
	if r.Method == http.MethodHead {
		_, err = h.reader.Latest(r.Context(), device)
	} else {
		written, err = p.write(r.Context(), out, h)
		counted(written.Readings)
	}
	if err == nil { // a response without readings may have no text
		err = out.Begin()
	}
	switch {
	case errors.Is(err, ErrRevoked) && !out.Begun():
		h.opt.Problems.InvalidCredentials.Write(w, r, "")
	case errors.Is(err, errNotRecorded):
		h.report(err)
		h.opt.Problems.ReadFailed.Write(w, r, "The export could not be recorded in the audit log.")
	case err != nil && !out.Begun():
		h.fail(w, r, err)
	case err != nil:
		h.report(err)
		// The status was already sent. Closing the connection is the only way to signal
		// that the response is incomplete.
		panic(http.ErrAbortHandler)
	case trailer && written.Cursor != "":
		w.Header().Set(cursorTrailer, written.Cursor)
	}
}

// WithoutCancel returns r with a context that is not canceled. net/http cancels the context
// if a client closes its sending side, although the client may still read the response. If
// the client has disconnected, a write fails.
func WithoutCancel(r *http.Request) *http.Request {
	return r.WithContext(context.WithoutCancel(r.Context()))
}

// cursorTrailer is the trailer with the cursor of the next page in a streamed response.
const cursorTrailer = "Pulsegate-Next-Cursor"

// hasFormat reports whether the query has the parameter format.
func hasFormat(r *http.Request) bool { return r.URL.Query().Has("format") }

// device returns the device in the path.
func (h *Handler) device(r *http.Request) (vitals.Name, error) {
	name, err := vitals.ParseName(h.opt.Param(r, "device"))
	if err != nil {
		return name, &paramError{"device", (&vitals.FieldError{Err: vitals.ErrName}).Reason()}
	}
	return name, nil
}

func (h *Handler) writeObject(w http.ResponseWriter, r *http.Request, text []byte) {
	_ = h.object.Write(w, r, text) // an error means that the client has disconnected
}

// refuse answers a malformed request.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var param *paramError
	if !errors.As(err, &param) {
		h.fail(w, r, err)
		return
	}
	if param.name == "" {
		h.opt.Problems.BadParameter.Write(w, r, "", reply.String("reason", param.reason))
		return
	}
	h.opt.Problems.BadParameter.Write(w, r, "", reply.String("field", param.name), reply.String("reason", param.reason))
}

// fail answers a request after an error of the store.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, storage.ErrNotFound):
		h.opt.Problems.UnknownDevice.Write(w, r, "")
	case errors.Is(err, storage.ErrClosed):
		// Retry-After is jittered, as in package ingest.
		h.opt.Problems.Draining.WriteRetryAfter(w, r, time.Duration(2+rand.IntN(5))*time.Second, "")
	default:
		h.report(err)
		h.opt.Problems.ReadFailed.Write(w, r, "")
	}
}

// report passes an error to OnError, unless it means that the client has disconnected
// or may no longer read.
func (h *Handler) report(err error) {
	if h.opt.OnError != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClientGone) && !errors.Is(err, ErrRevoked) {
		h.opt.OnError(err)
	}
}

// errNotRecorded means that an export was not started, because it could not be recorded.
var errNotRecorded = errors.New("query: the export could not be recorded")
