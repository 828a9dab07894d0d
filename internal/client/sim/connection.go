package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// dialTimeout bounds connecting, TLS included.
const dialTimeout = 10 * time.Second

// idleCheck is how long a connection may have been idle before it is used without a
// look whether the server has closed it meanwhile.
const idleCheck = 100 * time.Millisecond

// A connection is one gateway's. The run's goroutine owns it, and lends it to the
// goroutine of serve from a turn until it comes back through run.returned.
type connection struct {
	gateway *gateway
	posts   int64         // left to send, closed loop
	turn    chan struct{} // starts a try

	request  request
	live     bool // request is under way: made, not answered, not given up
	number   uint64
	out      []byte // the request's text is out[from:]
	from     int
	tries    int
	intended time.Duration // since the start, as all times here
	free     time.Duration // since when there was no request before this one

	// Of one try.
	pause   time.Duration // before it
	obeys   bool          // the pause was asked for by the server
	resumes time.Duration // when the pause is over
	sent    time.Duration // less than 0: it was not
	ended   time.Duration
	dropped bool    // without waiting for an answer
	failed  failure // "": answer holds
	answer  answer

	// Of serve alone.
	conn     net.Conn    // nil: none
	unwatch  func() bool // the connection is not closed any more when the run ends
	deadline time.Time   // of conn
	reader   answerReader
}

// obeying reports whether the request waits because the server asked for it.
func (c *connection) obeying(now time.Duration) bool { return c.obeys && now < c.resumes }

// serve carries out tries until turn is closed. When ctx ends, the try under way
// and those to come fail.
func (r *run) serve(ctx context.Context, c *connection) {
	defer c.disconnect()
	for range c.turn {
		r.try(ctx, c)
		r.returned <- c // has room for all connections
	}
}

// try connects, if there is no connection, and carries out the request, if one is
// live.
func (r *run) try(ctx context.Context, c *connection) {
	c.sent, c.failed, c.dropped, c.answer = -1, "", false, answer{}
	if c.pause > 0 {
		timer := time.NewTimer(c.pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			c.failed = failedBroken
			return
		}
	}
	now := time.Now()
	if c.conn != nil && now.Sub(r.start)-c.ended > idleCheck && closedByPeer(c.conn) {
		c.disconnect()
	}
	if c.conn == nil {
		if r.connect(ctx, c) != nil {
			c.failed = failedConnect
			return
		}
		now = time.Now()
	}
	if !c.live {
		return
	}
	c.sent = now.Sub(r.start)
	err := c.extend(now, r.cfg.Timeout)
	if err == nil {
		_, err = c.conn.Write(c.out[c.from:])
	}
	if err == nil && c.request.drop && c.tries == 1 {
		// The answer will be lost on its way, and the gateway tries again.
		c.dropped = true
		c.disconnect()
		return
	}
	// A request that could not be sent whole may have been answered all the same.
	resp, readErr := c.reader.read()
	now = time.Now()
	c.ended = now.Sub(r.start)
	if err != nil || readErr != nil || resp.close {
		defer c.disconnect()
	}
	switch {
	case readErr == nil:
		c.answer = r.judge.judge(&resp, c.request.kind != batchRequest, len(c.request.samples), now)
	case errors.Is(readErr, ErrNotHTTP):
		c.failed, c.answer.fault = failedGarbage, readErr.Error()
	case errors.Is(errors.Join(err, readErr), os.ErrDeadlineExceeded):
		c.failed = failedTimeout
	default:
		c.failed = failedBroken
	}
}

// extend leaves the try at least timeout, and an eighth more at most: a deadline costs
// more than many answers take.
func (c *connection) extend(now time.Time, timeout time.Duration) error {
	if c.deadline.Sub(now) >= timeout {
		return nil
	}
	c.deadline = now.Add(timeout + timeout/8)
	return c.conn.SetDeadline(c.deadline)
}

func (r *run) connect(ctx context.Context, c *connection) error {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := r.dial(dialing)
	if err != nil {
		return err
	}
	c.conn, c.deadline = conn, time.Time{}
	c.reader.reset(conn)
	c.unwatch = context.AfterFunc(ctx, func() { conn.Close() }) // ends reads and writes under way
	return nil
}

func (c *connection) disconnect() {
	if c.conn != nil {
		c.unwatch()
		c.conn.Close()
		c.conn = nil
	}
}
