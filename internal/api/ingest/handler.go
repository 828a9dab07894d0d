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
	paused atomic.Int64 // connections that are not read for a moment
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.core
	permitted, why := c.enter(gate.CredentialsOf(r), c.cfg.Now())
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
	if c.full() || c.noMemoryFor(r.ContentLength) {
		h.refuseUnread(w, r)
		return
	}
	holder := permitted.pass.Holder(c.cfg.Holders, gate.PeerOf(r))
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
	job.slim()
	if answer.Write(w, r) != nil {
		job.out = nil
		return
	}
	if job.refusal.kind == refusedOverloaded {
		h.pause(w, r)
	}
}

// receive reads the body of a request and decodes it into a Job, which it borrows only
// then: a client may take its time. It gives the body's memory back, since a commit may
// take long, and a client that is refused may retry immediately.
func (h *handler) receive(w http.ResponseWriter, r *http.Request, holder *share.Holder) (job *Job, more bool, err error) {
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
	t.begins(tracing.Decode, now)
	defer t.ends(tracing.Decode, now)
	if len(buf.bytes) > aloneBytes {
		h.core.decoding <- struct{}{}
		defer func() { <-h.core.decoding }()
	}
	// The body may have been long in coming, and the token revoked meanwhile.
	if job.permitted, job.refusal = h.core.enter(gate.CredentialsOf(r), now()); job.refusal.kind != 0 {
		return job, false, nil
	}
	return job, job.Decode(buf.bytes), nil
}

// Bodies longer than aloneBytes are decoded maxDecoding at a time. The committer
// takes fewer readings than two processors decode.
const (
	aloneBytes  = 64 << 10
	maxDecoding = 2
)

// maxSkippedBytes is the length of a body that is read to be forgotten, so that its
// connection can go on.
const maxSkippedBytes = 64 << 10

// refuseUnread answers a request for which there is no room, before a large body is
// read.
func (h *handler) refuseUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > maxSkippedBytes {
		w.Header().Set("Connection", "close") // it is cheaper than what would come
		h.refuse(w, r, errOverloaded)
		return
	}
	// net/http would read it all the same, after the handler. To send the answer
	// before that takes EnableFullDuplex, with which Go 1.26's server panics when
	// the handler has left a part of the body.
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		h.refuseBody(w, r, err)
		return
	}
	h.refuse(w, r, errOverloaded)
	h.pause(w, r)
}

// pause sends the answer, and then keeps the connection from being read for a moment.
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

// Overloaded returns a handler that refuses every request as overload does, and
// ends its connection.
func (c *Core) Overloaded() http.Handler {
	h := &handler{core: c}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		h.refuse(w, r, errOverloaded)
	})
}

// maxPassedOver is the longest body that is passed over for the sake of the
// connection, in bytes. net/http reads as much after a handler.
const maxPassedOver = 256 << 10

// rejectEarly answers a request whose client may not send it. The answer does not wait
// for the body. A short body is passed over after it, so that a client that has renewed
// its token need not connect again; otherwise the connection ends.
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
	_ = out.Flush() // an error means that the client has gone, which the next line finds
	if _, err := io.CopyN(io.Discard, r.Body, maxPassedOver+1); err != io.EOF {
		// What follows could be taken for a request, by this server alone.
		panic(http.ErrAbortHandler)
	}
}

// refuse answers a request of which the body was not decoded.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, why *refusal) {
	h.core.counters.refused[why.kind].Add(1)
	answer := h.core.answerTo(why, new([]byte))
	_ = answer.Write(w, r) // there is nobody left to tell
}

// refuseBody answers a request whose body could not be read.
func (h *handler) refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	why, ok := errors.AsType[*refusal](err)
	if !ok {
		// The connection broke, or its framing is not valid, or it took too long. A
		// client that is still there learns that nothing was stored. What is left of the
		// body cannot be told from a request.
		w.Header().Set("Connection", "close")
		why = errCutOff
		if errors.Is(err, os.ErrDeadlineExceeded) {
			why = errTimeout
		}
	}
	h.refuse(w, r, why)
}
