package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of the parts of a run. Each has a block on the page.
const (
	partSingle = "single"
	partBulk   = "bulk"
	partIdle   = "idle"
	partTLS    = "tls"
)

// ingestCommand measures the cost of posting readings to servers: CPU time per request,
// requests per second and latency. Servers that store must have stored what they
// acknowledged. If PostgreSQL is installed, one peer inserts into a PostgreSQL that is
// started for it, with a temporary directory and no network.
type ingestCommand struct {
	loads
	Parts       []string `default:"single,bulk,idle,tls" enum:"single,bulk,idle,tls" help:"What to measure: single readings, batches, idle connections, single readings over TLS."`
	Connections []int    `default:"64,1000" help:"Numbers of connections with single readings."`
	Servers     []string `help:"Servers to measure, such as floor,pulsegate. Default: all that can be started."`
	Forms       []string `help:"Forms of batches to measure, such as array,ndjson+gzip. Default: all."`
	Idle        int      `default:"10000" help:"Idle connections to measure."`

	IdleWait time.Duration `default:"1m" help:"Time after which idle connections over TLS are measured again."`

	Lead time.Duration `default:"5s" help:"Time at the start of a load over TLS that does not count, because of the handshakes in it."`
}

func (c *ingestCommand) Validate() error {
	if c.Idle < 1 || len(c.Connections) == 0 || slices.Min(c.Connections) < 1 {
		return errors.New("--idle and --connections must be at least 1")
	}
	return c.loads.Validate()
}

// An ingestRun is one run of the command.
type ingestRun struct {
	*ingestCommand
	work        string
	out         io.Writer
	contestants []contestant
	left        []string // why other servers are omitted

	wrk    *wrk            // of runSingle and runTLS
	result []*report.Table // of runSingle and runTLS, by number of connections
	secure *secure         // of runTLS; nil: no TLS
	ratios *report.Table   // of runTLS
	apart  bool            // servers get one processor, and clients another one
}

func (c *ingestCommand) Run(ctx context.Context, out io.Writer) (err error) {
	b := &ingestRun{ingestCommand: c, out: out}
	if b.contestants, b.left, err = chooseServers(c.Servers); err != nil {
		return err
	}
	work, remove, err := c.prepare(ctx, "peer", report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b.work = work
	parts := map[string]func(context.Context) error{partSingle: b.runSingle, partBulk: b.runBulk, partIdle: b.runIdle, partTLS: b.runTLS}
	for _, part := range c.Parts {
		if err := parts[part](ctx); err != nil {
			return err
		}
	}
	return nil
}

// perStart is the maximum time per start of a server, in addition to its loads.
const perStart = 2 * time.Minute

// baseAge is how long ago the readings start. baseStep exceeds the time range of one
// load, so that no two loads of one start share a reading.
const (
	baseAge  = time.Hour
	baseStep = time.Minute
)

//go:embed ingest.lua
var ingestScript string

// runSingle measures all contestants with one reading per request.
func (b *ingestRun) runSingle(ctx context.Context) (err error) {
	if b.wrk, err = findWrk(ctx, b.work, ingestScript); err != nil {
		return err
	}
	if err := raiseFileLimit(slices.Max(b.Connections)); err != nil {
		return err
	}
	r := b.newReport("CPU is user and system time of the server's processes, divided by the requests that they answered. " +
		"Ratios are computed within a round. " + rounded + " " + closedLoop + "\n\n![CPU time per request of each server](" + plotName + ")")
	omitted, err := b.measure(ctx, b.contestants)
	if err != nil {
		return err
	}
	r.Left = append(b.left, omitted...)
	most := func(connections int, what, figure, base string, limit float64) report.Bar {
		return report.Bar{What: fmt.Sprintf("%d connections: %s / that of %s", connections, what, base), Row: report.Own, Figure: figure, Base: base, Limit: limit, Format: "%.2f"}
	}
	r.Goals = b.goals(map[int][]report.Bar{
		1000: {
			most(1000, "CPU per request", "cpu", report.Floor, 1.6), most(1000, "CPU per request", "cpu", "fasthttp", 1),
			atLeast(most(1000, "requests/s", "rate", "before", 1.5)), atLeast(most(1000, "requests/s", "rate", "ginpg", 7)),
			most(1000, "p99", "p99", "fasthttp", 1.5),
		},
		64: {most(64, "CPU per request", "cpu", report.Floor, 2.2)},
	})
	b.allocations(r, "A request in the fast lane allocates none, which TestLaneAllocations asserts.")
	profile, err := b.profileOwn(ctx)
	if err != nil {
		return err
	}
	if profile != "" {
		r.After = append(r.After, fmt.Sprintf("Where the CPU time of %s goes with %d connections, as reported by `pulsegate profile` for a load after the rounds. "+
			"[ADR 13](adr/0013-cheaper-fast-lane.md) describes attempts to reduce it.\n\n```\n%s\n```", report.Own, slices.Max(b.Connections), profile))
	}
	if b.Page != "" {
		plot := report.Plot{Tables: b.result, Connections: b.Connections, Stores: map[string]string{}}
		for _, c := range b.contestants {
			plot.Stores[c.name] = c.stores
		}
		if err := report.WriteFile(filepath.Join(filepath.Dir(b.Page), plotName), plot.SVG()); err != nil {
			return err
		}
	}
	return b.write(b.out, "bench-ingest", r.Markdown())
}

const (
	plotName   = "benchmarks-ingest.svg"
	closedLoop = "The load is a closed loop: latency is measured from the actual, not from an intended, time of sending."
)

// atLeast makes the limit of a bar a lower one.
func atLeast(b report.Bar) report.Bar {
	b.AtLeast = true
	return b
}

// goals returns the goals of the tables by number of connections.
func (b *ingestRun) goals(bars map[int][]report.Bar) (goals []report.Goal) {
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(bars))) {
		t := new(report.Table) // if that number was not measured
		if i := slices.Index(b.Connections, n); i >= 0 {
			t = b.result[i]
		}
		goals = append(goals, t.Goals(bars[n]...)...)
	}
	return goals
}

// serverColumns are the columns of a table of servers, with ratios to base.
func serverColumns(base string) []report.Column {
	return append([]report.Column{
		{Title: "CPU per request, µs", Figure: "cpu", Format: "%.1f"},
		{Title: "x " + base, Figure: "cpu", Format: "%.2f", Base: base},
		{Title: "requests/s", Figure: "rate", Format: "%.0f"},
	}, latencyColumns("%.2f")...)
}

// newReport returns a report with a table for each number of connections.
func (b *ingestRun) newReport(text string) *report.Report {
	b.result = nil
	for _, n := range b.Connections {
		b.result = append(b.result, &report.Table{Text: fmt.Sprintf("%d connections:", n), Head: "server | stored when answered", Columns: serverColumns(report.Floor)})
	}
	return &report.Report{
		Setting: b.setting("bench-ingest"),
		Notes: []string{
			fmt.Sprintf("Loader: %s, one thread, on the same CPUs; a reading of %d bytes per request, each different", b.wrk.version, len(firstReading())),
			fmt.Sprintf("Rounds: %d, in each of which every server is restarted, warmed up for %v and loaded for %v per number of connections; the order rotates by one server in each round", b.Rounds, b.WarmUp, b.duration()),
			"Data: on " + fileSystem(b.work),
		},
		Text:   text,
		Tables: slices.Clone(b.result),
	}
}

// allocations adds what Pulsegate's process allocates to a report.
func (b *ingestRun) allocations(r *report.Report, what string) {
	t := &report.Table{Text: "The whole process of " + report.Own + " allocates for each request, compactions and measuring included. " + what, Head: "connections",
		Columns: []report.Column{{Title: "objects", Figure: "objects", Format: "%.2f"}, {Title: "bytes", Figure: "bytes", Format: "%.0f"}}}
	for i, n := range b.Connections {
		t.Take(strconv.Itoa(n), b.result[i], report.Own, "objects")
	}
	r.Tables = append(r.Tables, t)
}

// measure runs the rounds. A server that fails in a round is omitted from that round,
// with the reason in the report. If ctx is done, the run fails.
func (b *ingestRun) measure(ctx context.Context, chosen []contestant) (omitted []string, err error) {
	perServer := perStart + b.WarmUp + b.duration()*time.Duration(len(b.Connections))
	ctx, cancel := context.WithTimeout(ctx, perServer*time.Duration(len(chosen)*b.Rounds))
	defer cancel()
	for round := range b.Rounds {
		for i := range chosen {
			// The order rotates, so that no server always runs after the same one.
			n := (i + round) % len(chosen)
			runs, err := b.measureOne(ctx, &chosen[n], round, b.Connections)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("measure %s: %w", chosen[n].name, ctx.Err())
			}
			if err != nil {
				fmt.Fprintf(b.out, "round %d  %-10s %v\n", round+1, chosen[n].name, err)
				reason, _, _ := strings.Cut(err.Error(), "\n")
				omitted = append(omitted, fmt.Sprintf("%s in round %d, because of: %s", chosen[n].name, round+1, reason))
				continue
			}
			for j, f := range runs {
				b.result[j].Add(b.out, round, chosen[n].name, fmt.Sprintf("**%s**: %s | %s", chosen[n].name, chosen[n].what, chosen[n].stores), f)
			}
		}
	}
	return omitted, nil
}

// measureOne measures a fresh server with each of the numbers of connections.
func (b *ingestRun) measureOne(ctx context.Context, c *contestant, round int, connections []int) (_ []report.Figures, err error) {
	server, remove, err := b.startFresh(ctx, c, fmt.Sprint(round))
	if err != nil {
		return nil, err
	}
	defer func() {
		if server != nil {
			server.stop() // after an error, which is the one to report
		}
		err = errors.Join(err, remove())
	}()
	answered, inFlight := uint64(1), uint64(0)
	base := time.Now().Add(-baseAge)
	admin := server.server.admin
	if server.upstream != nil {
		admin = server.upstream.admin
	}
	loadOnce := func(connections int, d time.Duration) (_ load, cpu time.Duration, made allocation, err error) {
		base = base.Add(baseStep)
		madeBefore, err := allocated(ctx, admin)
		if err != nil {
			return load{}, 0, made, err
		}
		before, err := cpuTime(server.pids()...)
		if err != nil {
			return load{}, 0, made, err
		}
		atStart := make(chan error, 1)
		if b.secure != nil {
			b.wrk.lead = &lead{b.Lead, func() {
				var err error
				if before, err = cpuTime(server.pids()...); err == nil {
					madeBefore, err = allocated(ctx, admin)
				}
				atStart <- err
			}}
		}
		l, err := b.wrk.run(ctx, server.server.public, connections, d, base.UnixMilli())
		if err == nil && b.secure != nil {
			err = <-atStart
		}
		if err != nil {
			return load{}, 0, made, err
		}
		after, err := cpuTime(server.pids()...)
		if err != nil {
			return load{}, 0, made, err
		}
		if made, err = allocated(ctx, admin); err != nil {
			return load{}, 0, made, err
		}
		answered += l.before + l.requests
		inFlight += uint64(connections) // wrk does not wait for the last answers
		return l, after - before, allocation{made.objects - madeBefore.objects, made.bytes - madeBefore.bytes}, l.check()
	}
	if b.WarmUp > 0 {
		if _, _, _, err := loadOnce(connections[0], b.WarmUp); err != nil {
			return nil, err
		}
	}
	var runs []report.Figures
	for _, n := range connections {
		l, cpu, made, err := loadOnce(n, b.duration())
		if err != nil {
			return nil, fmt.Errorf("%d connections: %w", n, err)
		}
		f := latency(per(l.requests, l.duration, cpu, l.cpu), l.p50, l.p99)
		f["busy"], f["loader busy"] = 100*cpu.Seconds()/l.duration.Seconds(), 100*l.cpu.Seconds()/l.duration.Seconds()
		if made != (allocation{}) {
			f["objects"], f["bytes"] = made.objects/float64(l.requests), made.bytes/float64(l.requests)
		}
		runs = append(runs, f)
	}
	ended := server
	server = nil
	return runs, checkStored(ctx, c, ended, answered, inFlight)
}

// startFresh starts a server with an empty directory and checks one answer. Call remove
// to remove the directory after the server has stopped.
func (b *ingestRun) startFresh(ctx context.Context, c *contestant, label string) (_ *running, remove func() error, err error) {
	dir := filepath.Join(b.work, c.name+"-"+label)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("create data directory: %w", err)
	}
	remove = func() error { return os.RemoveAll(dir) }
	server, err := b.start(ctx, c, dir)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	if err := verify(ctx, server.server.public, b.secure); err != nil {
		server.stop() // after an error, which is the one to report
		return nil, nil, errors.Join(err, remove())
	}
	return server, remove, nil
}

// checkStored stops a server. If the server stores readings, it checks that the server
// has stored all acknowledged readings, and no more than were sent.
func checkStored(ctx context.Context, c *contestant, r *running, answered, inFlight uint64) error {
	var stored uint64
	var err error
	known := false
	if c.postgres {
		if stored, err = r.database.stored(ctx); err != nil {
			r.stop()
			return err
		}
		known = true
	}
	if err := r.stop(); err != nil {
		return err
	}
	if c.own {
		own := cmp.Or(r.upstream, r.server)
		if stored, known = own.stored(); !known {
			return fmt.Errorf("%s did not log how many readings it has stored: %s", c.name, own.text())
		}
	}
	if known && (stored < answered || stored > answered+inFlight) {
		return fmt.Errorf("%s answered %d readings as stored and has %d, with at most %d unanswered", c.name, answered, stored, inFlight)
	}
	return nil
}

// fileSystem returns the type of dir's file system, because syncs are free on one in
// memory.
func fileSystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "an unknown file system"
	}
	// The numbers are from statfs(2).
	switch uint32(s.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs, **in memory: syncs cost nothing, and stores are not comparable**"
	case 0x794c7630:
		return "overlayfs"
	}
	return fmt.Sprintf("a file system of type %#x", uint32(s.Type))
}

// profileLead is how long before a profile the load starts, and how long after it the
// load ends.
const profileLead = time.Second

// profileOwn returns the report of pulsegate profile for the load with the most
// connections: the cost by part and by system call. It uses a separate load, because
// profiling has a cost.
func (b *ingestRun) profileOwn(ctx context.Context) (_ string, err error) {
	i := slices.IndexFunc(b.contestants, func(c contestant) bool { return c.own })
	if i < 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, perStart+b.duration())
	defer cancel()
	server, remove, err := b.startFresh(ctx, &b.contestants[i], "profile")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, server.stop(), remove()) }()
	loaded := make(chan error, 1)
	go func() {
		l, err := b.wrk.run(ctx, server.server.public, slices.Max(b.Connections), b.duration()+2*profileLead, time.Now().Add(-baseAge).UnixMilli())
		if err == nil {
			err = l.check()
		}
		loaded <- err
	}()
	time.Sleep(profileLead)
	cmd := exec.CommandContext(ctx, b.own(), "profile", "http://"+server.server.admin, "--for", b.duration().String())
	text, profileErr := cmd.CombinedOutput()
	if err := <-loaded; err != nil {
		return "", fmt.Errorf("load for a profile: %w", err)
	}
	if profileErr != nil {
		return "", fmt.Errorf("profile: %w\n%s", profileErr, text)
	}
	return cutProfile(string(text)), nil
}

// cutProfile returns the cost by part and by system call of a report, without the
// address and time in its first line and without the rest.
func cutProfile(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "\nFunctions by their own cost")
	return strings.TrimRight(text, "\n")
}

// An allocation is what a process has allocated.
type allocation struct{ objects, bytes float64 }

// allocated returns what a process has allocated since its start according to its
// metrics, or zero for a server without metrics.
func allocated(ctx context.Context, admin string) (allocation, error) {
	if admin == "" {
		return allocation{}, nil
	}
	metrics, err := scrape(ctx, admin)
	a := allocation{metrics["go_memstats_mallocs_total"], metrics["go_memstats_alloc_bytes_total"]}
	if err == nil && (a.objects == 0 || a.bytes == 0) {
		err = errors.New("read allocations: the metrics are missing")
	}
	return a, err
}
