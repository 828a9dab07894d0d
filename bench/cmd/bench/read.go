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

// Names of the parts of a run, which all write one block.
const (
	partLatest = "latest"
	partLive   = "live"
)

// readCommand measures the cost of the latest values of a device in a store with many
// readings, and what streams of live readings cost those who send.
type readCommand struct {
	loads
	Parts       []string      `default:"latest,live" enum:"latest,live" help:"What to measure: latest values of a device, streams of live readings."`
	Readings    int           `default:"25000000" help:"Readings in the store whose latest values are read."`
	Devices     int           `default:"20000" help:"Devices of these readings."`
	Connections int           `default:"64" help:"Connections that read latest values."`
	Subscribers int           `default:"1000" help:"Open streams of live readings."`
	Rate        int           `default:"5000" help:"Readings per second while streams are open, one of each device."`
	Settled     time.Duration `default:"8s" help:"How long a server must be idle until it counts as settled."`
}

func (c *readCommand) Validate() error {
	if c.Readings < batchReadings || c.Devices < 1 || c.Devices > 1_000_000 || c.Settled <= 0 {
		return fmt.Errorf("--readings must be at least %d, --devices from 1 to 1000000, --settled positive", batchReadings)
	}
	if c.Connections < 1 || c.Subscribers < 1 || c.Rate < c.Subscribers || c.Rate > c.Subscribers*maxWatched {
		return fmt.Errorf("--connections and --subscribers must be at least 1, --rate from 1 to %d times as high as --subscribers", maxWatched)
	}
	return c.loads.Validate()
}

// A readRun is one run of the command.
type readRun struct {
	*readCommand
	work   string
	out    io.Writer
	report report.Report
}

func (c *readCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("bench-read")
	work, remove, err := c.prepare(ctx, report.Own, "peer")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &readRun{c, work, out, report.Report{
		Setting: setting,
		Notes:   []string{fmt.Sprintf("Rounds: %d of %v each", c.Rounds, c.duration()), "Data: on " + fileSystem(work)},
		Text:    "CPU is user and system time of the server. Load generators and subscribers share the CPUs. Ratios are computed within a round. " + rounded,
	}}
	if slices.Contains(c.Parts, partLatest) {
		if err := b.latest(ctx); err != nil {
			return fmt.Errorf("measure latest values: %w", err)
		}
	}
	if slices.Contains(c.Parts, partLive) {
		if err := b.live(ctx); err != nil {
			return fmt.Errorf("measure live readings: %w", err)
		}
	}
	return b.write(out, "bench-read", b.report.Markdown())
}

//go:embed latest.lua
var latestScript string

// latest measures the latest values of a random device, beside a net/http server with a
// fixed answer.
func (b *readRun) latest(ctx context.Context) (err error) {
	script := "local devices = " + strconv.Itoa(b.Devices) + "\n" + latestScript
	peer, err := findWrk(ctx, b.work, script)
	if err != nil {
		return err
	}
	store := &storeRun{storeCommand: &storeCommand{loads: b.loads, Settled: b.Settled}, work: b.work, out: b.out}
	return store.inDir(func(dir string) (err error) {
		k, err := store.startKeeper(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.stop()) }()
		stored, err := store.measure(ctx, k, flowOf(b.Readings, b.Devices, 2, senders, k.open), b.Readings)
		if err != nil {
			return err
		}
		fixed, err := b.startPeer(ctx, "nethttp")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, fixed.stop()) }()
		if err := checkLatest(ctx, k.process.public); err != nil {
			return err
		}
		t := &report.Table{
			Text: fmt.Sprintf("Latest values, `GET /v1/devices/{device}`: %s, one thread, %d connections; %s readings of %d devices are stored and have settled, and each request is for a random one of these devices.",
				peer.version, b.Connections, report.Count(int(stored["readings"])), b.Devices),
			Head: "server", Columns: serverColumns("nethttp"),
		}
		servers := []struct {
			name, what string
			process    *process
		}{{report.Own, "latest values of a random device", k.process}, {"nethttp", "fixed answer", fixed}}
		for round := -1; round < b.Rounds; round++ {
			d := b.duration()
			if round < 0 {
				d = b.WarmUp
			}
			if d == 0 {
				continue
			}
			for i := range servers {
				s := servers[(i+round+1)%len(servers)]
				f, err := b.getAll(ctx, peer, s.process, d)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				if round >= 0 {
					t.Add(b.out, round, s.name, "**"+s.name+"**: "+s.what, f)
				}
			}
		}
		b.report.Tables = append(b.report.Tables, t)
		b.report.Goals = append(b.report.Goals, t.Goals(
			report.Bar{What: fmt.Sprintf("latest values of a device, %d connections: CPU per request, µs", b.Connections), Row: report.Own, Figure: "cpu", Limit: 35, Format: "%.1f"})...)
		return nil
	})
}

// getAll loads a server with requests for latest values.
func (b *readRun) getAll(ctx context.Context, peer *wrk, p *process, d time.Duration) (report.Figures, error) {
	var l load
	cpu, err := cpuDuring([]int{p.pid()}, func() (err error) {
		l, err = peer.run(ctx, p.public, b.Connections, d, 0)
		return errors.Join(err, l.check())
	})
	if err != nil {
		return nil, err
	}
	return latency(per(l.requests, l.duration, cpu, l.cpu), l.p50, l.p99), nil
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
	if err != nil || answer.Device != name || answer.Latest[jsonNames[heartRate]].Value == 0 || answer.Latest[jsonNames[oxygen]].Value == 0 {
		return fmt.Errorf("latest values %q: %w", text, err)
	}
	return nil
}

// live measures servers with and without subscribers in turn.
func (b *readRun) live(ctx context.Context) error {
	if err := raiseFileLimit(2 * b.Subscribers); err != nil {
		return err
	}
	t := &report.Table{
		Text: fmt.Sprintf("Streams, `GET /v1/live`: %d readings per second are posted one by one (`pulsegate sim`, an open loop), one per second of each device. "+
			"Every device is watched by one of the subscribers, so that each reading is an event. Each row has a new server, and the order alternates. "+
			"A CPU profile tells what the dispatcher and the handlers of the streams have used; all else, garbage collection and scheduling included, counts as ingest.", b.Rate),
		Head: "subscribers",
		Columns: []report.Column{
			{Title: "CPU per reading, µs", Figure: "cpu", Format: "%.1f"},
			{Title: "for streams, µs", Figure: "streams", Format: "%.1f"},
			{Title: "ingest, µs", Figure: "ingest", Format: "%.1f"},
			{Title: "events/s", Figure: "events", Format: "%.0f", Show: report.Median},
			{Title: "dropped", Figure: "dropped", Format: "%.0f", Show: report.Median},
		},
	}
	none, some := "0", strconv.Itoa(b.Subscribers)
	for round := range b.Rounds {
		for i := range 2 {
			subscribers := b.Subscribers * ((i + round) % 2)
			f, err := b.ingestWith(ctx, subscribers)
			if err != nil {
				return fmt.Errorf("%d subscribers: %w", subscribers, err)
			}
			t.Add(b.out, round, strconv.Itoa(subscribers), "", f)
		}
	}
	b.report.Tables = append(b.report.Tables, t)
	b.report.Goals = append(b.report.Goals, t.Goals(
		report.Bar{What: fmt.Sprintf("%d subscribers, %d readings/s: ingest's CPU per reading / that without", b.Subscribers, b.Rate), Row: some, Figure: "ingest", Base: none, Limit: 1.25, Format: "%.2f"})...)
	return nil
}
