package eventloop

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// add adds a new connection to the loop.
func (l *Loop) add(a arrival) {
	fd := a.fd
	// Otherwise an answer may wait for the acknowledgement of the previous one. It
	// fails for sockets without such a delay.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	slot := int32(len(l.conns))
	if n := len(l.free); n > 0 {
		slot = l.free[n-1]
		l.free = l.free[:n-1]
	} else {
		l.conns = append(l.conns, nil)
		l.generations = append(l.generations, 0)
	}
	c := &Conn{loop: l, fd: fd, slot: slot, place: a.place, session: a.session, fresh: true, armed: never}
	if a.session != nil {
		a.session.conn, c.tlsState, c.tlsVersion = c, a.session.state, a.session.version
	}
	l.conns[slot] = c
	l.live++
	const events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET
	if err := l.watch(fd, events, slot, l.generations[slot]); err != nil {
		l.broken(c) // no memory for one more
		return
	}
	within := l.server.startTicks
	if c.place.Guest {
		within = min(within, l.server.crowdedTicks)
	}
	l.setDeadline(c, l.now+within)
	if l.draining || a.session != nil {
		c.readable = true // it may have brought a request, with TLS in its handshake
		l.enlist(c)
	}
}

// read reads once and passes the input to the handler.
func (l *Loop) read(c *Conn) {
	switch {
	case c.lingering:
		l.receive(c, l.scratch)
	case c.in == nil:
		if b := l.receive(c, l.scratch); len(b) > 0 {
			taken := l.offerBytes(c, b)
			l.keep(c, b[taken:])
		}
	default:
		l.readMore(c)
	}
}

// readMore continues an unfinished message.
func (l *Loop) readMore(c *Conn) {
	if len(c.in) == cap(c.in) {
		grown := l.buffers.grown(c.place.Holder, c.in, len(c.in)+1)
		if grown == nil {
			l.giveUp(c, NoMemory)
			return
		}
		c.in = grown
	}
	b := l.receive(c, c.in[len(c.in):cap(c.in)])
	if c.fd < 0 {
		return
	}
	c.in = c.in[:len(c.in)+len(b)]
	if len(c.in) >= c.need || c.ended {
		l.offer(c)
	}
}

// receive reads into b and returns what it has read.
func (l *Loop) receive(c *Conn, b []byte) []byte {
	if c.session != nil && !c.lingering {
		return l.decrypt(c, b)
	}
	for {
		n, err := recv(c.fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			c.readable = false
			return nil
		case err != 0:
			l.broken(c)
			return nil
		case n == 0:
			c.ended, c.readable = true, false
		case n < len(b) && !c.hangsUp:
			// The kernel holds no more; further input is another event (epoll(7)). The
			// end of the stream may have been reported already.
			c.readable = false
		}
		return b[:n]
	}
}

// offerBytes offers b and returns how many bytes were taken.
func (l *Loop) offerBytes(c *Conn, b []byte) (taken int) {
	c.fresh = false
	c.need, c.idleEnd = 0, 0
	l.received = true
	taken = l.handler.Receive(c, b, c.ended)
	if c.need == 0 {
		c.need = len(b) - taken + 1 // than is left now
	}
	c.offerable = taken < len(b) && c.goal == serve && (c.owed >= maxOwed || c.paused)
	return taken
}

// offer offers what is kept.
func (l *Loop) offer(c *Conn) {
	// The handler may send, and a failure to send frees c.in: until Receive returns,
	// the bytes do not belong to the connection.
	whole := c.in
	c.in = nil
	taken := l.offerBytes(c, whole)
	if c.fd < 0 || taken > 0 {
		l.keep(c, whole[taken:])
		l.buffers.put(c.place.Holder, whole)
		return
	}
	c.in = whole
	if !c.offerable && len(whole) >= l.server.cfg.MaxMessage {
		c.Move()
	}
}

// keep stores the start of a message.
func (l *Loop) keep(c *Conn, rest []byte) {
	if len(rest) == 0 || c.fd < 0 || c.goal == end {
		return
	}
	c.began = l.now
	if c.in = l.buffers.get(c.place.Holder, len(rest)); c.in == nil {
		l.handler.GiveUp(c, rest, NoMemory)
		c.goal = end
		return
	}
	c.in = append(c.in, rest...)
}

// Send sends b, which contains the given number of complete answers of those owed. It
// does not retain b.
func (c *Conn) Send(b []byte, answers int) {
	c.owed -= answers
	c.idleEnd = 0
	if c.owed < 0 {
		panic("eventloop: more answers than were owed")
	}
	l := c.loop
	switch {
	case c.fd < 0:
	case c.session != nil:
		l.sendEncrypted(c, b)
	default:
		l.send(c, b)
	}
	if l.draining && c.owed == 0 {
		c.End()
	}
	if c.next() == wait {
		l.schedule(c)
	} else {
		l.enlist(c)
	}
}

// send writes b and keeps what the kernel does not accept.
func (l *Loop) send(c *Conn, b []byte) {
	held := len(c.out)
	if held == 0 {
		n, ok := l.write(c, b)
		if b = b[n:]; !ok || len(b) == 0 {
			return
		}
		if c.out = l.buffers.get(c.place.Holder, len(b)); c.out == nil {
			l.broken(c)
			return
		}
		l.setDeadline(c, l.now+l.server.writeTicks)
	} else {
		grown := l.buffers.grown(c.place.Holder, c.out, held+len(b))
		if grown == nil {
			l.broken(c)
			return
		}
		c.out = grown
	}
	c.out = append(c.out, b...)
}

// flush writes what is kept.
func (l *Loop) flush(c *Conn) {
	n, ok := l.write(c, c.out[c.sent:])
	if !ok {
		return
	}
	if c.sent += n; c.sent == len(c.out) {
		l.buffers.put(c.place.Holder, c.out)
		c.out, c.sent = nil, 0
	}
}

// write writes as much of b as the kernel accepts. After an error the connection is
// closed and ok is false.
func (l *Loop) write(c *Conn, b []byte) (n int, ok bool) {
	for n < len(b) {
		m, err := send(c.fd, b[n:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return n, true
		case err != 0:
			l.broken(c)
			return n, false
		default:
			n += m
		}
	}
	return n, true
}

// linger half-closes a connection that is ending. If it were closed with input unread,
// the kernel would reset it and the peer might lose the last answer (RFC 9112, section
// 9.6).
func (l *Loop) linger(c *Conn) {
	if c.session != nil {
		if l.endSession(c); c.fd < 0 || c.out != nil {
			return // to come again
		}
	}
	if c.idle || c.fresh || c.ended {
		l.shut(c)
		return
	}
	l.buffers.put(c.place.Holder, c.in)
	c.in = nil
	if err := unix.Shutdown(c.fd, unix.SHUT_WR); err != nil {
		l.broken(c)
		return
	}
	c.lingering = true
	c.readable = true
	l.setDeadline(c, l.now+l.server.lingerTicks)
}

// broken closes a connection that failed.
func (l *Loop) broken(c *Conn) {
	l.shut(c)
	l.enlist(c)
}

// shut closes the descriptor. Answers still owed are counted but not sent.
func (l *Loop) shut(c *Conn) {
	if c.fd < 0 {
		return
	}
	if c.session != nil {
		l.finalCloseNotify(c)
	}
	// An error reports an earlier failure; the descriptor is closed (close(2)).
	_ = unix.Close(c.fd)
	l.detach(c)
	l.server.left(c.place)
}

// detach removes c from the table. Its descriptor is closed, or has another owner.
func (l *Loop) detach(c *Conn) {
	l.buffers.put(c.place.Holder, c.in)
	l.buffers.put(c.place.Holder, c.out)
	l.releaseSession(c)
	c.in, c.out, c.fd = nil, nil, -1
	c.endPause()
	l.wheel.stop(c.slot)
	l.conns[c.slot] = nil
	l.generations[c.slot]++
	l.free = append(l.free, c.slot)
}

// forget ends a connection that is closed and on which nothing is owed.
func (l *Loop) forget(c *Conn) {
	if c.loop != nil {
		c.loop = nil
		l.live--
	}
}

// give moves c to the other server.
func (l *Loop) give(c *Conn) {
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, c.fd, nil); err != nil {
		l.broken(c)
		return
	}
	conn, err := l.adopt(c.fd)
	if err != nil {
		l.detach(c)
		l.server.left(c.place)
		return
	}
	rest := unread{Conn: conn, holder: c.place.Holder, memory: l.server.cfg.Memory}
	// The buffer goes along, and so does what it has taken of the memory.
	rest.bytes, c.in = c.in, nil
	rest.held.Store(int64(cap(rest.bytes)))
	session := c.session
	l.detach(c)
	if session == nil {
		l.server.giveAway(&movedConn{unread: &rest, place: c.place, left: l.server.left})
		return
	}
	session.below.Exchange(conn)
	rest.Conn = session.tls
	l.server.giveAway(&movedTLS{unread: &rest, tls: session.tls})
}

// giveAway passes a connection to the other server.
func (s *Server) giveAway(c net.Conn) {
	s.movedCount.Add(1) // before the other server can answer
	if !s.moved.push(c) {
		s.movedCount.Add(^uint64(0))
		closeNow(c) // the other server no longer accepts connections
	}
}

// adopt makes a net.Conn of a socket, whose descriptor fd it closes.
func (l *Loop) adopt(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "connection")
	conn, err := net.FileConn(file) // with a descriptor of its own
	if l.spare >= 0 && (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) {
		_ = unix.Close(l.spare) // it holds nothing
		l.spare = -1
		conn, err = net.FileConn(file)
	}
	_ = file.Close() // which leaves the other one open
	if l.spare < 0 {
		l.spare, _ = newSpare() // without one, the next connection may be lost
	}
	return conn, err
}

// newSpare returns an unused descriptor, or -1.
func newSpare() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("create eventfd: %w", err)
	}
	return fd, nil
}

// drain makes a connection end once what has begun is answered.
func (c *Conn) drain() {
	switch {
	case c.fd < 0 || c.goal != serve:
	case c.in != nil:
		// The rest may still arrive in time.
	case c.owed > 0 || c.out != nil:
		c.goal = end
	case c.readable && !c.ended:
		// It may hold a request.
	case c.session != nil && c.session.begun && !c.ended:
		// The rest of the record may still arrive, within the time for a first message.
		if at := c.loop.now + c.loop.server.startTicks; c.idleEnd == 0 || at < c.idleEnd {
			c.idleEnd = at
		}
	default:
		c.goal, c.idle = end, true
	}
}
