package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// memoryLimit is the GOMEMLIMIT of the servers, in bytes.
const memoryLimit = 512 << 20

// overloadCommand measures Pulsegate under overload. It determines the capacity of a
// server with a closed loop, and then loads it with open loops at multiples of that, in
// several settings. Every run has a fresh server. During the load, its readiness and
// its readings are requested.
type overloadCommand struct {
	loads
	Connections int       `default:"1000" help:"Connections."`
	Multiples   []float64 `default:"1,2,5" help:"Loads, as multiples of the server's capacity."`
	Settings    []string  `help:"Settings, such as rude,patient. Default: all."`
}

func (c *overloadCommand) Validate() error {
	if c.Connections < 4 {
		return errors.New("--connections must be at least 4")
	}
	if len(c.Multiples) == 0 || slices.ContainsFunc(c.Multiples, func(m float64) bool { return !(m > 0 && m <= 100) }) {
		return errors.New("--multiples must be from 0 to 100")
	}
	return c.loads.Validate()
}

func (c *overloadCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("overload")
	scenarios, err := choose(c.scenarios(), func(s scenario) string { return s.name }, c.Settings)
	if err != nil {
		return fmt.Errorf("--settings: %w", err)
	}
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	result := &report.Overload{
		Setting: setting, Rounds: c.Rounds, Duration: c.duration(), Connections: c.Connections,
		Multiples: c.Multiples, MemoryLimitBytes: memoryLimit,
	}
	for _, s := range scenarios {
		result.Scenarios = append(result.Scenarios, report.Scenario{Name: s.name, What: s.what})
	}
	b := &overloadRun{c, work, out}
	for round := range c.Rounds {
		for i, s := range scenarios {
			runs, err := b.measure(ctx, s, round)
			if err != nil {
				return fmt.Errorf("measure %s: %w", s.name, err)
			}
			result.Scenarios[i].Rounds = append(result.Scenarios[i].Rounds, runs)
		}
	}
	return c.write(out, "overload", result.Markdown())
}

// A scenario is a server configuration with the clients that overload it.
type scenario struct {
	name, what string
	serve, sim []string // flags
}

// An overloadRun is one run of the command.
type overloadRun struct {
	*overloadCommand
	work string
	out  io.Writer
}

// Constants of a run.
const (
	patience  = 2 * time.Second // wait of the load generator for answers after the end of the schedule
	calibrate = "closed loop"
)

// scenarios returns all scenarios. In all but one, the queue has room for the requests
// of only a quarter of the connections, so that requests are rejected.
func (c *overloadCommand) scenarios() []scenario {
	n := strconv.Itoa(c.Connections / 4)
	quarter := "--max-queued=" + n
	return []scenario{
		{"rude", "a short queue; clients whose request is refused drop the reading and send the next one at once",
			[]string{quarter, "--max-group=" + n}, []string{"--tries=1"}},
		{"patient", "a short queue; clients that respect Retry-After",
			[]string{quarter, "--max-group=" + n}, nil},
		{"commits", "a short queue and groups of 16 readings, so that the server is limited by commits and not by its CPU; clients as rude",
			[]string{quarter, "--max-group=16"}, []string{"--tries=1"}},
		{"defaults", "default flags: the queue has room for one request per connection; clients as rude",
			nil, []string{"--tries=1"}},
	}
}

// measure runs one round of a scenario: the closed loop, then the open loops, whose
// order rotates in each round.
func (b *overloadRun) measure(ctx context.Context, s scenario, round int) (report.OverloadRound, error) {
	base, err := b.run(ctx, s, calibrate)
	if err != nil {
		return report.OverloadRound{}, err
	}
	r := report.OverloadRound{Base: base, Runs: make([]report.OverloadRun, len(b.Multiples))}
	for i := range b.Multiples {
		i = (i + round) % len(b.Multiples)
		rate := strconv.FormatFloat(base.StoredPerSecond()*b.Multiples[i], 'f', 0, 64)
		if r.Runs[i], err = b.run(ctx, s, rate); err != nil {
			return r, err
		}
	}
	return r, nil
}

// run loads a fresh server, in a closed loop or at a rate in requests per second.
func (b *overloadRun) run(ctx context.Context, s scenario, rate string) (_ report.OverloadRun, err error) {
	dir := filepath.Join(b.work, "data")
	if err := os.RemoveAll(dir); err != nil {
		return report.OverloadRun{}, fmt.Errorf("empty directory: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := b.startOwn(ctx, dir, []string{"GOMEMLIMIT=" + strconv.Itoa(memoryLimit)}, s.serve...)
	if err != nil {
		return report.OverloadRun{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	const name = "bench"
	args := []string{"--target=http://" + p.public, "--users=" + strconv.Itoa(b.Connections), "--threads=1",
		"--for=" + b.duration().String(), "--patience=" + patience.String(), "--run=" + name}
	if rate != calibrate {
		args = append(append(args, "--rate="+rate), s.sim...)
	}
	// Other clients are not synchronized with the load: they send a request every 50
	// ms.
	asked := poll(ctx, "http://"+p.public+"/readyz", true)
	read := poll(ctx, "http://"+p.public+"/v1/devices/sim-"+name+"-000000/readings?limit=100", false)
	before, err := cpuTime(p.pid())
	if err != nil {
		return report.OverloadRun{}, err
	}
	sim, err := simulate(ctx, b.own(), b.duration()+patience+loadGrace, args...)
	if err != nil {
		return report.OverloadRun{}, err
	}
	after, err := cpuTime(p.pid())
	if err != nil {
		return report.OverloadRun{}, err
	}
	peak, err := memory(p.pid(), "VmHWM")
	if err != nil {
		return report.OverloadRun{}, err
	}
	r := report.OverloadRun{
		Duration:     time.Duration(sim.ElapsedS * float64(time.Second)),
		Stored:       sim.Stored,
		Tries:        sim.Tries,
		Refused:      sim.Refused503,
		RetryAfter:   sim.RetryAfter,
		P50:          time.Duration(sim.Served.P50Us) * time.Microsecond,
		P99:          time.Duration(sim.Served.P99Us) * time.Microsecond,
		ServerCPU:    after - before,
		LoaderCPU:    sim.cpu,
		PeakRSSBytes: int64(peak),
		Health:       asked.stop(),
		Reads:        read.stop(),
	}
	fmt.Fprintf(b.out, "%-9s %11s/s: stored %8.0f/s of %8.0f tries/s, served within p99 %6.1f ms, server %5.1f µs CPU per stored reading, %d MiB\n",
		s.name, rate, r.StoredPerSecond(), r.TriesPerSecond(), r.P99.Seconds()*1e3, r.ServerCPUPerStored(), r.PeakRSSBytes>>20)
	return r, nil
}

// A simReport has the needed fields of the report of pulsegate sim.
type simReport struct {
	Sent, Stored, Requests, Tries uint64

	ElapsedS     float64           `json:"elapsed_s"`
	Refused503   uint64            `json:"refused_503"`
	RetryAfter   map[string]uint64 `json:"retry_after_s"`
	Undocumented uint64
	Faults       []string
	Served       struct {
		P50Us int64 `json:"p50_us"`
		P99Us int64 `json:"p99_us"`
	}

	cpu time.Duration // CPU time of pulsegate sim
}

// simulate runs pulsegate sim. It ignores readings that were given up at the end, and
// the resulting exit code, because under overload these are expected.
func simulate(ctx context.Context, program string, timeout time.Duration, flags ...string) (*simReport, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"sim", "run", "--json"}, flags...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	var r simReport
	if json.Unmarshal(text, &r) != nil {
		return nil, fmt.Errorf("pulsegate sim wrote no report: %w", err)
	}
	if r.Undocumented > 0 || r.Stored == 0 {
		return nil, fmt.Errorf("of %d tries %d were stored, and %d got undocumented answers: %q", r.Tries, r.Stored, r.Undocumented, r.Faults)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return &r, nil
}
