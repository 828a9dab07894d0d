package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
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

// measure runs all rounds, for a make target. It returns the results and the whole output of the
// benchmarks.
func (c *tests) measure(ctx context.Context, target string, programs []program) (results []report.Result,
	all []byte, err error) {
	c.setting.Command = fmt.Sprintf("make %s ROUNDS=%d BENCHTIME=%v", target, c.Rounds, c.Time)
	for round := range c.Rounds {
		text, err := runAll(ctx, programs, c)
		if err != nil {
			return nil, nil, err
		}
		these, err := report.ReadResults(bytes.NewReader(text), round)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(c.out, "round %d of %d: %d benchmarks\n", round+1, c.Rounds, len(these))
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

func (c *microCommand) Run(ctx context.Context, out io.Writer) error {
	return c.in(out, "", func() error {
		own, err := build(ctx, c.Root, c.Own, filepath.Join(c.work, "own"))
		if err != nil {
			return err
		}
		peers, err := build(ctx, filepath.Join(c.Root, "bench"), c.Peers, filepath.Join(c.work, "peers"))
		if err != nil {
			return err
		}
		results, all, err := c.measure(ctx, "bench", append(peers, own...))
		if err != nil {
			return err
		}
		micro := &report.Micro{Setting: c.setting, Rounds: c.Rounds, BenchTime: c.Time.String(), Results: results}
		for _, args := range [][]string{
			{"-filter", "/impl:/.+/ " + units, "-table", "pkg,.name", "-col", "/impl"},
			{"-filter", "-/impl:/.+/ " + units, "-table", "pkg"},
		} {
			text, err := benchstat(ctx, c.Root, all, args...)
			if err != nil {
				return err
			}
			micro.Compared += text
		}
		fmt.Fprintln(out, micro.Compared)
		return c.write("micro", micro.Report())
	})
}

// units keeps only two units: bytes correlate with allocations, and other units with times.
const units = ".unit:(sec/op OR allocs/op)"

// muxCommand compares package mux with other routers, all in one test program, so that
// disturbances of the machine affect all of them.
type muxCommand struct{ tests }

func (c *muxCommand) Run(ctx context.Context, out io.Writer) error {
	return c.in(out, "", func() error {
		programs, err := build(ctx, filepath.Join(c.Root, "bench"), "./routers", filepath.Join(c.work, "routers"))
		if err != nil {
			return err
		}
		results, _, err := c.measure(ctx, "bench-mux", programs)
		if err != nil {
			return err
		}
		mux := &report.Mux{Setting: c.setting, Rounds: c.Rounds, BenchTime: c.Time.String(), Results: results}
		return c.write("mux", mux.Report())
	})
}

// benchstat runs benchstat, in the version pinned in the module tools.
func benchstat(ctx context.Context, root string, results []byte, args ...string) (string, error) {
	modFile, err := filepath.Abs(filepath.Join(root, "tools", "go.mod"))
	if err != nil {
		return "", fmt.Errorf("find tools: %w", err)
	}
	args = slices.Concat([]string{"tool", "-modfile=" + modFile, "benchstat"}, args, []string{"/dev/stdin"})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdin = root, bytes.NewReader(results)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run benchstat: %w\n%s", err, stderr.String())
	}
	return string(text), nil
}
