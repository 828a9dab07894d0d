package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
)

// ErrSilent means that a server gave no answer to anything.
var ErrSilent = errors.New("sim: the server answered nothing")

// ErrInterrupted means that a run was ended from outside. What ran is reported.
var ErrInterrupted = errors.New("sim: interrupted")

// ErrRefusedAll means that no connection to the target could be opened.
var ErrRefusedAll = errors.New("sim: the target refuses connections")

// Bounds of a run.
const (
	tickEvery   = 10 * time.Millisecond
	takeAtOnce  = 64              // tries that are taken back before more is sent
	maxForwards = 16              // readings that wait for their second gateway
	stopGrace   = 2 * time.Second // for the answers under way when a run is interrupted
	maxFaults   = 5               // undocumented answers that are described
)

// A run is a fleet at work. One goroutine, that of Run, owns it, decides what is
// sent and counts what became of it; a goroutine for each connection carries out
// the tries. So all bookkeeping is free of locks, and nothing that blocks on the
// network delays a request that is due on another connection.
type run struct {
	cfg   *Config
	fleet *Fleet
	heads [2][]byte // of requests, without and with gzip
	judge *judge
	dial  func(context.Context) (net.Conn, error)
	start time.Time

	report   *Report
	figures  *figures
	conns    []*connection
	returned chan *connection // from their goroutines
	abort    context.CancelCauseFunc
	tasks    sync.WaitGroup
	showing  sync.Mutex // held while progress is shown

	now      time.Duration // since the start, when the event at hand was seen
	heard    time.Duration // when an answer came, or none could be expected
	active   int           // closed loop: connections that are not finished
	live     int           // connections with a request under way
	ready    []*connection // with a request to send, in order
	idle     []*connection // open loop: without a request, longest first
	lines    []byte        // for the ledger, about ready requests and answers
	plain    []byte        // a body to be compressed
	gzip     *gzip.Writer
	packed   appendWriter
	number   uint64 // of the next request
	forwards []forward

	next, total uint64        // open loop: the request that is due next, and how many there are
	alarm       alarm         // for the next request
	alarmAt     time.Duration // what alarm is set to; 0: not set
	until       time.Duration // no new requests after it; 0: no end
	end         time.Duration // of waiting for answers; 0: no end
}

// A forward is what a gateway has sent, and another one is to send again.
type forward struct {
	from    int32
	samples []sample
}

// Run loads the target as cfg describes. The Report covers what ran, and is
// never nil, whether or not there was an error. The error is why a run ended
// early; what a server did wrong stands in the report alone, see [Report.Fault].
//
// When ctx ends, nothing new is sent, and answers under way are waited for up to
// 2 s. Run starts goroutines and waits for all of them.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Prepare(); err != nil {
		return &Report{}, err
	}
	report := newReport(&cfg)
	if cfg.dial == nil {
		if err := fitFiles(cfg.Users); err != nil {
			return report, err
		}
		if err := probe(ctx, cfg.Target, cfg.Token); err != nil {
			return report, err
		}
	}
	r, err := newRun(&cfg, report)
	if err != nil {
		return report, err
	}
	defer r.alarm.stop()
	report.StartMs = r.fleet.model.startMs
	before := processTime()
	err = r.carryOut(ctx)
	report.finish(r.figures, time.Since(r.start), processTime()-before)
	if err == nil && ctx.Err() != nil {
		err = ErrInterrupted
	}
	report.Interrupted = errors.Is(err, ErrInterrupted)
	return report, err
}

func newRun(cfg *Config, report *Report) (*run, error) {
	target, newAlarm := cfg.Target, timerAlarm
	if target == nil {
		target = &Target{host: "pipe"}
	}
	r := &run{
		cfg: cfg, judge: newJudge(), report: report, figures: newFigures(), dial: cfg.dial,
		fleet:    newFleet(cfg, cfg.model(time.Now())),
		heads:    [2][]byte{target.head(cfg.Token, false), target.head(cfg.Token, true)},
		conns:    make([]*connection, cfg.Users),
		returned: make(chan *connection, cfg.Users),
		active:   cfg.Users,
		until:    cfg.For,
	}
	if r.dial == nil {
		r.dial = target.dial
		newAlarm = exactAlarm
	}
	if cfg.Rate > 0 {
		r.total = cfg.pacer.Total(cfg.For)
	}
	if cfg.For > 0 {
		r.end = cfg.For + cfg.Patience
	}
	for i := range r.conns {
		r.conns[i] = &connection{gateway: &r.fleet.gateways[i], posts: cfg.Posts, turn: make(chan struct{}, 1)}
	}
	var err error
	if r.gzip, err = gzip.NewWriterLevel(&r.packed, gzip.BestSpeed); err != nil {
		return nil, fmt.Errorf("make gzip writer: %w", err)
	}
	r.alarm, err = newAlarm()
	return r, err
}

// carryOut connects, then starts the clock and sends.
func (r *run) carryOut(outer context.Context) error {
	// A run that is interrupted goes on for a moment, one that is aborted does not.
	ctx, abort := context.WithCancelCause(context.WithoutCancel(outer))
	r.abort = abort
	for _, c := range r.conns {
		r.tasks.Go(func() { r.serve(ctx, c) })
	}
	r.start = time.Now()
	err := r.connectAll(outer)
	connected := err == nil
	if connected {
		r.start = time.Now()
		r.work(ctx, outer.Done())
		err = context.Cause(ctx)
	}
	abort(nil)
	for _, c := range r.conns {
		close(c.turn)
	}
	r.tasks.Wait()
	if connected {
		r.countRest()
	}
	if ledger := r.flushLedger(); err == nil {
		err = ledger
	}
	return err
}

// connectAll opens all connections and returns when the outcome of each is known.
func (r *run) connectAll(ctx context.Context) error {
	for _, c := range r.conns {
		c.turn <- struct{}{}
	}
	failed := 0
	for range r.conns {
		select {
		case c := <-r.returned:
			if c.failed != "" {
				failed++
				r.report.Errors[c.failed]++
			}
		case <-ctx.Done():
			return ErrInterrupted
		}
	}
	if failed == len(r.conns) {
		return ErrRefusedAll
	}
	return nil
}

// work sends until there is nothing left to do or ctx ends. Once interrupted is
// closed, it sends nothing new.
func (r *run) work(ctx context.Context, interrupted <-chan struct{}) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for _, c := range r.conns {
		r.rest(c)
	}
	for !r.done() && ctx.Err() == nil {
		r.dispatch()
		r.flush()
		select {
		case c := <-r.returned:
			if !r.open() {
				runtime.Gosched() // others come back meanwhile, and share a write to the ledger
			}
			r.now = time.Since(r.start)
			r.takeBack(c)
			for range min(len(r.returned), takeAtOnce) {
				r.takeBack(<-r.returned)
			}
		case <-ticker.C:
			r.now = time.Since(r.start)
			r.checkSilence()
			if r.figures.advance(r.now, r.report.sums) {
				r.show(r.report.progress(r.figures))
			}
		case <-r.alarm.fired:
			r.alarmAt = 0
		case <-interrupted:
			interrupted = nil
			r.now = time.Since(r.start)
			r.until, r.end, r.total = max(r.now, 1), r.now+stopGrace, r.next
		case <-ctx.Done():
		}
		r.now = time.Since(r.start)
	}
}

// show hands progress on. A terminal that stands still must not stop the load: until
// it has taken one step, others are left out.
func (r *run) show(p Progress) {
	if r.cfg.OnProgress != nil && r.showing.TryLock() {
		r.tasks.Go(func() {
			defer r.showing.Unlock()
			r.cfg.OnProgress(p)
		})
	}
}

// open reports whether the loop is an open one.
func (r *run) open() bool { return r.cfg.Rate > 0 }

// done reports whether nothing is left to send or to wait for.
func (r *run) done() bool {
	if r.end > 0 && r.now > r.end {
		return true
	}
	if r.open() {
		return r.next == r.total && r.live == 0
	}
	return r.active == 0
}

// checkSilence ends a run in which no answer has come for too long, although one
// could be expected: a request was under way, and the server had not asked to
// wait.
func (r *run) checkSilence() {
	expected := false
	for _, c := range r.conns {
		expected = expected || c.live && !c.obeying(r.now)
	}
	if !expected {
		r.heard = r.now
	} else if r.now-r.heard > r.cfg.Patience {
		r.abort(fmt.Errorf("%w for %v", ErrSilent, r.cfg.Patience))
	}
}

// countRest counts what is left when the run is over.
func (r *run) countRest() {
	r.now = time.Since(r.start)
	for len(r.returned) > 0 {
		r.countTry(<-r.returned)
	}
	for _, c := range r.conns {
		if c.live {
			r.forget(c, c.obeying(r.now))
		}
	}
	for due := min(r.total, r.cfg.pacer.Due(r.now)); r.next < due; r.next++ {
		r.report.Unsent++
		record(r.figures.latency, r.now-r.cfg.pacer.Intended(r.next)) // at least so long
	}
}
