package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed readings.lua
var readingsScript []byte

const (
	limit     = 1.5              // of the cost of pulsegate sim divided by wrk's
	loadGrace = 30 * time.Second // for a generator to end after its duration
)

// A generator is one way to make load.
type generator struct {
	name  string
	limit float64 // of its cost divided by wrk's; 0: none
	run   func(ctx context.Context) (cost, error)
}

// newGenerators returns the generators, wrk first. Their files are in dir.
func newGenerators(cfg *config, wrk, target, dir string) ([]generator, error) {
	script := filepath.Join(dir, "readings.lua")
	if err := os.WriteFile(script, readingsScript, 0o600); err != nil {
		return nil, fmt.Errorf("write script: %w", err)
	}
	users := strconv.Itoa(cfg.connections)
	sim := []string{"sim", "--target", target, "--users", users, "--for", cfg.duration.String(), "--threads", "1", "--json"}
	timeout := cfg.duration + loadGrace
	generators := []generator{
		{"wrk with Lua", 0, func(ctx context.Context) (cost, error) {
			seconds := strconv.Itoa(int(cfg.duration.Seconds()))
			return measure(ctx, timeout, wrkRequests, wrk, "-t1", "-c"+users, "-d"+seconds+"s", "-s", script, target+"/v1/readings")
		}},
		{"`pulsegate sim`", limit, func(ctx context.Context) (cost, error) {
			return measure(ctx, timeout, simRequests, cfg.program, sim...)
		}},
	}
	if cfg.ledger {
		generators = append(generators, generator{"`pulsegate sim` with a ledger", 0, func(ctx context.Context) (cost, error) {
			path := filepath.Join(dir, "ledger")
			defer os.Remove(path) // a ledger must be a new file
			return measure(ctx, timeout, simRequests, cfg.program, append(slices.Clone(sim), "--ledger", path)...)
		}})
	}
	return generators, nil
}

// version returns the name and version of wrk.
func version(ctx context.Context, wrk string) string {
	// wrk has no way to ask for its version alone, and fails after this one.
	text, _ := exec.CommandContext(ctx, wrk, "-v").CombinedOutput()
	if fields := strings.Fields(string(text)); len(fields) > 1 && fields[0] == "wrk" {
		return "wrk " + fields[1]
	}
	return "wrk"
}

// A cost is what one run cost the load generator.
type cost struct {
	requests uint64
	cpu      time.Duration
	elapsed  time.Duration
}

func (c cost) perRequestUs() float64 {
	return float64(c.cpu.Nanoseconds()) / 1000 / float64(c.requests)
}

func (c cost) perSecond() float64 { return float64(c.requests) / c.elapsed.Seconds() }

// measure runs a load generator and returns its cost.
func measure(ctx context.Context, timeout time.Duration, count func(output []byte) (uint64, error), name string, args ...string) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	start := time.Now()
	output, err := cmd.Output()
	if err != nil {
		return cost{}, err
	}
	elapsed := time.Since(start)
	requests, err := count(output)
	if err != nil {
		return cost{}, err
	}
	if requests == 0 {
		return cost{}, errors.New("no request was answered")
	}
	state := cmd.ProcessState
	return cost{requests, state.UserTime() + state.SystemTime(), elapsed}, nil
}

var wrkLine = regexp.MustCompile(`(\d+) requests in `)

// wrkRequests returns the number of requests that wrk says were answered. An
// error of a connection or a refusal fails the run.
func wrkRequests(output []byte) (uint64, error) {
	text := string(output)
	m := wrkLine.FindStringSubmatch(text)
	if m == nil || strings.Contains(text, "Non-2xx") || strings.Contains(text, "Socket errors") {
		return 0, fmt.Errorf("the run was not clean:\n%s", text)
	}
	return strconv.ParseUint(m[1], 10, 64)
}

// simRequests returns the number of requests in the report of pulsegate sim. A
// reading that was not stored fails the run.
func simRequests(output []byte) (uint64, error) {
	var report struct{ Sent, Stored, Requests uint64 }
	if err := json.Unmarshal(output, &report); err != nil {
		return 0, fmt.Errorf("read the report: %w", err)
	}
	if report.Stored != report.Sent {
		return 0, fmt.Errorf("the run was not clean: %s", output)
	}
	return report.Requests, nil
}
