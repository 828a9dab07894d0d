package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

	chosen []scenario
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
	if c.chosen, err = choose(c.scenarios(), func(s scenario) string { return s.name }, c.Settings); err != nil {
		return fmt.Errorf("--settings: %w", err)
	}
	return c.with(ctx, out, c.measure, report.Own)
}

func (c *overloadCommand) measure(ctx context.Context) error {
	r := c.report("overload",
		"Figures are medians over the rounds, with their range in brackets; maxima are of all rounds. "+
			"Stored / best is computed within a round; best is the largest goodput of the same generator with that setting. "+
			"Latency is that of accepted tries, from the time of sending. CPU is that of the process, in cores; the server's "+
			"CPU per stored reading includes the cost of its refusals.",
		fmt.Sprintf("Load: `pulsegate sim`, one thread, %d connections, single readings, each different, on the same CPUs",
			c.Connections),
		fmt.Sprintf(
			"Rounds: %d. In each, every row has a new server with an empty directory and GOMEMLIMIT=%dMiB. A closed loop of "+
				"%v determines the capacity; open loops of %v request multiples of it",
			c.Rounds, memoryLimit>>20, c.duration(), c.duration()),
		"During each run, `/readyz` is requested on new connections and readings are requested on one connection, "+
			"every 50 ms")
	for _, s := range c.chosen {
		t := &report.Table{Text: fmt.Sprintf("**%s**: %s.", s.name, s.what), Head: "asked for", Columns: overloadColumns}
		r.Tables = append(r.Tables, t)
		for round := range c.Rounds {
			if err := c.round(ctx, s, round, t); err != nil {
				return fmt.Errorf("measure %s: %w", s.name, err)
			}
		}
	}
	last := multiple(c.Multiples[len(c.Multiples)-1])
	for i, s := range c.chosen {
		r.Goals = append(r.Goals, r.Tables[i].Goals(
			report.Bar{What: s.name + ": stored at " + last + " / best", Row: last, Figure: "best", AtLeast: true, Limit: 0.8,
				Format: "%.2f"},
			report.Bar{What: s.name + ": unanswered requests", Row: last, Figure: "failed", Format: "%.0f"},
			report.Bar{What: s.name + ": peak RSS, MiB", Row: last, Figure: "peak", Limit: memoryLimit >> 20, Format: "%.0f"},
			report.Bar{What: s.name + ": share of the most frequent Retry-After", Row: last, Figure: "retry", Limit: 0.3,
				Format: "%.2f"},
		)...)
	}
	return c.write("overload", r)
}

// multiple is the name of the row of an open loop.
func multiple(m float64) string { return fmt.Sprintf("%gx", m) }

var overloadColumns = []report.Column{
	{Title: "tries/s", Figure: "tries", Format: "%.0f"},
	{Title: "refused", Figure: "refused", Format: "%.0f %%"},
	{Title: "stored/s", Figure: "rate", Format: "%.0f"},
	{Title: "stored / best", Figure: "best", Format: "%.2f"},
	{Title: "p50, ms", Figure: "p50", Format: "%.1f"},
	{Title: "p99, ms", Figure: "p99", Format: "%.1f"},
	{Title: "server, cores", Figure: "cores", Format: "%.2f"},
	{Title: "server, µs per stored", Figure: "cpu", Format: "%.1f"},
	{Title: "loader, cores", Figure: "loader cores", Format: "%.2f"},
	{Title: "peak RSS, MiB", Figure: "peak", Format: "%.0f", Show: report.Max},
	{Title: "readyz: failed", Figure: "readyz failed", Format: "%.0f", Show: report.Max},
	{Title: "slowest, ms", Figure: "readyz slowest", Format: "%.0f", Show: report.Max},
	{Title: "reads: failed", Figure: "reads failed", Format: "%.0f", Show: report.Max},
	{Title: "slowest, ms", Figure: "reads slowest", Format: "%.0f", Show: report.Max},
}

// A scenario is a server configuration with the clients that overload it.
type scenario struct {
	name, what string
	serve, sim []string // flags
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
			[]string{quarter}, []string{"--tries=1"}},
		{"patient", "a short queue; clients that respect Retry-After",
			[]string{quarter}, nil},
		{"defaults", "default flags: the queue has room for one request per connection; clients as rude",
			nil, []string{"--tries=1"}},
	}
}

// round runs one round of a scenario: the closed loop, then the open loops, whose
// order rotates in each round.
func (c *overloadCommand) round(ctx context.Context, s scenario, round int, t *report.Table) error {
	base, err := c.run(ctx, s, calibrate)
	if err != nil {
		return err
	}
	best, runs := base["rate"], make([]report.Figures, len(c.Multiples))
	for i := range c.Multiples {
		i = (i + round) % len(c.Multiples)
		if runs[i], err = c.run(ctx, s, strconv.FormatFloat(base["rate"]*c.Multiples[i], 'f', 0, 64)); err != nil {
			return err
		}
		best = max(best, runs[i]["rate"])
	}
	base["best"] = base["rate"] / best
	t.Add(c.out, round, calibrate, "", base)
	for i, f := range runs {
		f["best"] = f["rate"] / best
		t.Add(c.out, round, multiple(c.Multiples[i]), "", f)
	}
	return nil
}

// run loads a fresh server, in a closed loop or at a rate in requests per second.
func (c *overloadCommand) run(ctx context.Context, s scenario, rate string) (_ report.Figures, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := c.start(ctx,
		&contestant{name: s.name, flags: s.serve, env: []string{"GOMEMLIMIT=" + strconv.Itoa(memoryLimit)}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	p := server.nodes[0]
	const name = "bench"
	args := []string{"--target=http://" + p.public, "--users=" + strconv.Itoa(c.Connections), "--threads=1",
		"--for=" + c.duration().String(), "--patience=" + patience.String(), "--run=" + name}
	if rate != calibrate {
		args = append(append(args, "--rate="+rate), s.sim...)
	}
	// Other clients are not synchronized with the load: they send a request every 50
	// ms.
	asked := poll(ctx, "http://"+p.public+"/readyz", true)
	read := poll(ctx, "http://"+p.public+"/v1/devices/sim-"+name+"-000000/readings?limit=100", false)
	var sim *simReport
	cpu, err := cpuDuring([]int{p.pid()}, func() (err error) {
		sim, err = simulate(ctx, c.own(), c.duration()+patience+loadGrace, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	now, err := memory(p.pid())
	if err != nil {
		return nil, err
	}
	took := time.Duration(sim.ElapsedS * float64(time.Second))
	f := latency(per(sim.Stored, took, cpu, 0), time.Duration(sim.Served.P50Us)*time.Microsecond,
		time.Duration(sim.Served.P99Us)*time.Microsecond)
	f["tries"], f["refused"] = float64(sim.Tries)/sim.ElapsedS, 100*float64(sim.Refused503)/float64(sim.Tries)
	f["cores"], f["loader cores"], f["peak"] = cpu.Seconds()/sim.ElapsedS, sim.cpu.Seconds()/sim.ElapsedS,
		report.MiB(now.VmHWM)
	if sim.Refused503 > 0 {
		f["retry"] = share(sim.RetryAfter)
	}
	for name, a := range map[string]answers{"readyz": asked(), "reads": read()} {
		if a.asked > 0 {
			f[name+" failed"], f[name+" slowest"] = float64(a.failed), report.Millis(slices.Max(a.took))
			f["failed"] += float64(a.failed)
		}
	}
	return f, nil
}

// share returns the share of the most frequent value.
func share(counts map[string]uint64) float64 {
	var all, most uint64
	for _, n := range counts {
		all += n
		most = max(most, n)
	}
	return float64(most) / float64(all)
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
		return nil, fmt.Errorf("of %d tries %d were stored, and %d got undocumented answers: %q", r.Tries, r.Stored,
			r.Undocumented, r.Faults)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return &r, nil
}
