package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// simCommand compares the cost of a request for the load generators pulsegate sim and
// wrk, with a Lua script that builds unique readings of the same shape. sim.lua
// documents the differences.
//
// Both load the same server in turns, A B A B. The server answers every request with
// the same bytes and stores nothing. The figure is the user and system CPU time of the
// load generator's process per answered request.
type simCommand struct {
	loads
	Connections int `default:"1000" help:"Connections."`
}

func (c *simCommand) Validate() error {
	if c.Connections < 1 {
		return errors.New("--connections must be at least 1")
	}
	return c.loads.Validate()
}

func (c *simCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("bench-sim")
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	peer, err := findWrk(ctx, work, simScript)
	if err != nil {
		return err
	}
	target, stop, err := serveFixed()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	result := &report.LoadCost{Setting: setting, Peer: peer.version, Connections: c.Connections, Duration: c.duration(), Rounds: c.Rounds}
	generators := c.generators(peer, target, work)
	for _, g := range generators {
		result.Generators = append(result.Generators, report.Generator{Name: g.name, Limit: g.limit})
	}
	for round := range c.Rounds {
		for i, g := range generators {
			l, err := g.run(ctx)
			if err == nil {
				err = l.check()
			}
			if err != nil {
				return fmt.Errorf("measure %s: %w", g.name, err)
			}
			cost, perSecond := float64(l.cpu.Nanoseconds())/1e3/float64(l.requests), float64(l.requests)/l.duration.Seconds()
			r := &result.Generators[i]
			r.Costs, r.PerSecond = append(r.Costs, cost), append(r.PerSecond, perSecond)
			fmt.Fprintf(out, "round %d  %-30s %8.0f requests/s  %6.2f µs CPU per request\n", round+1, g.name, perSecond, cost)
		}
	}
	return c.write(out, "bench-sim", result.Markdown())
}

//go:embed sim.lua
var simScript string

// A generator is a load generator.
type generator struct {
	name  string
	limit float64 // limit for its cost divided by wrk's; 0: no limit
	run   func(ctx context.Context) (load, error)
}

// generators returns the generators, wrk first. dir is for their files.
func (c *simCommand) generators(peer *wrk, target, dir string) []generator {
	sim := func(ctx context.Context, flags ...string) (load, error) {
		r, err := simulate(ctx, c.own(), c.duration()+loadGrace, append(flags, "--target="+target,
			"--users="+strconv.Itoa(c.Connections), "--for="+c.duration().String(), "--threads=1")...)
		if err != nil {
			return load{}, err
		}
		return load{requests: r.Requests, failed: r.Sent - r.Stored, cpu: r.cpu, duration: time.Duration(r.ElapsedS * float64(time.Second))}, nil
	}
	return []generator{
		{"wrk with Lua", 0, func(ctx context.Context) (load, error) {
			return peer.run(ctx, strings.TrimPrefix(target, "http://"), c.Connections, c.duration(), 0)
		}},
		{"`pulsegate sim`", 1.5, func(ctx context.Context) (load, error) { return sim(ctx) }},
		{"`pulsegate sim` with a ledger", 0, func(ctx context.Context) (load, error) {
			path := filepath.Join(dir, "ledger")
			defer os.Remove(path) // CreateLedger requires a new file
			return sim(ctx, "--ledger="+path)
		}},
	}
}
