// Command ingestbench measures what servers pay to take readings.
//
//	go run ./cmd/ingestbench -rounds 5 -seconds 10
//
// A run has three parts, each with a block of docs/benchmarks.md:
//
//   - single: every server in turn takes one reading per request. CPU time per
//     request comes first, then requests per second and latency. The load comes
//     from wrk, which make setup installs.
//   - bulk: Pulsegate takes batches, in every form. The load comes from this
//     program.
//   - idle: what connections on which nothing happens cost in memory.
//
// It builds Pulsegate and the peers. Every server is started anew for every
// measurement, on a free loopback port, must give the right answer, is warmed up,
// loaded and stopped. Servers that store start with an empty directory, and must
// have stored what they answered. If PostgreSQL is installed, it runs one of its
// own, with a temporary directory and no network.
//
// Only processes that this program started are stopped, by their numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A config is what the flags say.
type config struct {
	rounds      int
	duration    time.Duration // of one measurement
	warmUp      time.Duration
	connections []int
	servers     []string // empty: all
	forms       []string // of batches; empty: all
	idle        int      // connections that stay open
	parts       []string // of partNames
	root        string   // of the repository
	dir         string   // for data; empty: the system's
	programs    string   // directory of built programs; empty: they are built
	page        string   // empty: none is written
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ingestbench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*config, error) {
	var cfg config
	var seconds, warmUp float64
	var connections, servers, parts, batches string
	flags := flag.NewFlagSet("ingestbench", flag.ContinueOnError)
	flags.IntVar(&cfg.rounds, "rounds", 5, "rounds, in each of which every server is measured")
	flags.Float64Var(&seconds, "seconds", 10, "duration of one measurement, in s; whole seconds")
	flags.Float64Var(&warmUp, "warm-up", 1, "load before the measurements of a server, in s; whole seconds")
	flags.StringVar(&connections, "connections", "64,1000", "numbers of connections")
	flags.StringVar(&servers, "servers", "", "servers to measure, such as floor,pulsegate; empty: all that can be started")
	flags.StringVar(&parts, "parts", strings.Join(partNames(), ","), "what to measure: single readings, batches, idle connections")
	flags.StringVar(&batches, "forms", "", "forms of batches to measure, such as array,ndjson+gzip; empty: all")
	flags.IntVar(&cfg.idle, "idle", 10_000, "idle connections to weigh")
	flags.StringVar(&cfg.root, "root", "..", "root of the repository")
	flags.StringVar(&cfg.dir, "dir", "", "directory for data, on the disk that is to be measured; empty: the system's for temporary files")
	flags.StringVar(&cfg.programs, "programs", "", "directory with the programs peer and pulsegate, to measure these; empty: build them")
	flags.StringVar(&cfg.page, "page", "../docs/benchmarks.md", "page to write the figures to; empty: none")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	cfg.duration, cfg.warmUp = wholeSeconds(seconds), wholeSeconds(warmUp)
	for text := range strings.SplitSeq(connections, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-connections: %q is no number of connections", text)
		}
		cfg.connections = append(cfg.connections, n)
	}
	if servers != "" {
		cfg.servers = strings.Split(servers, ",")
	}
	if batches != "" {
		cfg.forms = strings.Split(batches, ",")
	}
	cfg.parts = strings.Split(parts, ",")
	for _, part := range cfg.parts {
		if !slices.Contains(partNames(), part) {
			return nil, fmt.Errorf("-parts: there is no part %q", part)
		}
	}
	if cfg.rounds < 1 || cfg.duration <= 0 || cfg.warmUp <= 0 || cfg.idle < 1 {
		return nil, errors.New("-rounds, -seconds, -warm-up and -idle must be at least 1")
	}
	return &cfg, nil
}

// Names of the parts of a run. Each has a block of the page.
const (
	partSingle = "single"
	partBulk   = "bulk"
	partIdle   = "idle"
)

func partNames() []string { return []string{partSingle, partBulk, partIdle} }

// wholeSeconds returns the duration that wrk, which takes no fractions, can run.
func wholeSeconds(s float64) time.Duration { return time.Duration(s) * time.Second }

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	if cfg.root, err = filepath.Abs(cfg.root); err != nil {
		return fmt.Errorf("find repository: %w", err)
	}
	work, err := os.MkdirTemp(cfg.dir, "ingestbench-")
	if err != nil {
		return fmt.Errorf("make directory for data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	contestants, left, err := choose(cfg)
	if err != nil {
		return err
	}
	if cfg.programs == "" {
		cfg.programs = work
		if err := build(ctx, cfg.root, work, contestants); err != nil {
			return err
		}
	}
	b := &bench{cfg: cfg, work: work, out: out, contestants: contestants, left: left}
	for _, part := range cfg.parts {
		if err := b.run(ctx, part); err != nil {
			return err
		}
	}
	return nil
}
