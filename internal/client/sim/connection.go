package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// dialTimeout bounds connecting, including the TLS handshake.
const dialTimeout = 10 * time.Second

// idleCheck is the idle time after which a connection is checked for having been closed
// by the server before it is used.
const idleCheck = 100 * time.Millisecond

// A connection is the connection of one gateway, or one of its publications in flight over
// MQTT. The run's goroutine owns it, except from start until it comes back through
// transport.returned: then the goroutine of serve owns it, or the link.
type connection struct {
	gateway *gateway
	turn    chan struct{} // starts a try; nil with a link
	link    *link         // nil means HTTP
	id      uint16        // packet identifier

	request  request
	live     bool // request is in progress: composed, not answered, not given up
	number   uint64
	out      []byte // the request's text
	tries    int
	intended time.Duration // since the start of the run, as all times here
	free     time.Duration // when the previous request ended

	// State of one try.
	pause   time.Duration // wait before the try
	asked   bool          // the server asked for the pause
	resumes time.Duration // end of the pause
	sent    time.Duration // negative: not sent
	ended   time.Duration
	dropped bool    // disconnected without waiting for the answer
	failed  failure // "": answer is valid
	answer  answer

	received bool // QoS 2: acknowledged, PUBCOMP is missing

	// State of serve.
	conn     net.Conn    // nil means not connected
	unwatch  func() bool // stops closing the connection at the end of the run
	deadline time.Time   // of conn
	reader   answerReader
}

// waitingAsAsked reports whether the request is waiting because the server asked for
// it.
func (c *connection) waitingAsAsked(now time.Duration) bool { return c.asked && now < c.resumes }

// start starts a try. It does not block.
func (c *connection) start() {
	if c.link != nil {
		c.link.submit(c)
		return
	}
	c.turn <- struct{}{} // its goroutine is waiting
}

// begin resets the state of the last try. A negative sent means that this one is not sent.
func (c *connection) begin(sent time.Duration) {
	c.sent, c.failed, c.dropped, c.answer, c.received = sent, "", false, answer{}, false
}

// A transport performs tries, each in the goroutine of its connection. A [link] uses one for MQTT.
type transport struct {
	dial     func(context.Context) (net.Conn, error)
	judge    *judge
	timeout  time.Duration    // for one answer
	mllp     bool             // requests are messages of HL7 v2
	returned chan *connection // from the connections' goroutines
	start    time.Time        // of the run; set while no try is in progress
}

// elapsed returns the time since the start of the run.
func (t *transport) elapsed() time.Duration { return time.Since(t.start) }

// serve performs tries until turn is closed. When ctx is done, the current and all
// later tries fail.
func (t *transport) serve(ctx context.Context, c *connection) {
	defer c.disconnect()
	for range c.turn {
		t.try(ctx, c)
		t.returned <- c // the channel has capacity for all connections
	}
}

// try connects if necessary, and sends the request if one is live.
func (t *transport) try(ctx context.Context, c *connection) {
	c.begin(-1)
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
	if c.conn != nil && now.Sub(t.start)-c.ended > idleCheck && closedByPeer(c.conn) {
		c.disconnect()
	}
	if c.conn == nil {
		if t.connect(ctx, c) != nil {
			c.failed = failedConnect
			return
		}
		now = time.Now()
	}
	if !c.live {
		return
	}
	c.sent = now.Sub(t.start)
	err := c.extend(now, t.timeout)
	if err == nil {
		_, err = c.conn.Write(c.out)
	}
	if err == nil && c.request.drop && c.tries == 1 {
		// Simulate a lost answer: the gateway will retry.
		c.dropped = true
		c.disconnect()
		return
	}
	// A request that was sent only in part may have been answered nevertheless.
	var (
		resp    response
		readErr error
	)
	if t.mllp {
		resp.body, readErr = c.reader.readMessage()
	} else {
		resp, readErr = c.reader.read()
	}
	now = time.Now()
	c.ended = now.Sub(t.start)
	if err != nil || readErr != nil || resp.close {
		defer c.disconnect()
	}
	switch {
	case readErr == nil && t.mllp:
		c.answer = judgeAck(resp.body, c.number, len(c.request.samples))
	case readErr == nil:
		c.answer = t.judge.judge(&resp, c.request.kind != batchRequest, len(c.request.samples), now)
	case errors.Is(readErr, ErrNotHTTP) || errors.Is(readErr, ErrNotMLLP):
		c.failed, c.answer.fault = failedGarbage, readErr.Error()
	case errors.Is(errors.Join(err, readErr), os.ErrDeadlineExceeded):
		c.failed = failedTimeout
	default:
		c.failed = failedBroken
	}
}

// extend sets the deadline of the connection to at least timeout and at most an eighth
// more after now. It does not set it for every try, because that is costly.
func (c *connection) extend(now time.Time, timeout time.Duration) error {
	if c.deadline.Sub(now) >= timeout {
		return nil
	}
	c.deadline = now.Add(timeout + timeout/8)
	return c.conn.SetDeadline(c.deadline)
}

func (t *transport) connect(ctx context.Context, c *connection) error {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := t.dial(dialing)
	if err != nil {
		return err
	}
	c.conn, c.deadline = conn, time.Time{}
	c.reader.reset(conn)
	c.unwatch = context.AfterFunc(ctx, func() { conn.Close() }) // interrupts pending reads and writes
	return nil
}

func (c *connection) disconnect() {
	if c.conn != nil {
		c.unwatch()
		c.conn.Close()
		c.conn = nil
	}
}
