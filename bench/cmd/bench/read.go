package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of the parts of a run, which all write one file.
const (
	partLatest = "latest"
	partLive   = "live"
)

// readCommand measures the cost of the latest values of a device in a store with many
// readings, and what streams of live readings cost those who send.
type readCommand struct {
	storing
	Parts       []string `default:"latest,live" enum:"latest,live" help:"What to measure: latest values of a device, streams of live readings."`
	Readings    int      `default:"25000000" help:"Readings in the store whose latest values are read."`
	Devices     int      `default:"20000" help:"Devices of these readings."`
	Connections int      `default:"64" help:"Connections that read latest values."`
	Subscribers int      `default:"1000" help:"Open streams of live readings."`
	Rate        int      `default:"5000" help:"Readings per second while streams are open, one of each device."`

	result *report.Report
}

func (c *readCommand) Validate() error {
	if c.Readings < batchReadings || c.Devices < 1 || c.Devices > 1_000_000 {
		return fmt.Errorf("--readings must be at least %d, --devices from 1 to 1000000", batchReadings)
	}
	if c.Connections < 1 || c.Subscribers < 1 || c.Rate < c.Subscribers || c.Rate > c.Subscribers*maxWatched {
		return fmt.Errorf("--connections and --subscribers must be at least 1, --rate from 1 to %d times as high as --subscribers", maxWatched)
	}
	return c.storing.Validate()
}

func (c *readCommand) Run(ctx context.Context, out io.Writer) error {
	return c.with(ctx, out, c.measure, report.Own, "peer")
}

func (c *readCommand) measure(ctx context.Context) error {
	c.result = c.report("bench-read", "CPU is user and system time of the server. Load generators and subscribers share the CPUs. Ratios are computed within a round. "+rounded,
		fmt.Sprintf("Rounds: %d of %v each", c.Rounds, c.duration()))
	if slices.Contains(c.Parts, partLatest) {
		if err := c.latest(ctx); err != nil {
			return fmt.Errorf("measure latest values: %w", err)
		}
	}
	if slices.Contains(c.Parts, partLive) {
		if err := c.live(ctx); err != nil {
			return fmt.Errorf("measure live readings: %w", err)
		}
	}
	return c.write("read", c.result)
}

//go:embed latest.lua
var latestScript string

// latest measures the latest values of a random device, beside a net/http server with a
// fixed answer.
func (c *readCommand) latest(ctx context.Context) error {
	wrk, err := findWrk(ctx, c.work, "local devices = "+strconv.Itoa(c.Devices)+"\n"+latestScript)
	if err != nil {
		return err
	}
	return c.keep(ctx, ownKeeper(c.Programs), func(k *keeper) (err error) {
		stored, err := c.store(ctx, k, flowOf(c.Readings, c.Devices, 2, senders, k.outlet), c.Readings)
		if err != nil {
			return err
		}
		fixed, err := c.startPeer(ctx, "nethttp")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, fixed.stop()) }()
		if err := checkLatest(ctx, k.process.public); err != nil {
			return err
		}
		t := &report.Table{
			Text: fmt.Sprintf("Latest values, `GET /v1/devices/{device}`: %s, one thread, %d connections; %s readings of %d devices are stored and have settled, and each request is for a random one of these devices.",
				wrk.version, c.Connections, report.Count(int(stored["readings"])), c.Devices),
			Head: "server", Columns: serverColumns("nethttp"),
		}
		load := func(s *latestServer, d time.Duration) (f report.Figures, err error) {
			var l load
			cpu, err := cpuDuring([]int{s.process.pid()}, func() (err error) {
				l, err = wrk.run(ctx, s.process.public, nil, c.Connections, d, 0, func() {})
				return errors.Join(err, l.check())
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			return latency(per(l.requests, l.duration, cpu, l.cpu), l.p50, l.p99), nil
		}
		servers := []latestServer{{report.Own, "latest values of a random device", k.process}, {"nethttp", "fixed answer", fixed}}
		for i := range servers {
			if c.WarmUp > 0 {
				if _, err := load(&servers[i], c.WarmUp); err != nil {
					return err
				}
			}
		}
		if err := compare(&c.common, t, servers, func(s *latestServer) (name, label string) { return s.name, "**" + s.name + "**: " + s.what },
			func(s *latestServer) (report.Figures, error) { return load(s, c.duration()) }); err != nil {
			return err
		}
		c.result.Tables = append(c.result.Tables, t)
		c.result.Goals = append(c.result.Goals, t.Goals(
			report.Bar{What: fmt.Sprintf("latest values of a device, %d connections: CPU per request, µs", c.Connections), Row: report.Own, Figure: "cpu", Limit: 35, Format: "%.1f"})...)
		return nil
	})
}

// A latestServer answers requests for the latest values of a device.
type latestServer struct {
	name, what string
	process    *process
}

// checkLatest checks the latest values of the first wearer.
func checkLatest(ctx context.Context, addr string) error {
	name := string(appendDevice(nil, 0))
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var answer struct {
		Device string
		Latest map[string]struct{ Value float64 }
	}
	text, err := exchange(ctx, http.MethodGet, "http://"+addr+"/v1/devices/"+name, nil, nil)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || answer.Device != name || answer.Latest["heart_rate_bpm"].Value == 0 || answer.Latest["spo2_pct"].Value == 0 {
		return fmt.Errorf("latest values %q: %w", text, err)
	}
	return nil
}

// live measures servers with and without subscribers in turn.
func (c *readCommand) live(ctx context.Context) error {
	if err := raiseFileLimit(2 * c.Subscribers); err != nil {
		return err
	}
	t := &report.Table{
		Text: fmt.Sprintf("Streams, `GET /v1/live`: %d readings per second are posted one by one (`pulsegate sim`, an open loop), one per second of each device. "+
			"Every device is watched by one of the subscribers, so that each reading is an event. Each row has a new server, and the order alternates. "+
			"A CPU profile tells what the dispatcher and the handlers of the streams have used; all else, garbage collection and scheduling included, counts as ingest.", c.Rate),
		Head: "subscribers",
		Columns: []report.Column{
			{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.1f"},
			{Title: "for streams, µs", Figure: "streams", Format: "%.1f"},
			{Title: "ingest, µs", Figure: "ingest", Format: "%.1f"},
			{Title: "events/s", Figure: "events", Format: "%.0f", Show: report.Median},
			{Title: "dropped", Figure: "dropped", Format: "%.0f", Show: report.Median},
		},
	}
	none, some := "0", strconv.Itoa(c.Subscribers)
	if err := compare(&c.common, t, []int{0, c.Subscribers}, named, func(subscribers *int) (report.Figures, error) {
		return c.ingestWith(ctx, *subscribers)
	}); err != nil {
		return err
	}
	c.result.Tables = append(c.result.Tables, t)
	c.result.Goals = append(c.result.Goals, t.Goals(
		report.Bar{What: fmt.Sprintf("%d subscribers, %d readings/s: ingest's CPU per reading / that without", c.Subscribers, c.Rate), Row: some, Figure: "ingest", Base: none, Limit: 1.25, Format: "%.2f"})...)
	return nil
}
