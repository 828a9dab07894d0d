package eventloop

import (
	"github.com/pulsegate/pulsegate/internal/wire/listen"
	"golang.org/x/sys/unix"
)

// maxStagedBytes bounds the staging buffer that a loop keeps.
const maxStagedBytes = 256 << 10

// An output writes to the sockets of a loop's connections, and keeps what the kernel does not
// accept in a buffer of the connection.
type output struct {
	loop *Loop

	// staged are the records that a session has written. They are to be sent at once.
	//
	// Invariant: nothing is staged between two connections. TestTLSResetAfterKeyUpdate checks it.
	staged []byte
}

// send writes b and keeps what the kernel does not accept.
func (o *output) send(c *Conn, b []byte) {
	l, held := o.loop, len(c.out)
	if c.noOutput {
		return
	}
	if held == 0 {
		n, ok := o.write(c, b)
		if b = b[n:]; !ok || len(b) == 0 {
			return
		}
		if c.out = l.buffers.get(c.place.Holder, len(b)); c.out == nil {
			l.broken(c)
			return
		}
		l.timers.set(c, l.timers.now+l.timers.write)
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

// sendStaged sends what was staged for c, or drops it if c is closed.
func (o *output) sendStaged(c *Conn) {
	staged := o.staged
	if o.staged = staged[:0]; cap(staged) > maxStagedBytes {
		o.staged = nil
	}
	if len(staged) > 0 && c.fd >= 0 {
		o.send(c, staged)
	}
}

// flush writes what is kept.
func (o *output) flush(c *Conn) {
	n, ok := o.write(c, c.out[c.sent:])
	if !ok {
		return
	}
	if c.sent += n; c.sent == len(c.out) {
		o.loop.buffers.put(c.place.Holder, c.out)
		c.out, c.sent = nil, 0
	}
}

// write writes as much of b as the kernel accepts. After an error ok is false, and the connection is
// closed or outlasts its output.
func (o *output) write(c *Conn, b []byte) (n int, ok bool) {
	for n < len(b) {
		m, err := send(c.fd, b[n:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return n, true
		case err != 0:
			o.loop.outlast(c, listen.MaxUnread)
			return n, false
		default:
			n += m
		}
	}
	return n, true
}
