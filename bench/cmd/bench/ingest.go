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
	"path/filepath"
	"slices"
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
	partAlerts = "alerts" // only if it is named
)

// ingestCommand measures the cost of posting readings to servers: CPU time per request,
// requests per second and latency. Servers that store must have stored what they
// acknowledged. If PostgreSQL is installed, one peer inserts into a PostgreSQL that is
// started for it, with a temporary directory and no network.
type ingestCommand struct {
	loads
	Parts       []string `default:"single,bulk,idle,tls" enum:"single,bulk,idle,tls,alerts,before" help:"What to measure: single readings, batches, idle connections, single readings over TLS, the cost of alerts, an earlier pulsegate."`
	Before      string   `type:"existingdir" help:"Directory with an earlier pulsegate, for the part before."`
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
	if slices.Contains(c.Parts, partBefore) && c.Before == "" {
		return errors.New("--before must be set for the part before")
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
	secure *secure         // of runTLS; nil means no TLS

	handshakes *report.Table // of runTLS
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
	parts := map[string]func(context.Context) error{partSingle: b.runSingle, partBulk: b.runBulk, partIdle: b.runIdle, partTLS: b.runTLS, partAlerts: b.runAlerts, partBefore: b.runBefore}
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
	r.Goals = b.goals(map[int][]report.Bar{
		1000: {
			ownBar(1000, "CPU per request", "cpu", report.Floor, 1.6), ownBar(1000, "CPU per request", "cpu", "fasthttp", 1),
			atLeast(ownBar(1000, "requests/s", "rate", "before", 1.5)), atLeast(ownBar(1000, "requests/s", "rate", "ginpg", 7)),
			ownBar(1000, "p99", "p99", "fasthttp", 1.5),
		},
		64: {ownBar(64, "CPU per request", "cpu", report.Floor, 2.2)},
	})
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

// ownBar is a bar for a figure of Pulsegate, divided by that of base.
func ownBar(connections int, what, figure, base string, limit float64) report.Bar {
	return report.Bar{What: fmt.Sprintf("%d connections: %s / that of %s", connections, what, base), Row: report.Own, Figure: figure, Base: base, Limit: limit, Format: "%.2f"}
}

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
			runs, err := b.measureOne(ctx, &chosen[n], round)
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
func (b *ingestRun) measureOne(ctx context.Context, c *contestant, round int) (_ []report.Figures, err error) {
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
	loadOnce := func(connections int, d time.Duration) (_ load, cpu time.Duration, err error) {
		base = base.Add(baseStep)
		before, err := cpuTime(server.pids()...)
		if err != nil {
			return load{}, 0, err
		}
		atStart := make(chan error, 1)
		if b.secure != nil {
			b.wrk.lead = &lead{b.Lead, func() {
				var err error
				before, err = cpuTime(server.pids()...)
				atStart <- err
			}}
		}
		l, err := b.wrk.run(ctx, server.server.public, connections, d, base.UnixMilli())
		if err == nil && b.secure != nil {
			err = <-atStart
		}
		if err != nil {
			return load{}, 0, err
		}
		after, err := cpuTime(server.pids()...)
		answered += l.before + l.requests
		inFlight += uint64(connections) // wrk does not wait for the last answers
		return l, after - before, errors.Join(err, l.check())
	}
	if b.WarmUp > 0 {
		if _, _, err := loadOnce(b.Connections[0], b.WarmUp); err != nil {
			return nil, err
		}
	}
	var runs []report.Figures
	for _, n := range b.Connections {
		l, cpu, err := loadOnce(n, b.duration())
		if err != nil {
			return nil, fmt.Errorf("%d connections: %w", n, err)
		}
		runs = append(runs, latency(per(l.requests, l.duration, cpu, l.cpu), l.p50, l.p99))
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
