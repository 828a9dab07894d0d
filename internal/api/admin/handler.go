package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/pulsegate/pulsegate/internal/access/audit"
	"github.com/pulsegate/pulsegate/internal/api/problem"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Paths on the admin listener, used by package transfer.
const (
	BackupPath = "/admin/backup"
	ErasePath  = "/admin/erase"
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
	c, err := h.opt.Backup()
	if err != nil {
		h.refuse(w, r, "backup", err)
		return
	}
	closed := false
	closeCopy := func() {
		if closed {
			return
		}
		closed = true
		if err := c.Close(); err != nil {
			h.opt.Log.Error("the temporary copy of a backup cannot be removed; the next start removes it", "error", err)
		}
	}
	defer closeCopy()
	// Record before sending the first byte: a backup that cannot be recorded must not
	// be sent.
	if err := h.opt.Record(audit.Record{Event: audit.BackedUp, Actor: h.opt.Actor(r.Context()), Peer: peer(r)}); err != nil {
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
		closeCopy()
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

// maxEraseBytes bounds the body of a request to erase.
const maxEraseBytes = 1 << 10

// An eraseRequest is the body of a request to erase a device.
type eraseRequest struct {
	Device string `json:"device"`
}

// An eraseAnswer is the body of the response.
type eraseAnswer struct {
	Device string `json:"device"`
	Erased int64  `json:"erased"` // number of readings
	Detail string `json:"detail,omitzero"`
}

// erasedRest is the detail of an erasure that found no readings.
const erasedRest = "No readings were stored. Remains of earlier readings in its files are removed."

// Erase erases the device named in the body: {"device":"ppg-000123"}.
func (h *Handler) Erase(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEraseBytes))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			h.opt.Problems.TooLarge.Write(w, r, "")
		} else {
			h.opt.Problems.Malformed.Write(w, r, "The body is cut off.")
		}
		return
	}
	var asked eraseRequest
	if err := json.Unmarshal(body, &asked, json.RejectUnknownMembers(true)); err != nil {
		h.opt.Problems.Malformed.Write(w, r, `The body is not of the form {"device":"..."}.`)
		return
	}
	device, err := vitals.ParseName(asked.Device)
	if err != nil {
		h.opt.Problems.BadParameter.Write(w, r, "The device is not a valid name.")
		return
	}
	actor := h.opt.Actor(r.Context())
	begun := time.Now()
	var recordErr error
	e, err := h.opt.Erase(device, func(e storage.Erasure) error {
		recordErr = h.opt.Record(audit.Record{Event: audit.Erased, Device: device, Count: e.Readings, Actor: actor, Peer: peer(r)})
		return recordErr
	})
	if recordErr != nil {
		h.opt.Log.Error("an erasure cannot be recorded in the audit log", "device", device, "readings", e.Readings, "error", recordErr)
		h.opt.Problems.ErasureUnfinished.Write(w, r,
			"The device is erased, but that could not be recorded in the audit log. Repeat the request, or the next start of the server records it.")
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
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err) // a struct of strings and numbers
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
		p.ErasureUnfinished.Write(w, r, "Repeat the request; the next start of the server finishes the erasure in any case.")
	case errors.Is(err, storage.ErrNotFound):
		p.UnknownDevice.Write(w, r, "")
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

// peer returns the client's address.
func peer(r *http.Request) netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr()
}
