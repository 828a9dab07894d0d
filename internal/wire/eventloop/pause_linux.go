package eventloop

import "time"

// Pause takes no more input for d. What the peer sends meanwhile waits in the
// kernel, where it costs nothing; the time for an unfinished message begins anew. A
// connection that pauses already, or goes on no more, is left as it is.
//
// A handler that refuses a message for want of something pauses the connection: a
// peer that sends the next message at once is then not refused again and again, at
// the cost of those that are served.
func (c *Conn) Pause(d time.Duration) {
	l := c.loop
	if c.paused || c.goal != serve || c.fd < 0 || l.draining {
		return
	}
	c.paused = true
	c.pauseEnd = l.now + l.ticks(d)
	l.paused++
}

// Expect bounds the time for bytes of which Receive leaves none, such as those of a body
// that is passed over. 0 ends it.
func (c *Conn) Expect(d time.Duration) {
	if c.expect = 0; d > 0 {
		c.expect = c.loop.now + c.loop.ticks(d)
	}
}

// Paused returns how many connections pause.
func (l *Loop) Paused() int { return l.paused }

// endPause forgets a pause.
func (c *Conn) endPause() {
	if c.paused {
		c.paused = false
		c.loop.paused--
	}
}

// unpause goes on with a connection that pauses.
func (l *Loop) unpause(c *Conn) {
	c.endPause()
	if c.in != nil {
		c.began = l.now
	}
	if c.next() == wait {
		l.schedule(c)
	} else {
		l.enlist(c)
	}
}
