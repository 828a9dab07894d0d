package mqtt

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/pulsegate/pulsegate/internal/access/gate"
	"github.com/pulsegate/pulsegate/internal/api/ingest"
	"github.com/pulsegate/pulsegate/internal/wire/fastparse"
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"github.com/pulsegate/pulsegate/internal/wire/share"
)

// A conn is a connection with a goroutine of its own.
type conn struct {
	server *Server
	net.Conn
	io     *listen.Outlasting // of Conn
	in     *bufio.Reader
	client gate.Credentials
	holder *share.Holder
}

// serve serves a connection until it ends.
func (s *Server) serve(nc net.Conn, st *session) {
	c := &conn{server: s, Conn: nc, io: &listen.Outlasting{Conn: nc}}
	c.in = bufio.NewReader(c.io)
	c.client = gate.Credentials{TLS: listen.TLSState(nc), Peer: gate.PeerOf(&http.Request{RemoteAddr: nc.RemoteAddr().String()})}
	c.holder = s.opt.Holders.Addr(c.client.Peer.PeerAddr())
	defer s.opt.Holders.Put(c.holder)
	defer s.opt.Idle.ConnState(nc, http.StateClosed)
	for c.next(st) {
	}
	if len(st.farewell) > 0 && c.write(st.farewell) {
		c.linger()
	}
}

// next handles a packet, and reports whether another one may follow.
func (c *conn) next(st *session) bool {
	wait := st.quiet
	if st.version == 0 {
		wait = c.server.opt.StartTimeout
	}
	c.server.opt.Idle.ConnState(c.Conn, http.StateIdle)
	if !c.within(wait) {
		return c.end(st, shuttingDown)
	}
	head := make([]byte, 0, 5)
	size, start := 0, 0
	for {
		b, err := c.in.ReadByte()
		if err != nil {
			return c.fail(st, err, len(head) > 0)
		}
		if head = append(head, b); len(head) == 1 {
			c.server.opt.Idle.ConnState(c.Conn, http.StateActive)
			if why, opens := st.opens(b); !opens {
				return c.end(st, why)
			}
			if st.version != 0 {
				_ = c.SetReadDeadline(time.Now().Add(c.server.opt.ReadTimeout)) // also while the server drains: the packet has begun
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
	if !c.server.hold.Reserve(c.holder, size, size) {
		return c.end(st, serverBusy)
	}
	defer c.server.opt.Core.Memory().Release(c.holder, size)
	packet := append(make([]byte, 0, size), head...)[:size]
	if _, err := io.ReadFull(c.in, packet[start:]); err != nil {
		return c.fail(st, err, true)
	}
	if st.version != 0 && packet[0]>>4 == typePublish {
		return c.publish(st, packet, start)
	}
	c.slow(st, size-start, false)
	guest, ok := listen.Below(c.Conn).(interface{ Guest() bool })
	answer, end := c.server.control(st, packet[0], packet[start:], c.client, ok && guest.Guest())
	if end {
		st.farewell = answer
		return false
	}
	c.write(answer)
	return true
}

// slow waits after many packets that need no commit.
func (c *conn) slow(st *session, size int, commits bool) {
	if c.server.rests(st, size, commits) {
		select {
		case <-time.After(burstPause):
		case <-c.server.conns.Draining.Done():
		}
	}
}

// within bounds the time for the next byte. It reports false if the server drains.
func (c *conn) within(d time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(d)) // a closed connection fails at the next read
	return !c.server.conns.Drains() || c.in.Buffered() > 0
}

// fail handles an error of reading. begun means that a part of a packet was read.
func (c *conn) fail(st *session, err error, begun bool) bool {
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
	case c.server.conns.Drains():
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
	d := s.delivery(st, p, c.client)
	s.counters.publications[p.qos].Add(1)
	var r result
	commits := false
	s.hold.Receive(s.conns.Waiting, &d, func(o *ingest.Outcome) {
		r, commits = s.resultOf(o), o.Admitted()
		o.Traced(r.status())
	})
	if r.ends(st.version, p.qos) {
		return c.end(st, r.code)
	}
	c.slow(st, len(p.payload), commits)
	c.write(st.appendAck(nil, p.id, p.qos, r))
	return true
}

// write reports whether b was sent. After a failure, what has arrived is still handled, without further answers.
func (c *conn) write(b []byte) bool {
	_ = c.SetWriteDeadline(time.Now().Add(c.server.opt.WriteTimeout))
	_, err := c.io.Write(b)
	return err == nil
}

// linger waits until the client has read the last packet: closing a connection with unread input resets it.
func (c *conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.in, lingerBytes)
}

// Bounds of lingering.
const (
	lingerFor   = 500 * time.Millisecond
	lingerBytes = 1 << 20
)
