package sim

import (
	"fmt"
	"time"
)

// rest decides what a connection without a request does next.
func (l *loop) rest(id int32) {
	c := &l.conns[id]
	c.free = l.now
	c.state = down
	if c.connected {
		c.state = free
	}
	if l.open() {
		l.idle = append(l.idle, id)
		return
	}
	if l.cfg.Posts > 0 && c.posts == 0 || l.until > 0 && l.now >= l.until {
		c.state = finished
		l.active--
		return
	}
	c.posts--
	_ = l.begin(id, l.now)
}

// begin makes the connection's next request and queues it.
func (l *loop) begin(id int32, intended time.Duration) error {
	c := &l.conns[id]
	r := &c.request
	if !l.takeForward(c) {
		l.fleet.compose(c.gateway, r)
		l.count(r)
		if r.forwarded && len(l.forwards) < maxForwards {
			l.forwards = append(l.forwards, append([]sample(nil), r.samples...))
			l.forwarder = append(l.forwarder, r.gateway)
		}
	}
	c.number = l.numbers
	l.numbers += uint64(l.cfg.Threads)
	if err := l.encode(c); err != nil {
		return err
	}
	if l.cfg.Ledger != nil && r.kind != malformedRequest {
		l.lines = l.fleet.appendSent(l.lines, c.number, r.samples)
	}
	l.tally.sent += uint64(len(r.samples))
	c.live, c.tries, c.intended, c.active = true, 0, intended, l.now
	l.resume(id)
	return nil
}

// takeForward lets the connection's gateway send what another one has sent.
func (l *loop) takeForward(c *connection) bool {
	n := len(l.forwards)
	if n == 0 || l.forwarder[n-1] == c.gateway.number {
		return false
	}
	g, r := c.gateway, &c.request
	*r = request{gateway: g.number, gzip: g.gzips, lines: g.lines, samples: append(r.samples[:0], l.forwards[n-1]...)}
	if len(r.samples) > 1 {
		r.kind = batchRequest
	}
	l.forwards, l.forwarder = l.forwards[:n-1], l.forwarder[:n-1]
	l.tally.behaviours[Forward]++
	return true
}

// count notes what is special about a request.
func (l *loop) count(r *request) {
	b := &l.tally.behaviours
	switch {
	case r.kind == malformedRequest:
		b[Malformed]++
	case r.buffered:
		b[Buffering]++
	case r.kind == batchRequest:
		b[Batching]++
	}
	if r.gzip {
		b[Gzip]++
	}
	if r.reordered {
		b[Reorder]++
	}
}

// encode writes the request's text into c.out. The head is put before the body
// when the body's length is known.
func (l *loop) encode(c *connection) error {
	r := &c.request
	head := l.heads[0]
	if r.gzip {
		head = l.heads[1]
	}
	const digits = 20
	room := len(head) + digits + len("\r\n\r\n")
	if cap(c.out) < room {
		c.out = make([]byte, room, room+512)
	}
	c.out = c.out[:room]
	if r.gzip {
		l.plain = l.fleet.appendBody(l.plain[:0], r)
		l.packed = appendWriter(c.out)
		l.gzip.Reset(&l.packed)
		if _, err := l.gzip.Write(l.plain); err != nil {
			return fmt.Errorf("compress request: %w", err)
		}
		if err := l.gzip.Close(); err != nil {
			return fmt.Errorf("compress request: %w", err)
		}
		c.out = l.packed
	} else {
		c.out = l.fleet.appendBody(c.out, r)
	}
	from := room - 4
	copy(c.out[from:], "\r\n\r\n")
	for n := len(c.out) - room; ; n /= 10 {
		from--
		c.out[from] = byte('0' + n%10)
		if n < 10 {
			break
		}
	}
	from -= len(head)
	copy(c.out[from:], head)
	c.from, c.off = from, 0
	return nil
}

// An appendWriter is a slice that is written to.
type appendWriter []byte

func (w *appendWriter) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

// resume brings a request on its way: now if there is a connection, otherwise
// after connecting.
func (l *loop) resume(id int32) {
	c := &l.conns[id]
	c.backOff = false
	switch {
	case !c.connected:
		c.state = connecting
		l.tr.open(id)
	case c.live:
		c.state = queued
		l.ready = append(l.ready, id)
	default:
		c.state = free
	}
}

// flush writes the ledger's lines, and only then sends what is ready.
func (l *loop) flush() error {
	if err := l.flushLedger(); err != nil {
		return err
	}
	// Sending may make further requests ready, with lines of their own.
	ready := len(l.ready)
	for i := 0; i < ready; i++ {
		id := l.ready[i]
		switch c := &l.conns[id]; {
		case c.state != queued:
		case !c.connected: // the server has closed it meanwhile
			l.resume(id)
		default:
			l.now = time.Since(l.start)
			l.send(id)
		}
	}
	l.ready = append(l.ready[:0], l.ready[ready:]...)
	return nil
}

func (l *loop) flushLedger() error {
	if len(l.lines) == 0 {
		return nil
	}
	err := l.cfg.Ledger.append(l.lines)
	l.lines = l.lines[:0]
	return err
}

// send sends a request from its start.
func (l *loop) send(id int32) {
	c := &l.conns[id]
	c.off = c.from
	c.sent = l.now
	c.response.reset()
	if c.tries++; c.tries == 1 {
		record(l.late, l.now-max(c.intended, c.free))
	}
	l.tally.tries++
	l.push(id)
}

// push sends what is left of a request.
func (l *loop) push(id int32) {
	c := &l.conns[id]
	n, err := l.tr.write(id, c.out[c.off:])
	c.off += n
	switch {
	case err != nil:
		l.fail(id, failedBroken)
	case c.off < len(c.out):
		c.state = sending
	case c.request.drop && c.tries == 1:
		// The answer will be lost on its way, and the gateway tries again.
		l.tally.behaviours[Drop]++
		l.disconnect(id)
		l.resume(id)
	default:
		c.state = waiting
	}
}

func (l *loop) disconnect(id int32) {
	l.tr.shut(id)
	l.conns[id].connected = false
}
