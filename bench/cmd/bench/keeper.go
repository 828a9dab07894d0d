package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// storing has the flags of the commands that store many readings.
type storing struct {
	loads
	Settled time.Duration `default:"8s" help:"How long a server must be idle until it counts as settled."`
}

func (c *storing) Validate() error {
	if c.Settled <= 0 {
		return errors.New("--settled must be positive")
	}
	return c.loads.Validate()
}

// A keeper is a running server that stores readings.
type keeper struct {
	outlet
	process  *process
	dir      string // of its data
	leaveOut string // name of a folder in dir that is not counted
	// writes what the server has yet to write; nil means it does by itself
	finish  func(ctx context.Context) error
	stored  func(ctx context.Context) (uint64, error) // number of readings
	stop    func() error
	restart func(ctx context.Context) error // of Pulsegate, with the same data
}

// keep calls f with a server with its data in a new directory.
func (l *loads) keep(ctx context.Context, start func(ctx context.Context, dir string) (*keeper, error),
	f func(*keeper) error) (err error) {
	dir, err := os.MkdirTemp(l.work, "data-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	k, err := start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.stop()) }()
	return f(k)
}

// ownKeeper returns what starts the Pulsegate in the directory programs.
func ownKeeper(programs string) func(ctx context.Context, dir string) (*keeper, error) {
	return func(ctx context.Context, dir string) (*keeper, error) {
		k := &keeper{dir: filepath.Join(dir, "data")}
		k.restart = func(ctx context.Context) error {
			p, err := startOwn(ctx, programs, k.dir, nil)
			if err != nil {
				return err
			}
			k.process, k.outlet, k.stop = p, ownOutlet(p.public), p.stop
			return p.awaitOK(ctx, "http://"+p.public+"/readyz")
		}
		k.stored = func(ctx context.Context) (uint64, error) {
			metrics, err := scrape(ctx, k.process.admin)
			return uint64(metrics[`pulsegate_readings_total{outcome="stored"}`]), err
		}
		return k, k.restart(ctx)
	}
}

// store loads a server and waits until it has settled.
func (c *storing) store(ctx context.Context, k *keeper, f *flow, readings int) (report.Figures, error) {
	pid := k.process.pid()
	cpuBefore, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	writtenBefore, err := writtenBytes(pid)
	if err != nil {
		return nil, err
	}
	load, err := f.run(ctx, readings/batchReadings)
	if err != nil {
		return nil, err
	}
	if k.finish != nil {
		if err := k.finish(ctx); err != nil {
			return nil, err
		}
	}
	disk, err := c.settle(ctx, k)
	if err != nil {
		return nil, err
	}
	cpu, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	written, err := writtenBytes(pid)
	if err != nil {
		return nil, err
	}
	n := load.batches * batchReadings
	q := load.quantiles(0.5, 0.99, 0.999)
	run := latency(per(n, load.duration, cpu-cpuBefore, load.cpu), q[0], q[1])
	run["p99.9"], run["tail"] = report.Millis(q[2]), float64(q[2])/float64(q[0])
	run["readings"], run["millions"], run["slowest"], run["refused"] = float64(n), float64(n)/1e6, load.slowest(),
		float64(load.refused)
	run["disk"], run["written"] = float64(disk)/float64(n), float64(written-writtenBefore)/float64(load.bytes)
	stored, err := k.stored(ctx)
	if err == nil && stored != n {
		err = fmt.Errorf("%d readings were answered as stored, and %d are", n, stored)
	}
	return run, err
}

const (
	settleCheck   = 500 * time.Millisecond
	settleTimeout = 30 * time.Minute

	// idlePermille is the CPU time of a server that is idle, in permille of a core.
	// Runtimes and tickers use some.
	idlePermille = 60
)

// settle waits until a server has been idle, and the size of its data has not changed,
// for c.Settled. It returns that size.
func (c *storing) settle(ctx context.Context, k *keeper) (size uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	last, err := k.state(ctx)
	if err != nil {
		return 0, err
	}
	for since := time.Now(); time.Since(since) < c.Settled; {
		if err := sleep(ctx, min(settleCheck, c.Settled)); err != nil {
			return 0, fmt.Errorf("wait for a settled server: %w", err)
		}
		now, err := k.state(ctx)
		if err != nil {
			return 0, err
		}
		if now.busySince(last) {
			since = time.Now()
		}
		last = now
	}
	return last.size, nil
}

// workMetrics are metrics of Pulsegate that change while it works in the background. A version without one of them is
// known by its CPU.
var workMetrics = [...]string{"pulsegate_store_compaction_debt_bytes", "pulsegate_store_tables",
	"pulsegate_store_sealed_readings_total"}

// A keeperState is what shows whether a server is at work.
type keeperState struct {
	at   time.Time
	cpu  time.Duration
	size uint64
	work [len(workMetrics)]float64
}

// busySince reports whether a server has worked since an earlier state.
func (s keeperState) busySince(earlier keeperState) bool {
	idle := s.at.Sub(earlier.at)*idlePermille/1000 + tick
	return s.cpu-earlier.cpu > idle || s.size != earlier.size || s.work != earlier.work
}

func (k *keeper) state(ctx context.Context) (s keeperState, err error) {
	s.at = time.Now()
	if s.cpu, err = cpuTime(k.process.pid()); err != nil {
		return s, err
	}
	if s.size, err = diskBytes(k.dir, k.leaveOut); err != nil || k.process.admin == "" {
		return s, err
	}
	metrics, err := scrape(ctx, k.process.admin)
	for i, name := range workMetrics {
		s.work[i] = metrics[name]
	}
	return s, err
}

// diskBytes returns the disk space of dir, without the folders leaveOut.
func diskBytes(dir, leaveOut string) (n uint64, err error) {
	// It reports files as missing that the server has removed since they were listed.
	text, _ := exec.Command("du", "--summarize", "--block-size=1", "--exclude="+leaveOut, dir).Output()
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		return 0, fmt.Errorf("measure disk space of %s: %w", dir, err)
	}
	return n, nil
}
