package fhir

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Corrections
//
// A stored value never changes. An update with the status entered-in-error erases what an Observation is about, for a
// client whose token has the right to erase. Only the requests of such a client are examined here before they are
// decoded; those of others are rejected then, because the status is not final.

// maxCorrection is the length in bytes of the longest Observation that is examined.
const maxCorrection = 64 << 10

// A withdrawn is what an update has of an Observation that is to be erased.
type withdrawn struct {
	ResourceType string `json:"resourceType"`
	ID           string `json:"id"`
	Status       string `json:"status"`
}

// A corrector serves corrections.
type corrector struct{ *Handler }

// before returns a handler that erases the Observation of an update with the status entered-in-error, and leaves
// all other requests to next.
func (h corrector) before(next http.Handler) http.Handler {
	if h.opt.Erase == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !gate.Holds(h.opt.Gate, gate.CredentialsOf(r), token.Admin, time.Now()) {
			next.ServeHTTP(w, r)
			return
		}
		text, err := io.ReadAll(io.LimitReader(r.Body, maxCorrection+1))
		var sent withdrawn
		if err != nil || len(text) > maxCorrection || json.Unmarshal(text, &sent) != nil ||
			sent.ResourceType != "Observation" || sent.Status != "entered-in-error" {
			rest := r.WithContext(r.Context())
			rest.Body = &readAgain{io.MultiReader(bytes.NewReader(text), r.Body), r.Body}
			next.ServeHTTP(w, rest)
			return
		}
		if access, verdict := h.opt.May(r, token.Admin); !h.opt.Refuse(w, r, verdict, "The admin right is required.") {
			h.withdraw(w, r, &access, &sent)
		}
	})
}

// A readAgain is a body of which the beginning was read.
type readAgain struct {
	io.Reader
	io.Closer
}

// withdraw erases the values of an Observation. A client that disconnects does not stop it.
func (h corrector) withdraw(w http.ResponseWriter, r *http.Request, access *gate.Access, sent *withdrawn) {
	id := h.opt.Param(r, "id")
	if sent.ID != id {
		h.reject(w, r, h.opt.Problems.BadParameter, 0, "The id in the resource is not the one in the URL.")
		return
	}
	e, err := h.view(access).erasure(r, id)
	if err == nil {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // an erasure may take long
		e, err = h.opt.Erase(r, access, e)
	}
	switch {
	case err == nil && e.Readings == 0: // another request has erased it
		h.reject(w, r, h.opt.Problems.NotFound, 0, "")
	case err == nil:
		answer := ingest.Answer{Head: h.heads[contentType], Body: outcomeOf(information, "The Observation is erased.", "")}
		_ = answer.Write(w, r) // an error means that the client has disconnected
	case errors.Is(err, storage.ErrUnfinished):
		h.reject(w, r, h.opt.Problems.ErasureUnfinished, 0,
			"The next erasure, or the next start of the server, finishes it; with PostgreSQL, a server does after a minute, "+
				"unless more was stored since.")
	default:
		h.fail(w, r, access, err)
	}
}

// erasure returns the erasure of the Observation with an id, or an error if it is not served.
func (v *view) erasure(r *http.Request, text string) (e storage.Erasure, err error) {
	id, ok := parseObservationID(v.Signs(), text)
	if !ok {
		return e, storage.ErrNotFound
	}
	device, err := v.readable(r.Context(), &id.device)
	if err != nil {
		return e, err
	}
	record, err := v.recordAt(r.Context(), device, id.unixMs)
	if err != nil || groupsOf(&record.Values)&(1<<id.group) == 0 {
		return e, notFoundOr(err)
	}
	assignments, err := v.ofDevices(r.Context(), device)
	if err == nil && storage.SubjectAt(assignments, id.unixMs) == "" {
		err = storage.ErrNotFound
	}
	e = storage.Erasure{Device: device, FromUnixMs: id.unixMs, ToUnixMs: id.unixMs + 1}
	for _, c := range mappingOf(v.Signs(), id.group).components {
		e.Signs |= 1 << c.sign
	}
	return e, err
}
