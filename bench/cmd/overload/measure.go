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

// A scenario is a server and the clients that overload it.
type scenario struct {
	name, what string
	serve, sim []string // flags
}

// A bench runs the scenarios.
type bench struct {
	cfg  *config
	work string
	out  io.Writer
}

// Of a run.
const (
	patience  = 2 * time.Second  // of the load generator, behind the end of the schedule
	runGrace  = 40 * time.Second // for the load generator to end
	calibrate = "closed loop"
)

// scenarios returns those that are asked for. In all but one the queue takes a
// quarter of the connections' requests, so that there is something to refuse.
func (b *bench) scenarios() ([]scenario, error) {
	quarter := "--max-queued=" + strconv.Itoa(b.cfg.connections/4)
	all := []scenario{
		{"rude", "a short queue; clients that are refused drop the reading and send the next one at once",
			[]string{quarter, "--max-group=" + strconv.Itoa(b.cfg.connections/4)}, []string{"--tries=1"}},
		{"patient", "a short queue; clients that keep to Retry-After",
			[]string{quarter, "--max-group=" + strconv.Itoa(b.cfg.connections/4)}, nil},
		{"commits", "a short queue and groups of 16 readings, so that the commits limit the server and not its CPU; clients as rude",
			[]string{quarter, "--max-group=16"}, []string{"--tries=1"}},
		{"defaults", "default flags: the queue has room for a request of each connection; clients as rude",
			nil, []string{"--tries=1"}},
	}
	if len(b.cfg.settings) == 0 {
		return all, nil
	}
	var chosen []scenario
	for _, name := range b.cfg.settings {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no setting %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// measure runs one round of a scenario: the closed loop, then the open loops, whose
// order turns from round to round.
func (b *bench) measure(ctx context.Context, s scenario, round int) (report.OverloadRound, error) {
	base, err := b.run(ctx, s, calibrate)
	if err != nil {
		return report.OverloadRound{}, err
	}
	r := report.OverloadRound{Base: base, Runs: make([]report.OverloadRun, len(b.cfg.multiples))}
	for i := range b.cfg.multiples {
		i = (i + round) % len(b.cfg.multiples)
		rate := strconv.FormatFloat(base.StoredPerSecond()*b.cfg.multiples[i], 'f', 0, 64)
		if r.Runs[i], err = b.run(ctx, s, rate); err != nil {
			return r, err
		}
	}
	return r, nil
}

// run loads a new server, in a closed loop or with so many requests a second.
func (b *bench) run(ctx context.Context, s scenario, rate string) (_ report.OverloadRun, err error) {
	dir := filepath.Join(b.work, "data")
	if err := os.RemoveAll(dir); err != nil {
		return report.OverloadRun{}, fmt.Errorf("empty directory: %w", err)
	}
	p, err := startServer(ctx, b.cfg.program, append([]string{"serve", "--addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--data=" + dir}, s.serve...))
	if err != nil {
		return report.OverloadRun{}, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	const name = "bench"
	args := []string{"sim", "run", "--target=http://" + p.public, "--users=" + strconv.Itoa(b.cfg.connections), "--threads=1",
		"--for=" + b.cfg.duration.String(), "--patience=" + patience.String(), "--run=" + name, "--json"}
	if rate != calibrate {
		args = append(append(args, "--rate="+rate), s.sim...)
	}
	// Unlike the load, a question does not know before when it would be answered
	// best: it comes every 50 ms.
	asked := ask(ctx, "http://"+p.public+"/readyz", true)
	read := ask(ctx, "http://"+p.public+"/v1/devices/sim-"+name+"-000000/readings?limit=100", false)
	before, err := p.usage()
	if err != nil {
		return report.OverloadRun{}, err
	}
	sim, err := load(ctx, b.cfg.program, args, b.cfg.duration+patience+runGrace)
	if err != nil {
		return report.OverloadRun{}, err
	}
	after, err := p.usage()
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
		ServerCPU:    after.cpu - before.cpu,
		LoaderCPU:    time.Duration(sim.CPUPerRequestUs * float64(sim.Tries) * float64(time.Microsecond)),
		PeakRSSBytes: after.peakRSSBytes,
		Health:       asked.stop(),
		Reads:        read.stop(),
	}
	fmt.Fprintf(b.out, "%-9s %11s/s: stored %8.0f/s of %8.0f tries/s, served within p99 %6.1f ms, server %5.1f µs CPU per stored reading, %d MiB\n",
		s.name, rate, r.StoredPerSecond(), r.TriesPerSecond(), r.P99.Seconds()*1e3, r.ServerCPUPerStored(), r.PeakRSSBytes>>20)
	return r, nil
}

// A simReport is what is needed of the report of pulsegate sim.
type simReport struct {
	Stored          uint64
	Tries           uint64
	ElapsedS        float64           `json:"elapsed_s"`
	Refused503      uint64            `json:"refused_503"`
	RetryAfter      map[string]uint64 `json:"retry_after_s"`
	Undocumented    uint64
	Faults          []string
	CPUPerRequestUs float64 `json:"cpu_per_request_us"`
	Served          struct {
		P50Us int64 `json:"p50_us"`
		P99Us int64 `json:"p99_us"`
	}
}

// load runs pulsegate sim to its end. That readings were given up when the time was
// over, and the exit code that comes of it, is no fault: there were too many.
func load(ctx context.Context, program string, args []string, timeout time.Duration) (*simReport, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	var r simReport
	if json.Unmarshal(text, &r) != nil {
		return nil, fmt.Errorf("pulsegate sim gave no report: %w", err)
	}
	if r.Undocumented > 0 || r.Stored == 0 {
		return nil, fmt.Errorf("of %d tries %d were stored, and %d answered with what the contract does not have: %q", r.Tries, r.Stored, r.Undocumented, r.Faults)
	}
	return &r, nil
}
