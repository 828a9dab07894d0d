package mqtt

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/pulsegate/pulsegate/internal/api/front"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
)

// A conn is a connection with a goroutine of its own.
type conn struct {
	*front.Conn
	server *Server
}

// serve serves a connection until it ends.
func (s *Server) serve(fc *front.Conn, state any) {
	c := &conn{fc, s}
	st, began := state.(*session)
	if !began {
		st = new(session)
	}
	for c.next(st) {
	}
	if len(st.farewell) > 0 && c.Send(st.farewell) {
		c.linger()
	}
}

// next handles a packet, and reports whether another one may follow.
func (c *conn) next(st *session) bool {
	wait := st.quiet
	if st.version == 0 {
		wait = c.server.opt.StartTimeout
	}
	c.Await(http.StateIdle, wait)
	head := make([]byte, 0, 5)
	size, start := 0, 0
	for {
		b, err := c.In.ReadByte()
		if err != nil {
			return c.fail(st, err, len(head) > 0)
		}
		if head = append(head, b); len(head) == 1 {
			c.server.opt.Idle.ConnState(c.Conn.Conn, http.StateActive)
			if why, opens := st.opens(b); !opens {
				return c.end(st, why)
			}
			if st.version != 0 {
				// also while the server drains: the packet has begun
				_ = c.SetReadDeadline(time.Now().Add(c.server.opt.ReadTimeout))
			}
		}
		var ok, valid bool
		if size, start, ok, valid = frame(head); !valid {
			return c.end(st, malformed)
		}
		if ok {
			break
		}
	}
	if c.server.tooLarge(st, head[0], size) {
		return c.end(st, packetTooLarge)
	}
	if !c.server.Hold.Reserve(c.Holder, size, size) {
		return c.end(st, serverBusy)
	}
	defer c.server.opt.Core.Memory().Release(c.Holder, size)
	packet := append(make([]byte, 0, size), head...)[:size]
	if _, err := io.ReadFull(c.In, packet[start:]); err != nil {
		return c.fail(st, err, true)
	}
	if st.version != 0 && packet[0]>>4 == typePublish {
		return c.publish(st, packet, start)
	}
	c.slow(st, size-start, false)
	answer, end := c.server.control(st, packet[0], packet[start:], c.Client, c.Guest())
	if end {
		st.farewell = answer
		return false
	}
	c.Send(answer)
	return true
}

// slow waits after many packets that need no commit.
func (c *conn) slow(st *session, size int, commits bool) {
	if c.server.rests(st, size, commits) {
		select {
		case <-time.After(burstPause):
		case <-c.server.Draining.Done():
		}
	}
}

// fail handles an error of reading. begun means that a part of a packet was read.
func (c *conn) fail(st *session, err error, begun bool) bool {
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
	case c.server.Drains():
		return c.end(st, shuttingDown)
	case begun, st.version != 0:
		return c.end(st, keepAliveTimeout)
	}
	return false
}

// end ends the connection with a code.
func (c *conn) end(st *session, why code) bool {
	st.farewell, _ = c.server.end(st, why)
	return false
}

// publish delivers a publication and acknowledges it.
func (c *conn) publish(st *session, packet []byte, start int) bool {
	s := c.server
	var p publication
	if r, verdict := fastparse.RecognisePublish(packet, st.version == 5); verdict == fastparse.Accept {
		p = recognised(packet, &r)
	} else {
		var why code
		if p, why = st.decodePublish(packet[0], packet[start:]); why != success {
			return c.end(st, why)
		}
	}
	d := s.delivery(st, p, c.Client)
	s.counters.publications[p.qos].Add(1)
	var r result
	commits := false
	s.Hold.Receive(s.Waiting, &d, func(o *ingest.Outcome) {
		r, commits = s.resultOf(o), o.Admitted()
		o.Traced(r.status())
	})
	if r.ends(st.version, p.qos) {
		return c.end(st, r.code)
	}
	c.slow(st, len(p.payload), commits)
	c.Send(st.appendAck(nil, p.id, p.qos, r))
	return true
}

// linger waits until the client has read the last packet: closing a connection with unread input resets it.
func (c *conn) linger() {
	if listen.CloseWrite(c.Conn.Conn) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.In, lingerBytes)
}

// Bounds of lingering.
const (
	lingerFor   = 500 * time.Millisecond
	lingerBytes = 1 << 20
)
