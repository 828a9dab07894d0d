package eventloop

import (
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"golang.org/x/sys/unix"
)

const scratchBytes = 64 << 10

// An input reads what the peers of a loop's connections send, and passes it to the handler.
// Bytes that the handler leaves are kept in a buffer of the connection.
type input struct {
	loop     *Loop
	handler  Handler
	scratch  []byte
	received bool // Receive was called since the last Round
}

// read reads once and passes the input to the handler.
func (in *input) read(c *Conn) {
	switch {
	case c.lingering:
		in.receive(c, in.scratch)
	case c.in == nil:
		if b := in.receive(c, in.scratch); len(b) > 0 {
			taken := in.offerBytes(c, b)
			in.keep(c, b[taken:])
		}
	default:
		in.readMore(c)
	}
}

// readMore continues an unfinished message.
func (in *input) readMore(c *Conn) {
	if len(c.in) == cap(c.in) {
		grown := in.loop.buffers.grown(c.place.Holder, c.in, len(c.in)+1)
		if grown == nil {
			in.giveUp(c, NoMemory)
			return
		}
		c.in = grown
	}
	b := in.receive(c, c.in[len(c.in):cap(c.in)])
	if c.fd < 0 {
		return
	}
	c.in = c.in[:len(c.in)+len(b)]
	if len(c.in) >= c.need || c.ended {
		in.offer(c)
	}
}

// receive reads into b and returns what it has read.
func (in *input) receive(c *Conn, b []byte) []byte {
	if c.noOutput && c.readLeft <= 0 {
		in.loop.broken(c)
		return nil
	}
	if c.session != nil && !c.lingering {
		return c.session.decrypt(b)
	}
	for {
		n, err := recv(c.fd, b)
		c.readLeft -= n
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			if c.readable = false; c.noOutput {
				in.loop.broken(c)
			}
			return nil
		case err != 0:
			in.loop.broken(c)
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
func (in *input) offerBytes(c *Conn, b []byte) (taken int) {
	c.fresh = false
	c.need, c.idleEnd = 0, 0
	in.received = true
	taken = in.handler.Receive(c, b, c.ended)
	if c.need == 0 {
		c.need = len(b) - taken + 1 // than is left now
	}
	c.offerable = taken < len(b) && c.goal == serve && (c.owed >= maxOwed || c.paused)
	return taken
}

// offer offers what is kept.
func (in *input) offer(c *Conn) {
	// The handler may send, and a failure to send frees c.in: until Receive returns,
	// the bytes do not belong to the connection.
	whole := c.in
	c.in = nil
	taken := in.offerBytes(c, whole)
	if c.fd < 0 || taken > 0 {
		in.keep(c, whole[taken:])
		in.loop.buffers.put(c.place.Holder, whole)
		return
	}
	c.in = whole
	if !c.offerable && len(whole) >= in.loop.server.cfg.MaxMessage {
		c.Move()
	}
}

// keep stores the start of a message.
func (in *input) keep(c *Conn, rest []byte) {
	if len(rest) == 0 || c.fd < 0 || c.goal == end {
		return
	}
	c.began = in.loop.timers.now
	if c.in = in.loop.buffers.get(c.place.Holder, len(rest)); c.in == nil {
		in.handler.GiveUp(c, rest, NoMemory)
		c.goal = end
		return
	}
	c.in = append(c.in, rest...)
}

// giveUp ends a connection that is idle or whose message will not be completed.
func (in *input) giveUp(c *Conn, why Reason) {
	switch {
	case c.out != nil || c.lingering:
		in.loop.outlast(c, listen.MaxStalled)
	case c.in == nil:
		in.handler.GiveUp(c, nil, why)
		in.loop.shut(c)
	default:
		b := c.in
		c.in = nil
		in.handler.GiveUp(c, b, why)
		in.loop.buffers.put(c.place.Holder, b)
		c.goal = end
	}
	in.loop.enlist(c)
}
