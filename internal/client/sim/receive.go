package sim

import (
	"fmt"
	"io"
	"time"
)

// handle handles one event.
func (l *loop) handle(e event) error {
	c := &l.conns[e.id]
	switch e.kind {
	case opened:
		c.connected = true
		switch c.state {
		case connecting:
			l.resume(e.id)
		case down: // its request was given up meanwhile
			c.state = free
		}
	case lost:
		if c.state == connecting {
			l.fail(e.id, failedConnect)
		}
	case writable:
		if c.state == sending {
			l.push(e.id)
		}
	case readable:
		if err := l.receive(e.id); err != nil {
			return err
		}
	}
	if len(l.ready) >= flushAt {
		return l.flush()
	}
	return nil
}

// receive reads what has arrived.
func (l *loop) receive(id int32) error {
	c := &l.conns[id]
	if !c.connected {
		return nil
	}
	n, err := l.tr.read(id, l.in)
	if n == 0 && err == nil {
		return nil
	}
	if c.state != waiting && c.state != sending {
		// Nothing was asked for: the server closes an idle connection.
		l.disconnect(id)
		if c.state == free {
			c.state = down
		}
		return nil
	}
	done := false
	switch {
	case n > 0:
		done, err = c.response.feed(l.in[:n])
	case err == io.EOF && c.response.end():
		done, err = true, nil
	default:
		l.fail(id, failedBroken)
		return nil
	}
	if err != nil {
		l.garbage(id, err)
		return l.tooMuchGarbage()
	}
	if !done {
		return nil
	}
	if c.response.close || c.state == sending {
		// What is left of the request has no place on a connection that was answered.
		l.disconnect(id)
	}
	l.lastAnswer.Store(int64(l.now))
	l.answered(id)
	return l.tooMuchGarbage()
}

// answered draws the conclusions from an answer.
func (l *loop) answered(id int32) {
	c := &l.conns[id]
	r := &c.request
	n := len(r.samples)
	a := l.judge.judge(&c.response, r.kind != batchRequest, n, time.Now())
	if a.problem != "" {
		l.problems[a.problem]++
	}
	ledger := l.cfg.Ledger != nil && r.kind != malformedRequest
	switch a.verdict {
	case accepted:
		if r.kind == malformedRequest {
			l.tally.wronglyAccepted++
		}
		l.tally.stored += uint64(a.stored)
		l.tally.duplicate += uint64(a.duplicate)
		l.tally.rejected += uint64(len(a.rejected))
		record(l.served, l.now-c.sent)
		if ledger {
			l.lines = appendAnswered(l.lines, c.number, a.rejected)
		}
		l.settle(id)
	case refusedWhole:
		if c.response.status == 401 || c.response.status == 403 {
			l.abort(fmt.Errorf("sim: the server refuses the credentials: status %d", c.response.status))
		}
		l.tally.rejected += uint64(n)
		if ledger {
			l.lines = appendRefused(l.lines, c.number)
		}
		l.settle(id)
	case refusedNow:
		if c.response.status == 429 {
			l.tally.refused429++
		} else {
			l.tally.refused503++
		}
		l.tally.waits[min(int(a.retryAfter/time.Second), maxWaitSeconds)]++
		l.pause(id, max(a.retryAfter, firstBackoff), true)
	case uncertain:
		l.fail(id, failedUncertain)
	case undocumented:
		l.describe(a.fault)
		l.giveUp(id, false)
	}
}

// settle ends a request that was answered for good.
func (l *loop) settle(id int32) {
	c := &l.conns[id]
	since := c.sent
	if l.open() {
		since = c.intended
	}
	record(l.latency, l.now-since)
	l.tally.requests++
	c.live = false
	l.rest(id)
}

// describe notes what is wrong with an answer.
func (l *loop) describe(fault string) {
	l.tally.undocumented++
	if len(l.faults) < maxFaults {
		l.faults = append(l.faults, fault)
	}
}

// garbage ends a request whose answer cannot be read.
func (l *loop) garbage(id int32, err error) {
	l.tally.failures[failedGarbage]++
	l.describe(err.Error())
	l.disconnect(id)
	l.giveUp(id, false)
}

// tooMuchGarbage ends a run of which all answers are undocumented.
func (l *loop) tooMuchGarbage() error {
	if l.tally.undocumented >= 100 && l.tally.requests == 0 {
		return fmt.Errorf("%w: %s", ErrNotPulsegate, l.faults[0])
	}
	return nil
}

// fail notes that a try had no answer, and lets the request be sent again.
func (l *loop) fail(id int32, why failure) {
	c := &l.conns[id]
	l.tally.failures[why]++
	if why != failedUncertain {
		l.disconnect(id)
	}
	shift := min(max(c.tries-1, 0), 7)
	wait := min(firstBackoff<<shift, maxBackoff)
	// Gateways that failed at one moment must not come back at one.
	wait += time.Duration(c.gateway.random.below(int64(wait)))
	if why == failedConnect {
		c.tries++
	}
	l.pause(id, wait, false)
}

// pause sends a connection's request again after a wait, unless it was tried
// often enough.
func (l *loop) pause(id int32, wait time.Duration, asked bool) {
	c := &l.conns[id]
	if c.live && c.tries >= l.cfg.MaxTries {
		l.giveUp(id, asked)
		return
	}
	c.state, c.backOff = pausing, asked
	c.wake = l.now + min(wait, maxRetryAfter)
}

// giveUp ends a request without an answer for good.
func (l *loop) giveUp(id int32, wasRefused bool) {
	c := &l.conns[id]
	if c.state == waiting || c.state == sending {
		if c.connected && c.response.stage != complete {
			l.disconnect(id)
		}
	}
	l.forget(c, wasRefused)
	l.rest(id)
}

// forget counts a request that got no answer for good.
func (l *loop) forget(c *connection, wasRefused bool) {
	c.live = false
	l.tally.failed += uint64(len(c.request.samples))
	l.tally.givenUp++
	if wasRefused {
		l.tally.givenUpRefused++
	}
	if l.open() {
		record(l.latency, l.now-c.intended) // at least so long
	}
	if l.cfg.Ledger != nil && c.request.kind != malformedRequest {
		l.lines = appendGivenUp(l.lines, c.number)
	}
}
