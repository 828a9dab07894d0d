// Command microbench runs the microbenchmarks of the repository and writes
// docs/benchmarks.md.
//
//	go run ./cmd/microbench -rounds 10 -time 200ms
//
// Every package's test program is built once. A round runs each of them once,
// and the next round begins when all have run: what slows the machine down for
// a while hits all of a comparison's sides. benchstat compares the
// implementations of a benchmark (/impl=), and the rounds are compared with
// themselves to show the noise.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// A config is what the flags say.
type config struct {
	rounds    int
	benchTime time.Duration
	match     string // regexp of benchmarks
	root      string // of the repository
	own       string // packages of the main module
	peers     string // packages of the module bench
	page      string // empty: none is written
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "microbench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*config, error) {
	var cfg config
	flags := flag.NewFlagSet("microbench", flag.ContinueOnError)
	flags.IntVar(&cfg.rounds, "rounds", 10, "rounds; benchstat wants 10 or more")
	flags.DurationVar(&cfg.benchTime, "time", 200*time.Millisecond, "duration of one benchmark in one round")
	flags.StringVar(&cfg.match, "match", ".", "regular expression of the benchmarks to run")
	flags.StringVar(&cfg.root, "root", "..", "root of the repository")
	flags.StringVar(&cfg.own, "own", "./...", "packages of the main module, separated by spaces; empty: none")
	flags.StringVar(&cfg.peers, "peers", "./answers", "packages of the module bench, separated by spaces; empty: none")
	flags.StringVar(&cfg.page, "page", "../docs/benchmarks.md", "page to write the figures to; empty: none")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if cfg.rounds < 1 || cfg.benchTime <= 0 {
		return nil, errors.New("-rounds and -time must be positive")
	}
	return &cfg, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	setting := report.Here(fmt.Sprintf("make bench ROUNDS=%d BENCHTIME=%v", cfg.rounds, cfg.benchTime))
	if cfg.root, err = filepath.Abs(cfg.root); err != nil {
		return fmt.Errorf("find repository: %w", err)
	}
	work, err := os.MkdirTemp("", "microbench-")
	if err != nil {
		return fmt.Errorf("make directory for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	own, err := build(ctx, cfg.root, cfg.own, filepath.Join(work, "own"))
	if err != nil {
		return err
	}
	peers, err := build(ctx, filepath.Join(cfg.root, "bench"), cfg.peers, filepath.Join(work, "peers"))
	if err != nil {
		return err
	}
	micro := &report.Micro{Setting: setting, Rounds: cfg.rounds, BenchTime: cfg.benchTime.String()}
	var all bytes.Buffer
	for round := range cfg.rounds {
		text, err := runAll(ctx, append(peers, own...), cfg)
		if err != nil {
			return err
		}
		results, err := report.ReadResults(bytes.NewReader(text), round)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "round %d of %d: %d benchmarks\n", round+1, cfg.rounds, len(results))
		micro.Results = append(micro.Results, results...)
		all.Write(text)
	}
	if len(micro.Results) == 0 {
		return errors.New("no benchmark matches")
	}
	for _, c := range micro.Comparisons() {
		text, err := benchstat(ctx, cfg.root, all.Bytes(), &c)
		if err != nil {
			return err
		}
		micro.Compared = append(micro.Compared, text)
		fmt.Fprintln(out, text)
	}
	if cfg.page == "" {
		return nil
	}
	return report.UpdatePage(cfg.page, "bench-micro", micro.Markdown())
}

// benchstat compares results. It is the one that the module tools pins.
func benchstat(ctx context.Context, root string, results []byte, c *report.Comparison) (string, error) {
	args := []string{"tool", "-modfile=" + filepath.Join(root, "tools", "go.mod"), "benchstat", "-filter", c.Filter(), "-table", "pkg"}
	if c.ByImpl {
		args = append(args, "-col", "/impl")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "/dev/stdin")...)
	cmd.Dir, cmd.Stdin = root, bytes.NewReader(results)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run benchstat: %w\n%s", err, stderr.String())
	}
	return string(text), nil
}
