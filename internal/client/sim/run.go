package sim

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrSilent means that a server gave no answer to anything.
var ErrSilent = errors.New("sim: the server answered nothing")

// ErrInterrupted means that a run was ended from outside. What ran is reported.
var ErrInterrupted = errors.New("sim: interrupted")

// ErrRefusedAll means that no connection to the target could be opened.
var ErrRefusedAll = errors.New("sim: the target refuses connections")

// Run loads the target as cfg describes. The Report covers what ran, and is
// never nil, whether or not there was an error. The error tells why a run ended
// early; what a server did wrong stands in the report alone, see [Report.Fault].
//
// When ctx ends, nothing new is sent, and answers under way are waited for up to
// 2 s. Run starts goroutines and waits for all of them.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.prepare(); err != nil {
		return &Report{}, err
	}
	report := newReport(&cfg)
	if cfg.dial == nil {
		if err := probe(ctx, cfg.Target, cfg.Token); err != nil {
			return report, err
		}
	}
	r, loops, err := newRun(&cfg)
	if err != nil {
		return report, err
	}
	report.StartMs = r.fleet.model.startMs
	before := processTime()
	err = r.carryOut(ctx, loops)
	report.ElapsedS = time.Since(r.start).Seconds()
	report.cpu = processTime() - before
	report.fill(r, loops)
	if err == nil && ctx.Err() != nil {
		report.Interrupted = true
		err = ErrInterrupted
	}
	return report, err
}

// newRun makes the fleet and the loops.
func newRun(cfg *Config) (*run, []*loop, error) {
	r := &run{cfg: cfg, collector: newCollector(cfg.Threads)}
	if cfg.Target != nil {
		r.heads = [2][]byte{cfg.Target.head(cfg.Token, false), cfg.Target.head(cfg.Token, true)}
	} else {
		t := &Target{host: "pipe"}
		r.heads = [2][]byte{t.head(cfg.Token, false), t.head(cfg.Token, true)}
	}
	if cfg.Rate > 0 {
		pacer, err := NewPacer(cfg.Rate)
		if err != nil {
			return nil, nil, err
		}
		r.pacer, r.scheduled = pacer, pacer.Total(cfg.For)
	}
	r.fleet = newFleet(cfg, cfg.model(time.Now()))
	members := make([][]int32, cfg.Threads)
	for g := range r.fleet.gateways {
		i := r.fleet.group(g) % cfg.Threads
		members[i] = append(members[i], int32(g))
	}
	loops := make([]*loop, 0, cfg.Threads)
	for i := range members {
		tr, err := newTransport(cfg, len(members[i]))
		var l *loop
		if err == nil {
			l, err = newLoop(r, i, tr, members[i])
		}
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(loops))
		}
		loops = append(loops, l)
	}
	return r, loops, nil
}

// newTransport returns the cheapest transport that fits.
func newTransport(cfg *Config, n int) (transport, error) {
	switch {
	case cfg.dial != nil:
		return newNetTransport(n, cfg.dial), nil
	case cfg.Target.tls:
		return newTLSTransport(cfg.Target, n), nil
	}
	return newPlainTransport(cfg.Target, n)
}

func closeAll(loops []*loop) error {
	var errs error
	for _, l := range loops {
		errs = errors.Join(errs, l.tr.close())
	}
	return errs
}

// carryOut runs the loops: first all of them connect, then the clock starts.
func (r *run) carryOut(outer context.Context, loops []*loop) error {
	// A run that is interrupted goes on for a moment, one that is aborted does not.
	ctx, abort := context.WithCancelCause(context.WithoutCancel(outer))
	defer abort(nil)
	r.abort = abort
	defer context.AfterFunc(outer, func() { r.stop.Store(true) })()

	progress := make(chan Progress, 1)
	var showing sync.WaitGroup
	showing.Go(func() {
		for p := range progress {
			if r.cfg.OnProgress != nil {
				r.cfg.OnProgress(p)
			}
		}
	})
	show := func(p Progress) {
		select {
		case progress <- p:
		default: // a terminal that stands still must not stop the load
		}
	}
	r.start = time.Now()
	err := each(ctx, abort, loops, func(_ context.Context, l *loop) error { return l.connect(outer) })
	if err == nil && !anyConnected(loops) {
		err = ErrRefusedAll
	}
	if err == nil {
		r.start = time.Now()
		for _, l := range loops {
			l.progress = show
		}
		err = each(ctx, abort, loops, func(ctx context.Context, l *loop) error { return l.work(ctx) })
	}
	close(progress)
	showing.Wait()
	if outer.Err() != nil && errors.Is(err, context.Cause(outer)) {
		err = nil // Run says so
	}
	return errors.Join(err, closeAll(loops))
}

// each calls f for all loops at once and waits. The first error ends the others.
func each(ctx context.Context, abort context.CancelCauseFunc, loops []*loop, f func(context.Context, *loop) error) error {
	var group sync.WaitGroup
	for _, l := range loops {
		group.Go(func() {
			if err := f(ctx, l); err != nil {
				abort(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func anyConnected(loops []*loop) bool {
	for _, l := range loops {
		for i := range l.conns {
			if l.conns[i].connected {
				return true
			}
		}
	}
	return false
}

// problems returns how often each type of problem was the answer.
func problems(loops []*loop) map[string]uint64 {
	all := map[string]uint64{}
	for _, l := range loops {
		for name, n := range l.problems {
			all[name] += n
		}
	}
	return all
}
