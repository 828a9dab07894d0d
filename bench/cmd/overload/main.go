// Command overload measures what Pulsegate does when it is asked for more than it
// can do.
//
//	go run ./cmd/overload -rounds 3 -seconds 10
//
// It finds the capacity of a server by a closed loop, and then loads it by open
// loops with one, two and five times as many requests a second, in a few settings.
// Every run has a server of its own, with an empty directory. While it is loaded, its
// readiness and its readings are asked for.
//
// The figures go to docs/benchmarks.md. Only processes that this program started are
// stopped. It runs on Linux only.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// A config is what the flags say.
type config struct {
	rounds      int
	duration    time.Duration // of one run
	connections int
	multiples   []float64 // of the capacity, to ask for
	settings    []string  // names; empty: all
	root        string    // of the repository
	dir         string    // for data; empty: the system's
	program     string    // pulsegate; empty: it is built
	page        string    // empty: none is written
}

// memoryLimit is the GOMEMLIMIT of the servers, in bytes.
const memoryLimit = 512 << 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*config, error) {
	var cfg config
	var seconds int
	var settings, multiples string
	flags := flag.NewFlagSet("overload", flag.ContinueOnError)
	flags.IntVar(&cfg.rounds, "rounds", 3, "rounds, in each of which every load is measured in every setting")
	flags.IntVar(&seconds, "seconds", 10, "duration of one run, in s")
	flags.IntVar(&cfg.connections, "connections", 1000, "connections")
	flags.StringVar(&multiples, "multiples", "1,2,5", "loads, in capacities of the server")
	flags.StringVar(&settings, "settings", "", "settings, such as rude,patient; empty: all")
	flags.StringVar(&cfg.root, "root", "..", "root of the repository")
	flags.StringVar(&cfg.dir, "dir", "", "directory for data, on the disk that is to be measured; empty: the system's for temporary files")
	flags.StringVar(&cfg.program, "pulsegate", "", "program to measure; empty: build it")
	flags.StringVar(&cfg.page, "page", "../docs/benchmarks.md", "page to write the figures to; empty: none")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(multiples, ",") {
		m, err := strconv.ParseFloat(text, 64)
		if err != nil || !(m > 0 && m <= 100) {
			return nil, fmt.Errorf("-multiples: %q is no number from 0 to 100", text)
		}
		cfg.multiples = append(cfg.multiples, m)
	}
	cfg.duration = time.Duration(seconds) * time.Second
	if cfg.rounds < 1 || seconds < 1 || cfg.connections < 4 {
		return nil, errors.New("-rounds and -seconds must be at least 1, -connections at least 4")
	}
	if settings != "" {
		cfg.settings = strings.Split(settings, ",")
	}
	return &cfg, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	setting := report.Here(fmt.Sprintf("make overload ROUNDS=%d SECONDS=%d", cfg.rounds, int(cfg.duration.Seconds())))
	work, err := os.MkdirTemp(cfg.dir, "overload-")
	if err != nil {
		return fmt.Errorf("make directory for data: %w", err)
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
	result := &report.Overload{
		Setting: setting, Rounds: cfg.rounds, Duration: cfg.duration, Connections: cfg.connections,
		Multiples: cfg.multiples, MemoryLimitBytes: memoryLimit,
	}
	b := &bench{cfg: cfg, work: work, out: out}
	scenarios, err := b.scenarios()
	if err != nil {
		return err
	}
	for _, s := range scenarios {
		result.Scenarios = append(result.Scenarios, report.Scenario{Name: s.name, What: s.what})
	}
	for round := range cfg.rounds {
		for i, s := range scenarios {
			runs, err := b.measure(ctx, s, round)
			if err != nil {
				return fmt.Errorf("measure %s: %w", s.name, err)
			}
			result.Scenarios[i].Rounds = append(result.Scenarios[i].Rounds, runs)
		}
	}
	if cfg.page == "" {
		_, err := io.WriteString(out, result.Markdown())
		return err
	}
	return report.UpdatePage(cfg.page, "overload", result.Markdown())
}
