package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/klauspost/compress/gzip"
)

// Steps of a loop's time.
const (
	sweepEvery   = 10 * time.Millisecond // look after timeouts and pauses
	publishEvery = time.Second
	readBytes    = 64 << 10
	flushAt      = 64              // requests that are ready are sent at the latest when there are so many
	maxForwards  = 16              // readings that wait for their second gateway
	stopGrace    = 2 * time.Second // for the answers under way when a run is interrupted
	maxFaults    = 5               // undocumented answers that are described
)

// firstBackoff is the wait before a request is sent again; it doubles up to
// maxBackoff. The wait that a server asks for is kept up to maxRetryAfter.
const (
	firstBackoff  = 50 * time.Millisecond
	maxBackoff    = 5 * time.Second
	maxRetryAfter = 5 * time.Minute
)

// A run is what all loops share.
type run struct {
	cfg       *Config
	fleet     *Fleet
	heads     [2][]byte // of requests, without and with gzip
	collector *collector
	pacer     Pacer
	scheduled uint64 // requests of an open loop
	start     time.Time
	abort     context.CancelCauseFunc
	stop      atomic.Bool // send nothing new, and end soon

	lastAnswer atomic.Int64 // time.Duration since start
}

// A loop drives its share of the gateways, in one goroutine.
type loop struct {
	*run
	index int
	tr    transport
	conns []connection
	judge *judge

	now     time.Duration // since the start, when the event at hand was seen
	active  int           // connections that are not finished
	ready   []int32       // with a request to send, in order
	idle    []int32       // open loop: without a request, longest first
	lines   []byte        // for the ledger, about ready requests and answers
	in      []byte        // read buffer
	plain   []byte        // a body to be compressed
	gzip    *gzip.Writer
	packed  appendWriter
	numbers uint64 // of requests

	share     share
	next      uint64 // of the share, the request that is due next
	mine      uint64 // of the schedule, how many are the share's
	forwards  [][]sample
	forwarder []int32 // the gateway that each of forwards came from

	until time.Duration // no new requests after it; 0: no end
	grace time.Duration // how long after until a run still waits for answers

	tally     tally
	latency   *hdrhistogram.Histogram
	late      *hdrhistogram.Histogram
	served    *hdrhistogram.Histogram
	problems  map[string]uint64
	faults    []string
	nextSweep time.Duration
	published time.Duration
	progress  func(Progress)
}

// A connState is what a connection does.
type connState uint8

const (
	down       connState = iota // not connected
	connecting                  // the transport tells the outcome
	free                        // connected, without a request
	queued                      // in loop.ready
	sending                     // a part of the request was sent
	waiting                     // for the answer
	pausing                     // until wake
	finished
)

// A connection is one gateway's.
type connection struct {
	state     connState
	connected bool
	live      bool // request is under way: made, not answered, not given up
	backOff   bool // the pause was asked for by the server
	gateway   *gateway
	posts     int64 // left to send, closed loop

	request  request
	number   uint64
	out      []byte // the request's text is out[from:]
	from     int
	off      int // of it, what was sent
	tries    int
	intended time.Duration
	free     time.Duration // since when there was no request before this one
	sent     time.Duration // the last try
	active   time.Duration // since when an answer could be expected
	wake     time.Duration
	response response
}

func newLoop(r *run, index int, tr transport, members []int32) (*loop, error) {
	l := &loop{
		run: r, index: index, tr: tr, judge: newJudge(),
		conns: make([]connection, len(members)), active: len(members),
		in: make([]byte, readBytes), numbers: uint64(index),
		share:   share{r.pacer, uint64(index), uint64(r.cfg.Threads)},
		until:   r.cfg.For,
		grace:   r.cfg.Patience,
		latency: newHistogram(), late: newHistogram(), served: newHistogram(), problems: map[string]uint64{},
	}
	l.mine = l.share.count(r.scheduled)
	for i, g := range members {
		l.conns[i] = connection{gateway: &r.fleet.gateways[g], posts: r.cfg.Posts}
	}
	var err error
	if l.gzip, err = gzip.NewWriterLevel(&l.packed, gzip.BestSpeed); err != nil {
		return nil, fmt.Errorf("make gzip writer: %w", err)
	}
	return l, nil
}

// open reports whether the loop is an open one.
func (r *run) open() bool { return r.scheduled > 0 }

// connect opens all connections and returns when the outcome of each is known.
func (l *loop) connect(ctx context.Context) error {
	for id := range l.conns {
		l.conns[id].state = connecting
		l.tr.open(int32(id))
	}
	for known := 0; known < len(l.conns); {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		events, err := l.tr.wait(sweepEvery)
		if err != nil {
			return err
		}
		for _, e := range events {
			c := &l.conns[e.id]
			if c.state != connecting {
				continue
			}
			known++
			if c.connected = e.kind == opened; c.connected {
				c.state = free
				continue
			}
			c.state = down
			l.tally.failures[failedConnect]++
		}
	}
	return nil
}

// work sends until there is nothing left to do or ctx ends. The connections stay
// open; requests without an answer are counted as failed.
func (l *loop) work(ctx context.Context) error {
	l.now = time.Since(l.start)
	for id := range l.conns {
		l.rest(int32(id))
	}
	var err error
	for err == nil && ctx.Err() == nil {
		if err = l.flush(); err != nil {
			break
		}
		if l.done() {
			break
		}
		var events []event
		if events, err = l.tr.wait(l.patience()); err != nil {
			break
		}
		for _, e := range events {
			l.now = time.Since(l.start)
			if err = l.handle(e); err != nil {
				break
			}
		}
		if l.now = time.Since(l.start); err == nil {
			err = l.tick()
		}
	}
	l.end()
	return errors.Join(err, l.flushLedger())
}

// done reports whether nothing is left to send or to wait for.
func (l *loop) done() bool {
	if !l.open() {
		return l.active == 0
	}
	if l.next < l.mine && l.now < l.until+l.grace {
		return false
	}
	for id := range l.conns {
		if l.conns[id].live {
			return false
		}
	}
	return true
}

// patience returns how long to wait for events.
func (l *loop) patience() time.Duration {
	d := l.nextSweep - l.now
	if len(l.idle) > 0 && l.next < l.mine {
		d = min(d, l.share.intended(l.next)-time.Since(l.start))
	}
	return min(max(d, 0), sweepEvery)
}

// tick does what time asks for.
func (l *loop) tick() error {
	if l.stop.Load() && l.grace != stopGrace {
		l.until, l.grace, l.mine = max(l.now, 1), stopGrace, l.next
	}
	if l.open() {
		if err := l.dispatch(); err != nil {
			return err
		}
	}
	if l.now >= l.nextSweep {
		l.nextSweep = l.now + sweepEvery
		if err := l.sweep(); err != nil {
			return err
		}
	}
	if l.now-l.published >= publishEvery {
		l.publish()
	}
	return nil
}

func (l *loop) publish() {
	l.published = l.now.Truncate(publishEvery)
	ended := l.collector.add(l.index, l.now, &l.tally, l.latency, l.late, l.served)
	if ended != nil && l.progress != nil {
		l.progress(*ended)
	}
}

// dispatch gives the requests that are due to connections without one.
func (l *loop) dispatch() error {
	for len(l.idle) > 0 && l.next < l.mine && l.now < l.until+l.grace {
		intended := l.share.intended(l.next)
		if intended > l.now {
			return nil
		}
		id := l.idle[0]
		l.idle = l.idle[1:]
		if c := &l.conns[id]; c.state != free && c.state != down {
			continue
		}
		l.next++
		if err := l.begin(id, intended); err != nil {
			return err
		}
	}
	return nil
}

// sweep looks after connections that wait.
func (l *loop) sweep() error {
	answered := time.Duration(l.lastAnswer.Load())
	ending := l.until > 0 && l.now > l.until+l.grace
	for i := range l.conns {
		c, id := &l.conns[i], int32(i)
		if !c.live && c.state != pausing {
			continue
		}
		if c.live && !(c.state == pausing && c.backOff) && l.now-max(c.active, answered) > l.cfg.Patience {
			return fmt.Errorf("%w for %v", ErrSilent, l.cfg.Patience)
		}
		switch {
		case ending && c.live:
			l.giveUp(id, c.state == pausing && c.backOff)
		case c.state == pausing && l.now >= c.wake:
			c.active = l.now
			l.resume(id)
		case (c.state == waiting || c.state == sending) && l.now-c.sent > l.cfg.Timeout:
			l.fail(id, failedTimeout)
		}
	}
	return nil
}

// end counts what is left when the run is over.
func (l *loop) end() {
	l.now = time.Since(l.start)
	for i := range l.conns {
		if c := &l.conns[i]; c.live {
			l.forget(c, c.state == pausing && c.backOff)
		}
	}
	if l.open() {
		due := min(l.mine, l.share.count(l.pacer.Due(l.now)))
		for ; l.next < due; l.next++ {
			l.tally.unsent++
			record(l.latency, l.now-l.share.intended(l.next)) // at least so long
		}
	}
	l.publish()
}
