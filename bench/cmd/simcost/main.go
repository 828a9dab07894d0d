// Command simcost compares what a request costs the load generator: pulsegate
// sim against wrk with a Lua script that builds unique readings of the same
// shape. readings.lua says what is alike and what is not.
//
//	go run ./cmd/simcost -rounds 5 -seconds 5
//
// All load the same server, which answers every request with the same bytes and
// stores nothing, in turns, A B A B. The figure is the CPU time of the load
// generator's process, user and system, per request that was answered. The
// figures go to docs/benchmarks.md.
//
// It builds pulsegate, and needs wrk, which make setup installs. It runs on Unix
// systems only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// A config is what the flags say.
type config struct {
	rounds      int
	duration    time.Duration // of one measurement, in whole seconds
	connections int
	ledger      bool
	root        string // of the repository
	program     string // pulsegate; empty: it is built
	page        string // empty: none is written
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simcost:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*config, error) {
	var cfg config
	var seconds int
	flags := flag.NewFlagSet("simcost", flag.ContinueOnError)
	flags.IntVar(&cfg.rounds, "rounds", 5, "rounds, in each of which every generator runs once")
	flags.IntVar(&seconds, "seconds", 5, "duration of one run, in s")
	flags.IntVar(&cfg.connections, "connections", 1000, "connections")
	flags.BoolVar(&cfg.ledger, "ledger", true, "measure pulsegate sim with a ledger, too")
	flags.StringVar(&cfg.root, "root", "..", "root of the repository")
	flags.StringVar(&cfg.program, "pulsegate", "", "program to measure; empty: build it")
	flags.StringVar(&cfg.page, "page", "../docs/benchmarks.md", "page to write the figures to; empty: none")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	cfg.duration = time.Duration(seconds) * time.Second
	if cfg.rounds < 1 || seconds < 1 || cfg.connections < 1 {
		return nil, errors.New("-rounds, -seconds and -connections must be at least 1")
	}
	return &cfg, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	setting := report.Here(fmt.Sprintf("make bench-sim ROUNDS=%d SECONDS=%d", cfg.rounds, int(cfg.duration.Seconds())))
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		return fmt.Errorf("find peer: %w; `make setup` installs wrk (https://github.com/wg/wrk)", err)
	}
	work, err := os.MkdirTemp("", "simcost-")
	if err != nil {
		return fmt.Errorf("make directory for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if cfg.program == "" {
		cfg.program = filepath.Join(work, "pulsegate")
		build := exec.CommandContext(ctx, "go", "build", "-o", cfg.program, "./cmd/pulsegate")
		build.Dir = cfg.root
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build pulsegate: %w\n%s", err, text)
		}
	}
	s, err := serve()
	if err != nil {
		return err
	}
	defer s.stop()
	generators, err := newGenerators(cfg, wrk, s.target, work)
	if err != nil {
		return err
	}
	result := &report.LoadCost{
		Setting:     setting,
		Peer:        version(ctx, wrk),
		Connections: cfg.connections,
		Duration:    cfg.duration,
		Rounds:      cfg.rounds,
	}
	for _, g := range generators {
		result.Generators = append(result.Generators, report.Generator{Name: g.name, Limit: g.limit})
	}
	for round := range cfg.rounds {
		for i, g := range generators {
			c, err := g.run(ctx)
			if err != nil {
				return fmt.Errorf("measure %s: %w", g.name, err)
			}
			r := &result.Generators[i]
			r.Costs = append(r.Costs, c.perRequestUs())
			r.PerSecond = append(r.PerSecond, c.perSecond())
			fmt.Fprintf(out, "round %d  %-30s %8.0f requests/s  %6.2f µs CPU per request\n", round+1, g.name, c.perSecond(), c.perRequestUs())
		}
	}
	if cfg.page == "" {
		return nil
	}
	return report.UpdatePage(cfg.page, "bench-sim", result.Markdown())
}
