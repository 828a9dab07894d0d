package query

import (
	"context"
	"errors"
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

// defaultPieceTimeout is how long a client may take to read one piece of an answer,
// of about 64 KiB, unless a Config says otherwise.
const defaultPieceTimeout = 30 * time.Second

// A Config says what a [Handler] needs to know.
type Config struct {
	Problems *problem.Set
	Flags    vitals.FlagLimits // which values are flagged as unusual

	// Param returns a variable of the request's path, such as "device".
	Param func(r *http.Request, name string) string

	// Gate decides who may read what. Nil: everybody may read everything.
	Gate *gate.Gate

	// PieceTimeout is how long a client may take to read one piece of an answer, of
	// about 64 KiB. It takes the place of the server's WriteTimeout, so that an answer
	// may take long as a whole. Default 30 s.
	PieceTimeout time.Duration

	// Bound bounds the requests that are answered at one time, of those that the Gate
	// lets in. Nil: nothing does. Holders divide it. Nil: it is not divided.
	Bound   *Bound
	Holders *share.Holders

	// Failed is told of errors of the store and of the Gate. May be nil.
	Failed func(error)
}

// A Handler answers the questions of the read API. Its methods are
// http.HandlerFuncs for GET and HEAD.
type Handler struct {
	reader  Reader
	lister  Lister
	cfg     Config
	object  *reply.Head                   // 200 with a JSON body that is there whole
	streams [len(formatNames)]*reply.Head // 200 with a body that is written while it is read
}

// New returns a Handler that reads from reader and lister.
func New(reader Reader, lister Lister, cfg Config) *Handler {
	if cfg.PieceTimeout <= 0 {
		cfg.PieceTimeout = defaultPieceTimeout
	}
	h := &Handler{reader: reader, lister: lister, cfg: cfg}
	if cfg.Gate == nil {
		h.cfg.Gate = &gate.Gate{}
	}
	h.object = reply.NewHead(http.StatusOK, JSON.ContentType(), reply.NoStore())
	for f := range Format(len(formatNames)) {
		h.streams[f] = reply.NewHead(http.StatusOK, f.ContentType(), reply.NoStore())
	}
	return h
}

// Devices answers GET /v1/devices: a page of devices in the order of their
// names, of those that the token covers. Parameters: limit (1 to 1000, default
// 100), cursor.
func (h *Handler) Devices(w http.ResponseWriter, r *http.Request) {
	r = toItsEnd(r)
	pass, leave, ok := h.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	values, err := parseParams(r.URL.RawQuery, "limit", "cursor")
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	limit, err := limitParam(values, defaultDevices, maxDevices)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	var after vitals.Name
	if values.Has("cursor") {
		if after, err = parseDeviceCursor(values.Get("cursor")); err != nil {
			h.refuse(w, r, &paramError{"cursor", err.Error()})
			return
		}
	}
	// One more than the page holds tells whether there is a next one.
	devices := make([]storage.Device, limit+1)
	n, err := h.lister.Devices(r.Context(), firstOf(&pass, after), devices)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	n = covered(&pass, devices[:n])
	more := n > limit
	n = min(n, limit)
	text := append(make([]byte, 0, 512*n+256), `{"devices":[`...)
	for i := range devices[:n] {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendDevice(append(text, '\n'), &devices[i], &h.cfg.Flags)
	}
	text = append(text, "\n]"...)
	if more {
		text = append(text, `,"next_cursor":"`...)
		text = append(appendDeviceCursor(text, devices[n-1].Name), '"')
	}
	text = append(appendNotice(text), "}\n"...)
	h.writeObject(w, r, text)
}

// Device answers GET /v1/devices/{device}: the latest value of each sign, with
// its own time.
func (h *Handler) Device(w http.ResponseWriter, r *http.Request) {
	r = toItsEnd(r)
	device, _, leave, ok := h.enterDevice(w, r)
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
	text := appendDevice(make([]byte, 0, 1024), &d, &h.cfg.Flags)
	text = text[:len(text)-1] // the notice goes inside
	text = append(appendNotice(text), "}\n"...)
	h.writeObject(w, r, text)
}

// Readings answers GET /v1/devices/{device}/readings. Parameters: from
// (inclusive) and to (exclusive), limit, cursor, order (asc or desc), format
// (json, ndjson or csv; the Accept header where it is missing), flags (true or
// false).
//
// Where a limit ends an NDJSON or CSV answer, the cursor of the next page comes
// in the trailer Pulsegate-Next-Cursor; a JSON answer holds it.
//
// An export is recorded before its first byte is sent: an answer as NDJSON or CSV, one
// of more than 1000 readings, or one of fewer when many were read in such pages lately.
func (h *Handler) Readings(w http.ResponseWriter, r *http.Request) {
	r = toItsEnd(r)
	device, pass, leave, ok := h.enterDevice(w, r)
	if !ok {
		return
	}
	defer leave()
	w.Header().Add("Vary", "Accept") // the media type depends on it
	format, acceptable := negotiate(r.Header["Accept"])
	q, err := parseReadings(device, r.URL.RawQuery, format)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if !acceptable && !hasFormat(r) {
		h.cfg.Problems.NotAcceptable.Write(w, r, "Accept application/json, application/x-ndjson or text/csv, or name one with format.")
		return
	}
	trailer := q.Format != JSON && q.Limit > 0
	counted := func(readings int) {}
	allowed := func() bool { return h.mayRead(r, device) }
	out := &pieceWriter{w: w, rc: http.NewResponseController(w), timeout: h.cfg.PieceTimeout, allowed: allowed, begin: func() error {
		export := q.isExport()
		if !export && r.Method != http.MethodHead {
			export, counted = h.count(&pass, &q)
		}
		if export && r.Method != http.MethodHead {
			if err := h.exporting(r, &pass, &q); err != nil {
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
	}}
	defer out.watch()()
	var page Page
	if r.Method == http.MethodHead {
		_, err = h.reader.Latest(r.Context(), device)
	} else {
		page, err = WriteReadings(r.Context(), out, h.reader, q, &h.cfg.Flags)
		counted(page.Readings)
	}
	if err == nil && !out.begun { // an answer without readings may have no text
		err = out.begin()
	}
	switch {
	case errors.Is(err, errRevoked) && !out.begun:
		h.cfg.Problems.InvalidCredentials.Write(w, r, "")
	case errors.Is(err, errNotRecorded):
		h.report(err)
		h.cfg.Problems.ReadFailed.Write(w, r, "The export could not be recorded in the audit log.")
	case err != nil && !out.begun:
		h.fail(w, r, err)
	case err != nil:
		h.report(err)
		// The status has gone out. Cutting the connection is the only way left to
		// say that this is not all.
		panic(http.ErrAbortHandler)
	case trailer && page.Cursor != "":
		w.Header().Set(cursorTrailer, page.Cursor)
	}
}

// toItsEnd returns r with a context that does not end before its answer. net/http ends
// that of a client that has closed its sending side, and may read the answer all the
// same. Of one that is gone, the first piece that is written finds out.
func toItsEnd(r *http.Request) *http.Request {
	return r.WithContext(context.WithoutCancel(r.Context()))
}

// cursorTrailer carries the cursor of the next page behind a streamed answer.
const cursorTrailer = "Pulsegate-Next-Cursor"

// hasFormat reports whether the query names a format.
func hasFormat(r *http.Request) bool { return r.URL.Query().Has("format") }

// device returns the device that the path names.
func (h *Handler) device(r *http.Request) (vitals.Name, error) {
	name, err := vitals.ParseName(h.cfg.Param(r, "device"))
	if err != nil {
		return name, &paramError{"device", (&vitals.FieldError{Err: vitals.ErrName}).Reason()}
	}
	return name, nil
}

func (h *Handler) writeObject(w http.ResponseWriter, r *http.Request, text []byte) {
	_ = h.object.Write(w, r, text) // an error means that the client has gone
}

// refuse answers a question that is not well formed.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var param *paramError
	if !errors.As(err, &param) {
		h.fail(w, r, err)
		return
	}
	if param.name == "" {
		h.cfg.Problems.BadParameter.Write(w, r, "", reply.String("reason", param.reason))
		return
	}
	h.cfg.Problems.BadParameter.Write(w, r, "", reply.String("field", param.name), reply.String("reason", param.reason))
}

// fail answers a question that the store could not answer.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, storage.ErrNotFound):
		h.cfg.Problems.UnknownDevice.Write(w, r, "")
	case errors.Is(err, storage.ErrClosed):
		// As package ingest has it: who is told so at one moment must not come back at one.
		h.cfg.Problems.Draining.WriteRetryAfter(w, r, time.Duration(2+rand.IntN(5))*time.Second, "")
	default:
		h.report(err)
		h.cfg.Problems.ReadFailed.Write(w, r, "")
	}
}

// report tells of an error of the store. That the client went away is none.
func (h *Handler) report(err error) {
	if h.cfg.Failed != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errClientGone) && !errors.Is(err, errRevoked) {
		h.cfg.Failed(err)
	}
}

var (
	// errClientGone means that an answer could not be written.
	errClientGone = errors.New("query: the client does not read")

	// errNotRecorded means that an export was not begun.
	errNotRecorded = errors.New("query: the export could not be recorded")
)
