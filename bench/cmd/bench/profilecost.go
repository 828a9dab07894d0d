package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// profileCostCommand measures the cost of pulsegate profile for the profiled server.
//
// One server is loaded by one closed loop of pulsegate sim all the time. Windows with
// and without a profile alternate, and every other pair is reversed, so that neither
// other load nor a growing store favours one side. Each pair yields two ratios, with a
// profile to without:
//
//   - the server's CPU time per request, which shows the cost of profiling;
//   - requests per second.
//
// A window covers only the profiled time, because the command usually processes the
// profile on another machine.
//
// It prints every pair, and the median and the geometric mean of all pairs with its
// standard error; the page has no block for it. On a shared machine, single pairs are
// unreliable: use more rounds until the error is small.
type profileCostCommand struct {
	loads
	Connections int `default:"1000" help:"Connections."`
}

func (c *profileCostCommand) Validate() error {
	if c.Connections < 1 {
		return errors.New("--connections must be at least 1")
	}
	return c.loads.Validate()
}

func (c *profileCostCommand) Run(ctx context.Context, out io.Writer) (err error) {
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	p, err := c.startOwn(ctx, filepath.Join(work, "data"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	return c.loaded(ctx, p, func() error { return c.measure(ctx, p, out) })
}

// loaded calls f while the server is under load.
func (c *profileCostCommand) loaded(ctx context.Context, p *process, f func() error) error {
	// The load ends when f returns; the planned time must only be long enough.
	planned := time.Duration(c.Rounds*(2*c.Seconds+10))*time.Second + time.Minute
	load := exec.CommandContext(ctx, c.own(), "sim", "run", "--target=http://"+p.public,
		"--users="+strconv.Itoa(c.Connections), "--for="+planned.String())
	var output strings.Builder
	load.Stdout, load.Stderr = &output, &output
	if err := load.Start(); err != nil {
		return err
	}
	err := sleep(ctx, time.Duration(min(3, c.Seconds))*time.Second)
	if err == nil {
		err = f()
	}
	// When interrupted, it exits with 1 and a report, as intended.
	if e := load.Process.Signal(os.Interrupt); e != nil {
		return errors.Join(err, fmt.Errorf("the load ended too early:\n%s", output.String()))
	}
	var exit *exec.ExitError
	if e := load.Wait(); e != nil && !errors.As(e, &exit) {
		err = errors.Join(err, e)
	}
	return err
}

// measure runs the windows and prints the figures.
func (c *profileCostCommand) measure(ctx context.Context, p *process, out io.Writer) error {
	fmt.Fprintf(out, "%d connections, windows of %d s\n", c.Connections, c.Seconds)
	fmt.Fprintln(out, "pair  CPU µs per request         requests/s")
	fmt.Fprintln(out, "      without    with   ratio   without    with   ratio")
	var costs, speeds []float64
	for round := range c.Rounds {
		var with, without window
		var err error
		for _, profiled := range []bool{round%2 == 1, round%2 == 0} {
			w := &without
			if profiled {
				w = &with
			}
			if *w, err = c.window(ctx, p, profiled); err != nil {
				return err
			}
		}
		cost, speed := with.cost()/without.cost(), with.perSecond()/without.perSecond()
		costs, speeds = append(costs, cost), append(speeds, speed)
		fmt.Fprintf(out, "%4d  %7.2f %7.2f  %6.3f   %7.0f %7.0f  %6.3f\n", round+1,
			without.cost()*1e6, with.cost()*1e6, cost, without.perSecond(), with.perSecond(), speed)
	}
	_, err := fmt.Fprintf(out, "ratio of CPU per request: %s\nratio of requests/s:      %s\n", summary(costs), summary(speeds))
	return err
}

// A window is the work of the server in one window.
type window struct {
	cpuSeconds, requests float64
	took                 time.Duration
}

func (w window) cost() float64      { return w.cpuSeconds / w.requests }
func (w window) perSecond() float64 { return w.requests / w.took.Seconds() }

// window measures one window, with or without a profile.
func (c *profileCostCommand) window(ctx context.Context, p *process, profiled bool) (window, error) {
	before, err := served(ctx, p.admin)
	if err != nil {
		return window{}, err
	}
	start := time.Now()
	var output strings.Builder
	profile := exec.CommandContext(ctx, c.own(), "profile", "http://"+p.admin, "--json", "--for="+strconv.Itoa(c.Seconds)+"s")
	profile.Stderr = &output
	if profiled {
		if err := profile.Start(); err != nil {
			return window{}, err
		}
	}
	err = sleep(ctx, c.duration())
	took := time.Since(start)
	after, errAfter := served(ctx, p.admin)
	if profiled {
		if e := profile.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("profile: %w\n%s", e, output.String()))
		}
	}
	if err = errors.Join(err, errAfter); err != nil {
		return window{}, err
	}
	w := window{after.cpuSeconds - before.cpuSeconds, after.requests - before.requests, took}
	if w.requests <= 0 || w.cpuSeconds <= 0 {
		return w, errors.New("nothing was served in a window")
	}
	return w, nil
}

// served reads the server's CPU time and its number of POSTs from its metrics.
func served(ctx context.Context, admin string) (w window, err error) {
	metrics, err := scrape(ctx, admin)
	w.cpuSeconds = metrics["process_cpu_seconds_total"]
	for series, value := range metrics {
		if strings.HasPrefix(series, "pulsegate_http_requests_total{") && strings.Contains(series, `route="/v1/readings"`) {
			w.requests += value
		}
	}
	return w, err
}

// summary describes ratios. There must be at least one.
func summary(ratios []float64) string {
	mean, factor := geometric(ratios)
	return fmt.Sprintf("median %.3f, mean %.3f, standard error %.1f %%", report.SpreadOf(ratios).Median, mean, 100*(factor-1))
}

// geometric returns the geometric mean of positive values, and the factor that
// corresponds to one standard error. For a single value the factor is NaN.
func geometric(values []float64) (mean, factor float64) {
	n := float64(len(values))
	var sum, squares float64
	for _, v := range values {
		sum += math.Log(v)
	}
	for _, v := range values {
		d := math.Log(v) - sum/n
		squares += d * d
	}
	return math.Exp(sum / n), math.Exp(math.Sqrt(squares / (n - 1) / n))
}
