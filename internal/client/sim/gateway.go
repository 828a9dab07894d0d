package sim

import (
	"fmt"
	"time"

	"github.com/pulsegate/pulsegate/internal/client/transfer"
)

// firstBackoff is the wait before the first retry; it doubles up to maxBackoff. A
// Retry-After is respected up to maxRetryAfter.
const (
	firstBackoff  = 50 * time.Millisecond
	maxBackoff    = 5 * time.Second
	maxRetryAfter = 5 * time.Minute
)

// startNext decides what a connection without a request does next.
func (r *run) startNext(c *connection) {
	c.free = r.now
	switch {
	case r.opt.open():
		r.idle = append(r.idle, c)
	case r.opt.Posts > 0 && c.gateway.posts == 0, r.until > 0 && r.now >= r.until:
		r.active--
	default:
		c.gateway.posts--
		r.begin(c, r.now)
	}
}

// dispatch assigns the requests that are due to idle connections.
func (r *run) dispatch() {
	for len(r.idle) > 0 && r.next < r.total {
		intended := pacer(r.opt.Rate).intended(r.next)
		if intended > r.now {
			if r.alarmAt != intended {
				r.alarmAt = intended
				r.alarm.set(intended - r.transport.elapsed())
			}
			return
		}
		c := r.idle[0]
		r.idle = r.idle[1:]
		r.next++
		r.begin(c, intended)
	}
}

// begin composes the connection's next request and queues it.
func (r *run) begin(c *connection, intended time.Duration) {
	c.number = r.number
	r.composer.compose(c)
	q := &c.request
	r.number++
	if r.opt.Ledger != nil && q.kind != malformedRequest {
		r.lines = r.composer.fleet.appendSent(r.lines, c.number, q.samples)
	}
	r.report.Sent += uint64(len(q.samples))
	r.live++
	c.live, c.tries, c.intended = true, 0, intended
	r.send(c, 0, false)
}

// send queues a try of the request after a pause. asked means that the server asked for
// the pause.
func (r *run) send(c *connection, pause time.Duration, asked bool) {
	c.asked, c.resumes = asked, r.now+pause
	c.tries++
	if pause > 0 {
		time.AfterFunc(pause, c.start)
		return
	}
	r.ready = append(r.ready, c)
}

// flush writes the ledger's lines, and only then sends the ready requests.
func (r *run) flush() {
	if err := r.flushLedger(); err != nil {
		r.abort(err)
		return
	}
	for _, c := range r.ready {
		c.start()
	}
	r.ready = r.ready[:0]
}

func (r *run) flushLedger() error {
	if len(r.lines) == 0 {
		return nil
	}
	err := r.opt.Ledger.append(r.lines)
	r.lines = r.lines[:0]
	return err
}

// finishTry evaluates a finished try.
func (r *run) finishTry(c *connection) {
	r.figures.countTry(c, r.report)
	if c.failed == "" && !c.dropped || c.failed == failedGarbage {
		r.lastAnswer = c.ended
	}
	switch {
	case c.dropped:
		if c.request.drop { // otherwise it shared the connection with such a request
			r.report.Behaviours[Drop.String()]++
		}
		r.send(c, 0, false)
	case c.failed == failedGarbage:
		r.report.Errors[failedGarbage]++
		r.report.describe(c.answer.fault)
		r.giveUp(c, false)
	case c.failed != "":
		r.fail(c, c.failed)
	default:
		r.answered(c)
	}
	if r.report.Undocumented >= 100 && r.report.Requests == 0 {
		r.abort(fmt.Errorf("%w: %s", transfer.ErrNotPulsegate, r.report.Faults[0]))
	}
}

// answered evaluates an answer.
func (r *run) answered(c *connection) {
	a, n := &c.answer, uint64(len(c.request.samples))
	if a.problem != "" {
		r.report.Problems[a.problem]++
	}
	ledger := r.opt.Ledger != nil && c.request.kind != malformedRequest
	switch a.verdict {
	case accepted:
		if c.request.kind == malformedRequest {
			r.report.WronglyAccepted++
		}
		r.report.Stored += uint64(a.stored)
		r.report.Duplicate += uint64(a.duplicate)
		r.report.Rejected += uint64(len(a.rejected))
		record(r.figures.served, c.ended-c.sent)
		if ledger {
			r.lines = appendAnswered(r.lines, c.number, a.rejected)
		}
		r.complete(c)
	case refusedWhole:
		if a.status == 401 || a.status == 403 {
			r.abort(fmt.Errorf("the server rejects the credentials: status %d", a.status))
		}
		r.report.Rejected += n
		if ledger && a.part {
			r.lines = appendGivenUp(r.lines, c.number)
		} else if ledger {
			r.lines = appendRefused(r.lines, c.number)
		}
		r.complete(c)
	case unconfirmed:
		r.report.Failed += n
		if ledger {
			r.lines = appendGivenUp(r.lines, c.number)
		}
		r.complete(c)
	case refusedNow:
		if a.status == 429 {
			r.report.Refused429++
		} else {
			r.report.Refused503++
		}
		if r.links == nil { // MQTT has no Retry-After
			r.report.RetryAfter[min(int(a.retryAfter/time.Second), maxWaitSeconds)]++
		}
		r.retry(c, max(a.retryAfter, firstBackoff), true)
	case uncertain:
		r.fail(c, failedUncertain)
	case undocumented:
		r.report.describe(a.fault)
		r.giveUp(c, false)
	}
}

// complete ends a request that has its final answer.
func (r *run) complete(c *connection) {
	since := c.sent
	if r.opt.open() {
		since = c.intended
	}
	record(r.figures.latest, c.ended-since)
	r.report.Requests++
	c.live = false
	r.live--
	r.startNext(c)
}

// fail counts a try without an answer and retries the request.
func (r *run) fail(c *connection, why failure) {
	r.report.Errors[why]++
	wait := min(firstBackoff<<min(c.tries-1, 7), maxBackoff)
	// Jitter, so that gateways that failed together do not retry together.
	wait += time.Duration(c.gateway.random.below(int64(wait)))
	r.retry(c, wait, false)
}

// retry retries a connection's request after a wait, unless the maximum number of tries
// is reached.
func (r *run) retry(c *connection, wait time.Duration, asked bool) {
	if c.tries >= r.opt.MaxTries {
		r.giveUp(c, asked)
		return
	}
	r.send(c, min(wait, maxRetryAfter), asked)
}

// giveUp ends a request that never got a final answer.
func (r *run) giveUp(c *connection, wasRefused bool) {
	r.countGivenUp(c, wasRefused)
	r.startNext(c)
}

// countGivenUp counts a request that never got a final answer.
func (r *run) countGivenUp(c *connection, wasRefused bool) {
	c.live = false
	r.live--
	r.report.Failed += uint64(len(c.request.samples))
	r.report.GivenUp++
	if wasRefused {
		r.report.GivenUpRefused++
	}
	if r.opt.open() {
		record(r.figures.latest, r.now-c.intended) // the wait so far
	}
	if r.opt.Ledger != nil && c.request.kind != malformedRequest {
		r.lines = appendGivenUp(r.lines, c.number)
	}
}
