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

// Paths of the admin listener, which package transfer posts to.
const (
	BackupPath = "/admin/backup"
	ErasePath  = "/admin/erase"
)

// BytesHeader tells the size of the files in a backup, which is a little less than
// that of the archive.
const BytesHeader = "Pulsegate-Backup-Bytes"

// A Copy is a consistent copy of a store, to be sent.
type Copy interface {
	Bytes() int64 // of its files
	io.WriterTo   // writes an archive
	Close() error
}

// A Config says what a Handler works with. All fields are needed.
type Config struct {
	Backup func() (Copy, error)

	// Erase erases a device, and calls record when nothing is left of it. The erasure
	// is not finished before record has returned nil.
	Erase func(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error)

	Record   func(audit.Record) error
	Actor    func(context.Context) string // who asks, for the audit log
	Problems *problem.Set
	Log      *slog.Logger
}

// A Handler answers administrators. Whoever gets to it may do everything.
type Handler struct{ cfg Config }

// NewHandler returns a handler.
func NewHandler(cfg Config) *Handler { return &Handler{cfg} }

// stallTimeout is how long a client may take no part of a backup: it keeps files on
// the disk that would else be removed, and erasures waiting.
const stallTimeout = 60 * time.Second

// Backup sends a backup of the store, as a tar archive.
func (h *Handler) Backup(w http.ResponseWriter, r *http.Request) {
	c, err := h.cfg.Backup()
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
			h.cfg.Log.Error("what a backup was made from cannot be removed; the next start does", "error", err)
		}
	}
	defer closeCopy()
	// Recorded before the first byte is sent: what cannot be recorded is not sent.
	if err := h.cfg.Record(audit.Record{Event: audit.BackedUp, Actor: h.cfg.Actor(r.Context()), Peer: peer(r)}); err != nil {
		h.cfg.Log.Error("a backup cannot be recorded in the audit log", "error", err)
		h.cfg.Problems.ReadFailed.Write(w, r, "The backup could not be recorded in the audit log.")
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set(BytesHeader, strconv.FormatInt(c.Bytes(), 10))
	begun := time.Now()
	n, err := c.WriteTo(&steadyWriter{w: w, control: http.NewResponseController(w)})
	if err != nil {
		h.cfg.Log.Error("a backup was cut off", "bytes", n, "error", err)
		closeCopy()
		panic(http.ErrAbortHandler) // the client must not take it for a whole one
	}
	h.cfg.Log.Info("backup sent", "bytes", n, "took", time.Since(begun))
}

// A steadyWriter gives each write its own time.
type steadyWriter struct {
	w       io.Writer
	control *http.ResponseController
}

func (s *steadyWriter) Write(p []byte) (int, error) {
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

// An eraseAnswer tells what was erased.
type eraseAnswer struct {
	Device string `json:"device"`
	Erased int64  `json:"erased"` // readings
	Detail string `json:"detail,omitzero"`
}

// erasedRest is the detail of an erasure that found no reading.
const erasedRest = "No readings were stored. What its files may have held of earlier ones is removed."

// Erase erases the device that the body names: {"device":"ppg-000123"}.
func (h *Handler) Erase(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEraseBytes))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			h.cfg.Problems.TooLarge.Write(w, r, "")
		} else {
			h.cfg.Problems.Malformed.Write(w, r, "The body is cut off.")
		}
		return
	}
	var asked eraseRequest
	if err := json.Unmarshal(body, &asked, json.RejectUnknownMembers(true)); err != nil {
		h.cfg.Problems.Malformed.Write(w, r, `The body is not of the form {"device":"..."}.`)
		return
	}
	device, err := vitals.ParseName(asked.Device)
	if err != nil {
		h.cfg.Problems.BadParameter.Write(w, r, "The device is not a name.")
		return
	}
	actor := h.cfg.Actor(r.Context())
	begun := time.Now()
	var recordErr error
	e, err := h.cfg.Erase(device, func(e storage.Erasure) error {
		recordErr = h.cfg.Record(audit.Record{Event: audit.Erased, Device: device, Count: e.Readings, Actor: actor, Peer: peer(r)})
		return recordErr
	})
	if recordErr != nil {
		h.cfg.Log.Error("an erasure cannot be recorded in the audit log", "device", device, "readings", e.Readings, "error", recordErr)
		h.cfg.Problems.ErasureUnfinished.Write(w, r,
			"The device is erased. That could not be recorded in the audit log: ask again, or the next start of the server records it.")
		return
	}
	if err != nil {
		h.refuse(w, r, "erasure", err)
		return
	}
	h.cfg.Log.Info("device erased", "device", device, "readings", e.Readings, "took", time.Since(begun))
	answer := eraseAnswer{Device: device.String(), Erased: e.Readings}
	if e.Readings == 0 {
		answer.Detail = erasedRest
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err) // a struct of a name and a number
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // who is gone learns of it by asking again
}

// retryAfter is what those are told who come beside a backup or an erasure.
const retryAfter = 30 * time.Second

// refuse answers what could not be done.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, what string, err error) {
	p := h.cfg.Problems
	switch {
	case errors.Is(err, storage.ErrUnfinished):
		h.cfg.Log.Error("an erasure is not finished", "error", err)
		p.ErasureUnfinished.Write(w, r, "Ask for it again; the next start of the server finishes it in any case.")
	case errors.Is(err, storage.ErrNotFound):
		p.UnknownDevice.Write(w, r, "")
	case errors.Is(err, storage.ErrBusy):
		p.Busy.WriteRetryAfter(w, r, retryAfter, "")
	case errors.Is(err, storage.ErrClosed):
		p.Draining.WriteRetryAfter(w, r, retryAfter, "")
	case errors.Is(err, storage.ErrDiskLow):
		h.cfg.Log.Error("upkeep refused", "what", what, "error", err)
		p.DiskLow.WriteRetryAfter(w, r, retryAfter, "An erasure needs space to rewrite what it erases.")
	case errors.Is(err, storage.ErrFailed):
		p.StoreFailed.WriteRetryAfter(w, r, retryAfter, "")
	default:
		h.cfg.Log.Error("upkeep failed", "what", what, "error", err)
		p.ReadFailed.Write(w, r, "The server's log tells more.")
	}
}

// peer returns where a request came from.
func peer(r *http.Request) netip.Addr {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Addr()
}
