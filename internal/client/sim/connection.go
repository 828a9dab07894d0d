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
// transport.returned: then the goroutine that receives from turn owns it.
type connection struct {
	gateway *gateway
	turn    chan *connection // starts a try; over MQTT, the publications of a gateway share it
	id      uint16           // packet identifier

	request  request
	live     bool // request is in progress: composed, not answered, not given up
	number   uint64
	out      []byte // the request's text
	tries    int
	intended time.Duration // since the start of the run, as all times here
	free     time.Duration // when the previous request ended

	// State of one try.
	asked   bool          // the server asked for a pause before the try
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

// start starts a try. It does not block: turn has a place for each connection.
func (c *connection) start() { c.turn <- c }

// begin resets the state of the last try. A negative sent means that this one is not sent.
func (c *connection) begin(sent time.Duration) {
	c.sent, c.failed, c.dropped, c.answer, c.received = sent, "", false, answer{}, false
}

// A transport performs tries, each in the goroutine of its connection. A [link] uses one for MQTT.
type transport struct {
	dial     func(context.Context) (net.Conn, error)
	read     func(*answerReader) (response, error) // an answer of HTTP or MLLP
	judge    *judge
	timeout  time.Duration    // for one answer
	returned chan *connection // from the connections' goroutines; has a place for each
	start    time.Time        // of the run; set while no try is in progress
}

// elapsed returns the time since the start of the run.
func (t *transport) elapsed() time.Duration { return time.Since(t.start) }

// serve performs tries until ctx is done, which also interrupts the current one.
func (t *transport) serve(ctx context.Context, c *connection) {
	defer c.disconnect()
	for {
		select {
		case <-c.turn:
			c.begin(-1)
			c.answer, c.failed = t.try(ctx, c)
			t.returned <- c
		case <-ctx.Done():
			return
		}
	}
}

// try connects if necessary, and sends the request if one is live.
func (t *transport) try(ctx context.Context, c *connection) (answer, failure) {
	now := time.Now()
	if c.conn != nil && now.Sub(t.start)-c.ended > idleCheck && closedByPeer(c.conn) {
		c.disconnect()
	}
	if c.conn == nil {
		if t.connect(ctx, c) != nil {
			return answer{}, failedConnect
		}
		now = time.Now()
	}
	if !c.live {
		return answer{}, ""
	}
	c.sent = now.Sub(t.start)
	return t.exchange(c, now)
}

// exchange sends the request of c and returns the answer, or why there is none.
func (t *transport) exchange(c *connection, now time.Time) (answer, failure) {
	err := c.extend(now, t.timeout)
	if err == nil {
		_, err = c.conn.Write(c.out)
	}
	if err == nil && c.request.drop && c.tries == 1 {
		// Simulate a lost answer: the gateway will retry.
		c.dropped = true
		c.disconnect()
		return answer{}, ""
	}
	// A request that was sent only in part may have been answered nevertheless.
	resp, readErr := t.read(&c.reader)
	now = time.Now()
	c.ended = now.Sub(t.start)
	if err != nil || readErr != nil || resp.close {
		defer c.disconnect()
	}
	switch {
	case readErr == nil:
		return t.judge.judge(&resp, c, now), ""
	case errors.Is(readErr, ErrProtocol):
		return answer{fault: readErr.Error()}, failedGarbage
	case errors.Is(errors.Join(err, readErr), os.ErrDeadlineExceeded):
		return answer{}, failedTimeout
	}
	return answer{}, failedBroken
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
