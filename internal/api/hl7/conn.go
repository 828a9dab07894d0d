package hl7

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/access/token"
	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/api/rejections"
	"github.com/pulsegate/pulsegate/vitals"
)

// A conn is a connection of a client.
type conn struct {
	*front.Conn
	server   *Server
	frames   frames
	access   gate.Access // when the connection began
	gateway  vitals.Name // that the certificate names; zero if there is none
	reserved int         // bytes of memory for the message
	silent   bool        // a message without an answer was not stored; what has arrived after it is the last
}

// serve serves a connection until it ends.
func (s *Server) serve(fc *front.Conn, _ any) {
	c := &conn{Conn: fc, server: s}
	c.frames = frames{in: c.In, max: s.opt.MaxBytes, grow: c.reserve,
		begun: func() { c.Await(http.StateActive, s.opt.ReadTimeout) }}
	if c.Guest() {
		c.end(busy) // nothing can be sent before a message has come
		return
	}
	access, verdict, _ := s.opt.Gate.Authorize(c.Client, token.Write, s.opt.Now())
	if verdict != gate.Allowed {
		c.end(unauthorized)
		return
	}
	c.access, c.gateway = access, *access.Gateway()
	for c.next() {
	}
}

// next handles a message, and reports whether another one may follow.
func (c *conn) next() bool {
	s := c.server
	c.Await(http.StateIdle, s.opt.IdleTimeout)
	defer func() {
		s.opt.Core.Memory().Release(c.Holder, c.reserved)
		c.reserved = 0
	}()
	text, err := c.frames.next(nil)
	if err != nil && err != errTooLarge {
		return c.end(c.ending(err))
	}
	return c.receive(text, err == errTooLarge)
}

// ending returns why a connection ends after an error of reading.
func (c *conn) ending(err error) ending {
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case c.silent:
		return busy
	case (late || err == errMemory) && c.server.Drains():
		return draining
	case late && c.frames.within:
		return slow
	case late:
		return idle
	case err == errMemory, errors.Is(err, net.ErrClosed): // evicted, unless the server has stopped
		return busy
	case err == errOutside, err == errNested, err == errEnd, err == io.ErrUnexpectedEOF:
		return badFrame
	}
	return byClient
}

// end counts why the connection ends.
func (c *conn) end(why ending) bool {
	c.server.counters.endings[why].Add(1)
	return false
}

// listedPerMessage bounds the rejections that one message adds to the list.
const listedPerMessage = 100

// receive stores the readings of a message and acknowledges it, and reports whether another one may follow. tooLarge
// means that text is only its beginning.
func (c *conn) receive(text []byte, tooLarge bool) bool {
	s := c.server
	m := newMessage(c, text, tooLarge)
	d := ingest.Delivery{From: c.Client, Input: m, Message: text, Origin: vitals.Origin{Gateway: c.gateway}, Method: "ORU",
		Route: "mllp"}
	var answer []byte
	var code string
	why := busy
	s.Hold.Receive(s.Waiting, &d, func(o *ingest.Outcome) {
		m.outcome = o
		answer, code = m.Answer(nil, o, s.opt.Now())
		o.Traced(statuses[code])
		switch refusal, _ := o.Refusal(); refusal.Problem {
		case s.opt.Problems.Unauthorized, s.opt.Problems.InvalidCredentials:
			why = unauthorized
		case s.opt.Problems.Draining:
			why = draining
		}
	})
	switch {
	case code == "" && why == busy && isSilent(m.Message): // only the end of the connection says that something is wrong
		m.list(vitals.Name{}, "", "could not be stored, and its sender takes silence for success")
		_ = c.CloseWrite()
		c.silent = true
		return true
	case code == "":
		return c.end(why) // without an acknowledgement, so that the client sends the message again
	}
	if code == accepted && m.unknown > 0 && len(m.places) == 0 {
		s.unknown(c.sender(m))
	}
	if c.Send(answer) && len(answer) > 0 {
		s.counters.acknowledged[code].Add(1)
	}
	return true // after an error, what has arrived is stored, without further answers
}

// isSilent reports whether there is no answer if a message is stored.
func isSilent(m *Message) bool { return len(m.appendAnswers(nil, accepted, time.Time{})) == 0 }

// sender returns the name of a message's client in metrics: its gateway, or else the kind of its address.
func (c *conn) sender(m *message) string {
	addr := c.Client.Peer.PeerAddr()
	gateway := m.gateway(&ingest.Intake{Origin: &vitals.Origin{Gateway: c.gateway}})
	switch {
	case !gateway.IsZero():
		return gateway.String()
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsPrivate():
		return "a private address"
	}
	return "a public address"
}

// list adds a rejection to the list.
func (m *message) list(device vitals.Name, field, reason string) {
	if m.listed++; m.listed <= listedPerMessage {
		s := m.conn.server
		s.opt.Rejections.Add(rejections.Rejection{
			UnixMs: s.opt.Now().UnixMilli(), Input: "hl7", Gateway: m.conn.gateway, Device: device,
			Foreign: !device.IsZero() && !m.outcome.Covers(&device), Field: field, Reason: reason,
		})
	}
}

// statuses has the codes of answers in terms of HTTP, for traces.
var statuses = map[string]int{accepted: 200, failed: 422, rejected: 422, "": 503}

// reserve reserves memory for a message that takes up n bytes.
func (c *conn) reserve(n int) bool {
	if !c.server.Hold.Reserve(c.Holder, n-c.reserved, n) {
		return false
	}
	c.reserved = n
	return true
}
