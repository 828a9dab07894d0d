package admin

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Paths on the admin listener, used by package transfer.
const (
	BackupPath = "/admin/backup"
	ErasePath  = "/admin/erase"

	AssignPath      = "/admin/subject/assign"
	EndPath         = "/admin/subject/end"
	AssignmentsPath = "/admin/subject/list"
)

// BytesHeader is the header with the total size of the files in a backup. The archive
// is slightly larger.
const BytesHeader = "Pulsegate-Backup-Bytes"

// A Copy is a consistent copy of a store.
type Copy interface {
	Bytes() int64 // total size of its files
	io.WriterTo   // writes an archive
	Close() error
}

// Options configure a [Handler]. All fields are required.
type Options struct {
	Backup func() (Copy, error)

	// Erase erases a device and calls record when none of its readings is left. The
	// erasure is finished only when record has returned nil.
	Erase func(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error)

	// EraseAssignment is like Erase for an assignment, with what was measured during it.
	EraseAssignment func(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure, error)

	// EraseValues is like Erase for values of a device.
	EraseValues func(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error)

	// Latest and Scan are methods of the store.
	Latest func(ctx context.Context, device vitals.Name) (storage.Device, error)
	Scan   func(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)

	Subjects storage.Subjects
	Signs    *vitals.Signs // that the store has

	Record   func(audit.Record) error
	Actor    func(context.Context) string // the requester, for the audit log
	Problems *problem.Set
	Log      *slog.Logger
}

// A Handler serves administrators. It does not authorize requests.
type Handler struct{ opt Options }

// NewHandler returns a handler.
func NewHandler(opt Options) *Handler { return &Handler{opt} }

// stallTimeout bounds each write of a backup. A backup in progress keeps files that
// would otherwise be removed, and blocks erasures.
const stallTimeout = 60 * time.Second

// Backup sends a backup of the store, as a tar archive.
func (h *Handler) Backup(w http.ResponseWriter, r *http.Request) {
	if !r.ProtoAtLeast(1, 1) {
		h.opt.Problems.OldHTTP.Write(w, r, "")
		return
	}
	c, err := h.opt.Backup()
	if err != nil {
		h.refuse(w, r, "backup", err)
		return
	}
	defer func() {
		if err := c.Close(); err != nil {
			h.opt.Log.Error("the temporary copy of a backup cannot be removed; the next start removes it", "error", err)
		}
	}()
	// Record before sending the first byte: a backup that cannot be recorded must not
	// be sent.
	if err := h.opt.Record(audit.Record{Event: audit.BackedUp, Actor: h.opt.Actor(r.Context()),
		Peer: gate.PeerOf(r).PeerAddr()}); err != nil {
		h.opt.Log.Error("a backup cannot be recorded in the audit log", "error", err)
		h.opt.Problems.ReadFailed.Write(w, r, "The backup could not be recorded in the audit log.")
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set(BytesHeader, strconv.FormatInt(c.Bytes(), 10))
	begun := time.Now()
	n, err := c.WriteTo(&deadlineWriter{w: w, control: http.NewResponseController(w)})
	if err != nil {
		h.opt.Log.Error("a backup was cut off", "bytes", n, "error", err)
		panic(http.ErrAbortHandler) // the client must not mistake it for a complete backup
	}
	h.opt.Log.Info("backup sent", "bytes", n, "took", time.Since(begun))
}

// A deadlineWriter sets a deadline for each write.
type deadlineWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (s *deadlineWriter) Write(p []byte) (int, error) {
	if err := s.control.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}

// maxBodyBytes bounds the body of a request.
const maxBodyBytes = 4 << 10 // with the names of all signs

// An eraseRequest is the body of a request to erase a device, a subject, or values of a device.
type eraseRequest struct {
	Device  string `json:"device"`
	Subject string `json:"subject"`

	Correction
	DryRun bool `json:"dry_run"` // of a Correction: erase nothing, and say what would be
}

// corrects returns a field of a Correction that the request has, or "" if it is about everything. One that is given,
// but empty, counts, and is a FieldError: it must not widen the erasure.
func (r *eraseRequest) corrects(body []byte) (field string, err error) {
	var given map[string]jsontext.Value
	if err := json.Unmarshal(body, &given); err != nil {
		return "", err
	}
	for _, name := range []string{"from", "to", "signs", "gateway"} {
		value, ok := given[name]
		if !ok {
			continue
		}
		field = cmp.Or(field, name)
		switch value.Compact(); string(value) {
		case "null", `""`, "[]":
			return field, &FieldError{name, "it is empty"}
		}
	}
	switch {
	case field == "" && r.Shared:
		field = "shared"
	case field == "" && r.DryRun:
		field = "dry_run"
	}
	return field, nil
}

// An eraseAnswer is the body of the response.
type eraseAnswer struct {
	Device string `json:"device,omitzero"`

	From string `json:"from,omitzero"` // of values
	To   string `json:"to,omitzero"`

	Subject     string `json:"subject,omitzero"`
	Assignments int64  `json:"assignments,omitzero"` // erased ones of the subject

	Erased int64  `json:"erased"` // number of readings
	Detail string `json:"detail,omitzero"`
}

// erasedRest is the detail of an erasure that found no readings.
const erasedRest = "No readings were stored. Remains of earlier readings in its files are removed."

// eraseForm describes the body of a request to erase.
const eraseForm = `{"device":"..."}, {"subject":"..."} or {"device":"...","from":"...","to":"..."}`

// Erase erases the device named in the body, {"device":"ppg-000123"}, what was measured of a
// subject, {"subject":"P-17"}, or values of a device:
//
//	{"device":"ppg-000123","from":"2026-11-21T08:00:00Z","to":"2026-11-21T09:00:00Z",
//	 "signs":["spo2_pct"],"gateway":"ward-3"}
//
// With "dry_run":true, it erases nothing, and answers with the number of readings of each gateway.
func (h *Handler) Erase(w http.ResponseWriter, r *http.Request) {
	var asked eraseRequest
	var body jsontext.Value
	if !h.read(w, r, &body, eraseForm) || !h.decode(w, r, body, &asked, eraseForm) {
		return
	}
	corrects, err := asked.corrects(body)
	if field, ok := errors.AsType[*FieldError](err); ok {
		h.badField(w, r, field.Field, field.Reason)
		return
	}
	if asked.Subject != "" && corrects != "" {
		h.badField(w, r, "subject", "it cannot be combined with "+corrects)
		return
	}
	if asked.Subject != "" && asked.Device == "" {
		if subject, ok := h.subject(w, r, asked.Subject); ok {
			h.eraseSubject(w, r, subject)
		}
		return
	}
	if asked.Subject != "" {
		h.opt.Problems.BadParameter.Write(w, r, "Name a device or a subject, not both.")
		return
	}
	device, err := vitals.ParseName(asked.Device)
	if err != nil {
		h.opt.Problems.BadParameter.Write(w, r, "The device is not a valid name.")
		return
	}
	if corrects != "" {
		h.eraseValues(w, r, device, &asked)
		return
	}
	actor := h.opt.Actor(r.Context())
	begun := time.Now()
	var recordErr error
	e, err := h.opt.Erase(device, func(e storage.Erasure) error {
		recordErr = h.opt.Record(audit.Record{Event: audit.Erased, Device: device, Count: e.Readings, Actor: actor,
			Peer: gate.PeerOf(r).PeerAddr()})
		return recordErr
	})
	if recordErr != nil {
		h.notRecorded(w, r, e, recordErr)
		return
	}
	if err != nil {
		h.refuse(w, r, "erasure", err)
		return
	}
	h.opt.Log.Info("device erased", "device", device, "readings", e.Readings, "took", time.Since(begun))
	answer := eraseAnswer{Device: device.String(), Erased: e.Readings}
	if e.Readings == 0 {
		answer.Detail = erasedRest
	}
	h.answer(w, answer)
}

// read reads the body of a request as JSON into asked, or answers the request. form describes the
// body.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, asked any, form string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			h.opt.Problems.TooLarge.Write(w, r, "")
		} else {
			h.opt.Problems.Malformed.Write(w, r, "The body is cut off.")
		}
		return false
	}
	return h.decode(w, r, body, asked, form)
}

// decode is the second step of read.
func (h *Handler) decode(w http.ResponseWriter, r *http.Request, body []byte, asked any, form string) bool {
	if err := json.Unmarshal(body, asked, json.RejectUnknownMembers(true)); err != nil {
		h.opt.Problems.Malformed.Write(w, r, "The body is not of the form "+form+".")
		return false
	}
	return true
}

// answer writes a struct of strings and numbers as JSON.
func (h *Handler) answer(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // a client that has disconnected can repeat the request
}

// retryAfter is the Retry-After for requests during a backup or an erasure.
const retryAfter = 30 * time.Second

// refuse answers a request that failed.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, what string, err error) {
	p := h.opt.Problems
	switch {
	case errors.Is(err, storage.ErrUnfinished):
		h.opt.Log.Error("an erasure is not finished", "error", err)
		p.ErasureUnfinished.Write(w, r, "Repeat the request, which finishes the erasure. "+
			"So does the next start of the server, and with PostgreSQL a server after a minute, unless more was stored since.")
	case errors.Is(err, storage.ErrNotFound):
		p.UnknownDevice.Write(w, r, "")
	case errors.Is(err, storage.ErrNotAssigned):
		p.NotAssigned.Write(w, r, "")
	case errors.Is(err, storage.ErrAssigned):
		p.Assigned.Write(w, r, "Assignments of a device must not overlap. End the other one first.")
	case errors.Is(err, storage.ErrTooManyAssignments):
		h.badField(w, r, "device", "it has "+strconv.Itoa(storage.MaxAssignments)+" assignments, which is the most")
	case errors.Is(err, storage.ErrPeriod):
		h.badField(w, r, "to", "it is not after the beginning")
	case errors.Is(err, storage.ErrBusy):
		p.Busy.WriteRetryAfter(w, r, retryAfter, "")
	case errors.Is(err, storage.ErrClosed):
		p.Draining.WriteRetryAfter(w, r, retryAfter, "")
	case errors.Is(err, storage.ErrDiskLow):
		h.opt.Log.Error("admin request rejected", "what", what, "error", err)
		p.DiskLow.WriteRetryAfter(w, r, retryAfter, "An erasure needs disk space to rewrite files.")
	case errors.Is(err, storage.ErrFailed):
		p.StoreFailed.WriteRetryAfter(w, r, retryAfter, "")
	default:
		h.opt.Log.Error("admin request failed", "what", what, "error", err)
		p.ReadFailed.Write(w, r, "See the server's log.")
	}
}
