package eventloop

import "time"

// Pause stops reading for d. Input stays in the kernel meanwhile; the time for an
// unfinished message starts again after the pause. Pause has no effect on a connection
// that has paused already or is ending.
//
// A handler that rejects a message for lack of a resource pauses the connection, so that
// a peer that retries at once is not rejected again and again at the expense of the
// others.
func (c *Conn) Pause(d time.Duration) {
	l := c.loop
	if c.paused || c.goal != serve || c.fd < 0 || l.draining {
		return
	}
	c.paused = true
	c.pauseEnd = l.now + l.ticks(d)
	l.paused++
}

// Expect bounds the time for input of which Receive leaves nothing, such as a skipped body.
// 0 ends it.
func (c *Conn) Expect(d time.Duration) {
	if c.expect = 0; d > 0 {
		c.expect = c.loop.now + c.loop.ticks(d)
	}
}

// Paused returns the number of paused connections.
func (l *Loop) Paused() int { return l.paused }

// endPause clears a pause.
func (c *Conn) endPause() {
	if c.paused {
		c.paused = false
		c.loop.paused--
	}
}

// unpause resumes a paused connection.
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
