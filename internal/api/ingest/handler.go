package ingest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/observe/tracing"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// Handler returns the net/http front of c, for requests of a form; nil means that of POST /v1/readings.
// It answers every request. Its server must set:
//
//   - ReadTimeout, to bound how long a body may take to arrive;
//   - WriteTimeout, to bound how long a client may take to read its answer.
func (c *Core) Handler(form Form) http.Handler {
	return &handler{core: c, bodies: bodyReader{core: c}, form: form}
}

type handler struct {
	core   *Core
	bodies bodyReader
	paused atomic.Int64 // number of paused connections
	form   Form         // nil for POST /v1/readings
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.core
	auth, why := c.enter(gate.CredentialsOf(r), c.cfg.Now())
	switch {
	case why.kind == refusedDraining:
		h.refuse(w, r, &why)
		return
	case why.kind != 0:
		h.rejectEarly(w, r, &why)
		return
	case r.ContentLength == 0 && len(r.Header["Content-Length"]) == 0:
		h.refuse(w, r, &refusal{kind: refusedNoLength, detail: "Send a Content-Length, or a chunked body."})
		return
	}
	if c.full() || c.memory.rejects(r.ContentLength) {
		h.refuseUnread(w, r)
		return
	}
	holder := auth.access.Holder(c.cfg.Holders, gate.PeerOf(r))
	defer c.cfg.Holders.Put(holder)
	job, more, err := h.receive(w, r, holder)
	if err != nil {
		h.refuseBody(w, r, err)
		return
	}
	defer job.Release()
	if more {
		job.Commit(c.waiting)
	}
	answer := job.Answer()
	job.releaseBuffers()
	if answer.Write(w, r) != nil {
		job.out = nil
		return
	}
	if job.refusal.kind == refusedOverloaded {
		h.pause(w, r)
	}
}

// receive reads the body of a request and decodes it into a Job. It borrows the Job only after
// the body has arrived, which may take long. It releases the body's memory before the commit,
// which may take long, and before a refusal, after which a client may retry immediately.
func (h *handler) receive(w http.ResponseWriter, r *http.Request, holder *share.Holder) (job *Job,
	more bool, err error) {
	t, now := h.core.traceOf(r), h.core.cfg.Now
	t.begins(tracing.Read, now)
	buf, err := h.bodies.read(h.paced(w, r), holder, r.Header.Get("Content-Encoding"), r.ContentLength)
	t.ends(tracing.Read, now)
	defer h.bodies.release(buf)
	if err != nil {
		return nil, false, err
	}
	job = h.core.Job()
	job.trace, job.holder = t, holder
	if h.form != nil {
		job.input = h.form(r)
	}
	t.begins(tracing.Decode, now)
	defer t.ends(tracing.Decode, now)
	job.slot = slotFor(h.core, len(buf.bytes))
	defer job.slot.close()
	// The body may have taken long to arrive, and the token may have been revoked since.
	if job.auth, job.refusal = h.core.enter(gate.CredentialsOf(r), now()); job.refusal.kind != 0 {
		return job, false, nil
	}
	return job, job.Decode(buf.bytes), nil
}

// At most maxDecoding bodies longer than largeBodyBytes are decoded concurrently. Two processors
// decode more readings than the committer can commit.
const (
	largeBodyBytes = 64 << 10
	maxDecoding    = 2
)

// maxSkippedBytes is the length of the longest body that is read and discarded so that the
// connection can be reused.
const maxSkippedBytes = 64 << 10

// refuseUnread answers a request when the server is overloaded, before a large body is read.
func (h *handler) refuseUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > maxSkippedBytes {
		w.Header().Set("Connection", "close") // cheaper than reading the body
		h.refuse(w, r, errOverloaded)
		return
	}
	// net/http would read a small body anyway, after the handler. Sending the answer before
	// that requires EnableFullDuplex, with which Go 1.26's server panics if the handler leaves
	// a part of the body unread.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		h.refuseBody(w, r, err)
		return
	}
	h.refuse(w, r, errOverloaded)
	h.pause(w, r)
}

// pause sends the answer, and then stops reading the connection for a while.
func (h *handler) pause(w http.ResponseWriter, r *http.Request) {
	if r.Close || http.NewResponseController(w).Flush() != nil {
		return
	}
	timer := time.NewTimer(pauseFor(h.paused.Add(1)))
	defer timer.Stop()
	defer h.paused.Add(-1)
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// Overloaded returns a handler that rejects every request as overloaded, and closes its
// connection.
func (c *Core) Overloaded(form Form) http.Handler {
	h := &handler{core: c, form: form}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		h.refuse(w, r, errOverloaded)
	})
}

// maxPassedOver is the length in bytes of the longest body that is read and discarded to keep
// the connection. net/http reads as much after a handler.
const maxPassedOver = 256 << 10

// rejectEarly answers a request before its body, if the client may not send it. A short body
// is discarded after the answer, so that a client that renews its token need not connect again;
// otherwise the connection is closed.
func (h *handler) rejectEarly(w http.ResponseWriter, r *http.Request, why *refusal) {
	out := http.NewResponseController(w)
	switch {
	case r.ContentLength == 0, r.ProtoMajor > 1, r.Header["Expect"] != nil:
		h.refuse(w, r, why) // there is none, or net/http knows what to do
		return
	case r.ContentLength > maxPassedOver, out.EnableFullDuplex() != nil:
		w.Header().Set("Connection", "close")
		h.refuse(w, r, why)
		return
	}
	h.refuse(w, r, why)
	_ = out.Flush() // after an error, the next line fails too
	if _, err := io.CopyN(io.Discard, r.Body, maxPassedOver+1); err != io.EOF {
		// The rest of the body could be parsed as a request by this server, but not by a proxy.
		panic(http.ErrAbortHandler)
	}
}

// refuse answers a request whose body was not decoded.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, why *refusal) {
	h.core.counters.refused[why.kind].Add(1)
	answer := h.core.answers.to(why, new([]byte))
	if h.form != nil {
		if input, ok := h.form(r).(Responder); ok {
			own := *why // not why, which would then be on the heap for every request
			answer = input.Respond(&Outcome{core: h.core, refusal: &own})
		}
	}
	_ = answer.Write(w, r) // the client has disconnected
}

// refuseBody answers a request whose body could not be read.
func (h *handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		// The connection broke, its framing is invalid, or the body took too long. If the client
		// is still connected, the answer tells it that nothing was stored. The rest of the body
		// cannot be distinguished from a request, so close the connection.
		w.Header().Set("Connection", "close")
		why = errCutOff
		if errors.Is(err, os.ErrDeadlineExceeded) {
			why = errTimeout
		}
	}
	h.refuse(w, r, why)
}
