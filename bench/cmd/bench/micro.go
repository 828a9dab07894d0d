package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// tests has the flags of the commands that run Go benchmarks.
//
// Every package's test program is built once. A round runs each of them once before the
// next round starts, so that a temporary slowdown of the machine affects all sides of a
// comparison.
type tests struct {
	common
	Time  time.Duration `default:"200ms" help:"Duration of one benchmark in one round."`
	Match string        `default:"." help:"Regular expression of the benchmarks to run."`
}

func (c *tests) Validate() error {
	if c.Rounds < 1 || c.Time <= 0 {
		return errors.New("--rounds and --time must be positive")
	}
	return nil
}

// setting returns the setting of a run that starts now.
func (c *tests) setting(target string) report.Setting {
	return report.Here(fmt.Sprintf("make %s ROUNDS=%d BENCHTIME=%v", target, c.Rounds, c.Time))
}

// measure runs all rounds. It returns the results and the whole output of the
// benchmarks.
func (c *tests) measure(ctx context.Context, out io.Writer, programs []program) (results []report.Result, all []byte, err error) {
	for round := range c.Rounds {
		text, err := runAll(ctx, programs, c)
		if err != nil {
			return nil, nil, err
		}
		these, err := report.ReadResults(bytes.NewReader(text), round)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(out, "round %d of %d: %d benchmarks\n", round+1, c.Rounds, len(these))
		results, all = append(results, these...), append(all, text...)
	}
	if len(results) == 0 {
		return nil, nil, errors.New("no benchmark matches")
	}
	return results, all, nil
}

// microCommand runs the microbenchmarks of the repository. benchstat compares the
// implementations of a benchmark (/impl=). The rounds are also compared with each other
// to show the noise.
type microCommand struct {
	tests
	Own   string `default:"./..." help:"Packages of the main module, separated by spaces. Empty: none."`
	Peers string `default:"./answers" help:"Packages of the module bench, separated by spaces. Empty: none."`
}

func (c *microCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("bench")
	work, remove, err := temporary("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	own, err := build(ctx, c.Root, c.Own, filepath.Join(work, "own"))
	if err != nil {
		return err
	}
	peers, err := build(ctx, filepath.Join(c.Root, "bench"), c.Peers, filepath.Join(work, "peers"))
	if err != nil {
		return err
	}
	results, all, err := c.measure(ctx, out, append(peers, own...))
	if err != nil {
		return err
	}
	micro := &report.Micro{Setting: setting, Rounds: c.Rounds, BenchTime: c.Time.String(), Results: results}
	for _, comparison := range micro.Comparisons() {
		text, err := benchstat(ctx, c.Root, all, &comparison)
		if err != nil {
			return err
		}
		micro.Compared = append(micro.Compared, text)
		fmt.Fprintln(out, text)
	}
	return c.write(out, "bench-micro", micro.Markdown())
}

// muxCommand compares package mux with other routers, all in one test program, so that
// disturbances of the machine affect all of them.
type muxCommand struct{ tests }

func (c *muxCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("bench-mux")
	work, remove, err := temporary("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	programs, err := build(ctx, filepath.Join(c.Root, "bench"), "./routers", filepath.Join(work, "routers"))
	if err != nil {
		return err
	}
	results, _, err := c.measure(ctx, out, programs)
	if err != nil {
		return err
	}
	mux := &report.Mux{Setting: setting, Rounds: c.Rounds, BenchTime: c.Time.String(), Results: results}
	return c.write(out, "bench-mux", mux.Markdown())
}

// benchstat runs benchstat, in the version pinned in the module tools.
func benchstat(ctx context.Context, root string, results []byte, c *report.Comparison) (string, error) {
	modFile, err := filepath.Abs(filepath.Join(root, "tools", "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find tools: %w", err)
	}
	args := []string{"tool", "-modfile=" + modFile, "benchstat", "-filter", c.Filter(), "-table", "pkg"}
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
