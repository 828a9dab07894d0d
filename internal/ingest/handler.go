package ingest

import (
	"errors"
	"net/http"
	"os"
)

// Handler returns the net/http front of c, for POST /v1/readings. It answers
// every request, and needs of its server:
//
//   - ReadTimeout, which bounds how long a body may take to arrive;
//   - WriteTimeout, for clients that do not read their answer.
func (c *Core) Handler() http.Handler {
	return &handler{core: c, bodies: bodyReader{core: c}}
}

type handler struct {
	core   *Core
	bodies bodyReader
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.core
	if c.draining.Load() {
		h.refuse(w, r, refusal{kind: refusedDraining})
		return
	}
	if r.ContentLength == 0 && len(r.Header["Content-Length"]) == 0 {
		h.refuse(w, r, refusal{kind: refusedNoLength, detail: "Send a Content-Length, or a chunked body."})
		return
	}
	buf, err := h.bodies.read(r.Body, r.Header.Get("Content-Encoding"), r.ContentLength)
	defer func() { h.bodies.release(buf) }()
	if err != nil {
		h.bodies.release(buf) // before the client knows, who may come again at once
		buf = nil
		h.refuseBody(w, r, err)
		return
	}
	job := c.Job()
	defer job.Release()
	more := job.Decode(buf.bytes)
	h.bodies.release(buf) // a commit may take long, and needs no body
	buf = nil
	if more {
		job.Commit(c.waiting)
	}
	answer := job.Answer()
	job.slim()
	if answer.Write(w, r) != nil {
		job.out = nil
	}
}

// refuse answers a request of which the body was not decoded.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, why refusal) {
	h.core.counters.refused[why.kind].Add(1)
	answer := h.core.answerTo(why)
	_ = answer.Write(w, r) // there is nobody left to tell
}

// refuseBody answers a request whose body could not be read.
func (h *handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errTooLarge):
		h.refuse(w, r, refusal{kind: refusedTooLarge, detail: h.core.tooLargeBatch})
	case errors.Is(err, errNoMemory):
		h.refuse(w, r, refusal{kind: refusedOverloaded})
	case errors.Is(err, errUnknownCE):
		h.refuse(w, r, refusal{kind: refusedEncoding, detail: "Send gzip, zstd, or no Content-Encoding."})
	case errors.Is(err, errWindow):
		h.refuse(w, r, refusal{kind: refusedTooLarge, detail: "A zstd window may have 8 MiB."})
	case errors.Is(err, errDamaged):
		h.refuse(w, r, refusal{kind: refusedMalformed, detail: "The compressed body is damaged or cut off."})
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close") // what is left of the body cannot be told from a request
		h.refuse(w, r, refusal{kind: refusedTimeout})
	default:
		// The connection broke, or its framing is not valid. Whoever is still
		// there learns that nothing was stored.
		w.Header().Set("Connection", "close")
		h.refuse(w, r, refusal{kind: refusedMalformed, detail: "The body ended before its announced length, or its framing is not valid."})
	}
}
