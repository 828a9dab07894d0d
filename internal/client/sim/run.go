package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// ErrSilent means that a server gave no answers for Options.Patience.
var ErrSilent = errors.New("no answer from the server")

// ErrInterrupted means that a run was canceled. The report covers what ran.
var ErrInterrupted = errors.New("interrupted")

// ErrRefusedAll means that no connection to the target could be opened.
var ErrRefusedAll = errors.New("the target refuses connections")

// Bounds of a run.
const (
	tickEvery         = 10 * time.Millisecond
	maxFinishedAtOnce = 64              // finished tries that are evaluated before more requests are sent
	stopGrace         = 2 * time.Second // wait for pending answers when a run is interrupted
)

// A run is the state of Run. The goroutine of Run owns it, decides what is sent, and
// counts outcomes; one goroutine per connection performs the tries. So the bookkeeping
// needs no locks, and a blocked connection does not delay requests on other
// connections.
type run struct {
	opt       *Options
	composer  composer
	transport transport

	report  *Report
	figures *figures
	conns   []*connection
	links   []*link // MQTT: by gateway
	abort   context.CancelCauseFunc
	tasks   sync.WaitGroup
	showing sync.Mutex // held during calls of OnProgress

	now        time.Duration // time of the current event since the start
	lastAnswer time.Duration // when an answer arrived, or none was expected
	active     int           // closed loop: connections with requests left
	live       int           // connections with a request in progress
	ready      []*connection // connections with a request to send, in order
	idle       []*connection // open loop: connections without a request, longest idle first
	lines      []byte        // lines to write to the ledger
	number     uint64        // number of the next request

	next, total uint64        // open loop: the next request, and the number of requests
	alarm       alarm         // fires when the next request is due
	alarmAt     time.Duration // time to which alarm is set; 0 means not set
	until       time.Duration // end of sending new requests; 0 means no end
	end         time.Duration // end of waiting for answers; 0 means no end
}

// Run loads the target as opt describes. The Report covers what ran and is never nil.
// The error is why a run ended early; for faults of the server see [Report.Fault].
//
// When ctx is done, Run sends nothing new and waits up to 2 s for pending answers. Run
// waits for all goroutines that it starts.
func Run(ctx context.Context, opt Options) (*Report, error) {
	if err := opt.Prepare(); err != nil {
		return &Report{}, err
	}
	report := newReport(&opt)
	if opt.dial == nil {
		if err := fitFiles(opt.Users); err != nil {
			return report, err
		}
	}
	if opt.dial == nil && opt.MQTT == nil && opt.MLLP == nil {
		if err := probe(ctx, opt.Target, opt.Token); err != nil {
			return report, err
		}
	}
	r, err := newRun(&opt, report)
	if err != nil {
		return report, err
	}
	defer r.alarm.stop()
	report.StartMs = r.composer.fleet.model.startMs
	before := processTime()
	err = r.execute(ctx)
	report.finish(r.figures, r.transport.elapsed(), processTime()-before)
	if err == nil && ctx.Err() != nil {
		err = ErrInterrupted
	}
	report.Interrupted = errors.Is(err, ErrInterrupted)
	return report, err
}

func newRun(opt *Options, report *Report) (*run, error) {
	target, newAlarm := opt.target(), timerAlarm
	perGateway := 1
	if opt.MQTT != nil {
		perGateway = opt.InFlight
	}
	slots := opt.Users * perGateway
	if target == nil {
		target = &Target{host: "pipe"}
	}
	r := &run{
		opt: opt, report: report, figures: newFigures(),
		composer: composer{
			fleet: newFleet(opt, opt.model(time.Now())), counts: report.Behaviours, version: opt.mqttVersion(),
			qos: byte(opt.QoS),
			heads: [2][]byte{target.head(opt.Token, false, opt.Influx, opt.Mapped),
				target.head(opt.Token, true, opt.Influx, opt.Mapped)},
		},
		transport: transport{dial: opt.dial, read: (*answerReader).read, judge: newJudge(opt), timeout: opt.Timeout,
			returned: make(chan *connection, slots)},
		conns:  make([]*connection, slots),
		active: slots,
		until:  opt.For,
		total:  pacer(opt.Rate).total(opt.For),
	}
	if opt.dial == nil {
		r.transport.dial = target.dial
		newAlarm = exactAlarm
	}
	if opt.MLLP != nil {
		r.transport.read = (*answerReader).readMessage
	}
	if opt.For > 0 {
		r.end = opt.For + opt.Patience
	}
	for i := range r.conns {
		// Over MQTT, the first connections are of different gateways.
		c := &connection{gateway: &r.composer.fleet.gateways[i%opt.Users], id: uint16(1 + i/opt.Users)}
		if r.conns[i] = c; opt.MQTT == nil {
			c.turn = make(chan *connection, 1)
			continue
		}
		if i < opt.Users {
			r.links = append(r.links, newLink(&r.transport, opt, c.gateway.number, func(err error) { r.abort(err) }))
		}
		c.turn = r.links[i%opt.Users].queue
	}
	var err error
	r.alarm, err = newAlarm()
	return r, err
}

// execute connects, then starts the clock and sends.
func (r *run) execute(outer context.Context) error {
	// An interrupted run continues briefly, an aborted one does not.
	ctx, abort := context.WithCancelCause(context.WithoutCancel(outer))
	r.abort = abort
	for _, l := range r.links {
		r.tasks.Go(func() { l.serve(ctx) })
	}
	for _, c := range r.conns {
		if r.links == nil {
			r.tasks.Go(func() { r.transport.serve(ctx, c) })
		}
	}
	r.transport.start = time.Now()
	err := r.connectAll(outer)
	connected := err == nil
	if connected {
		r.transport.start = time.Now()
		r.work(ctx, outer.Done())
		err = context.Cause(ctx)
	}
	abort(nil)
	r.tasks.Wait()
	for _, l := range r.links {
		for _, fault := range l.faults {
			r.report.describe(fault)
		}
	}
	if connected {
		r.countRemaining()
	}
	if ledger := r.flushLedger(); err == nil {
		err = ledger
	}
	return err
}

// connectAll opens all connections and waits for the outcome of each.
func (r *run) connectAll(ctx context.Context) error {
	gateways := r.conns[:r.opt.Users]
	for _, c := range gateways {
		c.start()
	}
	failed := 0
	for range gateways {
		select {
		case c := <-r.transport.returned:
			if c.failed != "" {
				failed++
				r.report.Errors[c.failed]++
			}
		case <-ctx.Done():
			return ErrInterrupted
		}
	}
	if failed == len(gateways) && r.opt.MQTT != nil {
		return fmt.Errorf("%w: %s", ErrRefusedAll, countsText(r.report.Errors))
	} else if failed == len(gateways) {
		return ErrRefusedAll
	}
	return nil
}

// work sends requests until nothing is left to do or ctx is done. After interrupted is
// closed, it sends nothing new.
func (r *run) work(ctx context.Context, interrupted <-chan struct{}) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for _, c := range r.conns {
		r.startNext(c)
	}
	for !r.done() && ctx.Err() == nil {
		r.dispatch()
		r.flush()
		select {
		case c := <-r.transport.returned:
			if !r.opt.open() {
				runtime.Gosched() // let other tries finish, to share a write to the ledger
			}
			r.now = r.transport.elapsed()
			r.finishTry(c)
			for range min(len(r.transport.returned), maxFinishedAtOnce) {
				r.finishTry(<-r.transport.returned)
			}
		case <-ticker.C:
			r.now = r.transport.elapsed()
			r.checkSilence()
			p, due := r.figures.advance(r.now, r.report)
			// A goroutine, so that a blocked terminal does not stop the load. The call is
			// skipped if the previous one has not returned.
			if due && r.opt.OnProgress != nil && r.showing.TryLock() {
				r.tasks.Go(func() {
					defer r.showing.Unlock()
					r.opt.OnProgress(p)
				})
			}
		case <-r.alarm.fired:
			r.alarmAt = 0
		case <-interrupted:
			interrupted = nil
			r.now = r.transport.elapsed()
			r.until, r.end, r.total = max(r.now, 1), r.now+stopGrace, r.next
		case <-ctx.Done():
		}
		r.now = r.transport.elapsed()
	}
}

// done reports whether the run is complete.
func (r *run) done() bool {
	if r.end > 0 && r.now > r.end {
		return true
	}
	if r.opt.open() {
		return r.next == r.total && r.live == 0
	}
	return r.active == 0
}

// checkSilence aborts the run if no answer has arrived for Patience although one was
// expected: a request was in progress and the server had not asked to wait.
func (r *run) checkSilence() {
	expected := r.live > 0 &&
		slices.ContainsFunc(r.conns, func(c *connection) bool { return c.live && !c.waitingAsAsked(r.now) })
	if !expected {
		r.lastAnswer = r.now
	} else if r.now-r.lastAnswer > r.opt.Patience {
		r.abort(fmt.Errorf("%w for %v", ErrSilent, r.opt.Patience))
	}
}

// countRemaining counts unfinished and unsent requests at the end of the run.
func (r *run) countRemaining() {
	r.now = r.transport.elapsed()
	for len(r.transport.returned) > 0 {
		r.figures.countTry(<-r.transport.returned, r.report)
	}
	for _, c := range r.conns {
		if c.live {
			r.countGivenUp(c, c.waitingAsAsked(r.now))
		}
	}
	for schedule := pacer(r.opt.Rate); r.next < r.total && schedule.intended(r.next) <= r.now; r.next++ {
		r.report.Unsent++
		record(r.figures.latest, r.now-schedule.intended(r.next)) // the wait so far
	}
}
