package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
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
	result *report.Read
}

func (c *readCommand) Run(ctx context.Context, out io.Writer) (err error) {
	setting := c.setting("bench-read")
	work, remove, err := c.prepare(ctx, report.Own, "peer")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &readRun{c, work, out, &report.Read{
		Setting: setting, Rounds: c.Rounds, Duration: c.duration(), FileSystem: fileSystem(work),
		Devices: c.Devices, Connections: c.Connections, Subscribers: c.Subscribers, Rate: c.Rate,
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
	return b.write(out, "bench-read", b.result.Markdown())
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
	b.result.Loader = peer.version
	store := &storeRun{&storeCommand{loads: b.loads, Settled: b.Settled}, b.work, b.out, new(report.Store)}
	return store.inDir(func(dir string) (err error) {
		k, err := store.startKeeper(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.stop()) }()
		stored, err := store.measure(ctx, k, flowOf(b.Readings, b.Devices, 2, senders, k.open), b.Readings, 0)
		if err != nil {
			return err
		}
		b.result.Readings = stored.Readings
		fmt.Fprintf(b.out, "stored %d readings in %v\n", stored.Readings, stored.Duration.Round(time.Second))
		fixed, err := b.startPeer(ctx, "nethttp")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, fixed.stop()) }()
		if err := checkLatest(ctx, k.process.public); err != nil {
			return err
		}
		servers := []*process{k.process, fixed}
		b.result.Latest = []report.Server{
			{Name: report.Own, What: "latest values of a random device"},
			{Name: "nethttp", What: "fixed answer"},
		}
		for round := -1; round < b.Rounds; round++ {
			d := b.duration()
			if round < 0 {
				d = b.WarmUp
			}
			if d == 0 {
				continue
			}
			for i := range servers {
				i = (i + round + 1) % len(servers)
				run, err := b.getAll(ctx, peer, servers[i], d)
				if err != nil {
					return fmt.Errorf("%s: %w", b.result.Latest[i].Name, err)
				}
				if run.Round = round; round >= 0 {
					fmt.Fprintf(b.out, "round %d  %-10s %8.2f µs CPU per request  %8.0f requests/s\n", round+1, b.result.Latest[i].Name, run.CPUPerRequest(), run.PerSecond())
					b.result.Latest[i].Runs = append(b.result.Latest[i].Runs, run)
				}
			}
		}
		return nil
	})
}

// getAll loads a server with requests for latest values.
func (b *readRun) getAll(ctx context.Context, peer *wrk, p *process, d time.Duration) (report.Run, error) {
	before, err := cpuTime(p.pid())
	if err != nil {
		return report.Run{}, err
	}
	l, err := peer.run(ctx, p.public, b.Connections, d, 0)
	if err != nil {
		return report.Run{}, err
	}
	after, err := cpuTime(p.pid())
	return report.Run{Connections: b.Connections, Requests: l.requests, Duration: l.duration, CPU: after - before, LoaderCPU: l.cpu, P50: l.p50, P99: l.p99},
		errors.Join(err, l.check())
}

// checkLatest checks the latest values of the first wearer.
func checkLatest(ctx context.Context, addr string) error {
	name := string(appendDevice(nil, 0))
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/devices/"+name, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Device string
		Latest map[string]struct{ Value float64 }
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || answer.Device != name || answer.Latest[jsonNames[heartRate]].Value == 0 || answer.Latest[jsonNames[oxygen]].Value == 0 {
		return fmt.Errorf("status %d, body %q: %v", resp.StatusCode, text, err)
	}
	return nil
}

// live measures servers with and without subscribers in turn, and what a commit costs
// that nobody listens to.
func (b *readRun) live(ctx context.Context) error {
	if err := raiseFileLimit(2 * b.Subscribers); err != nil {
		return err
	}
	programs, err := build(ctx, b.Root, "./internal/api/live", filepath.Join(b.work, "live"))
	if err != nil {
		return err
	}
	for round := range b.Rounds {
		runs := [2]report.LiveRun{}
		for i := range runs {
			i = (i + round) % 2
			subscribers := 0
			if i == 1 {
				subscribers = b.Subscribers
			}
			if runs[i], err = b.ingestWith(ctx, subscribers); err != nil {
				return fmt.Errorf("%d subscribers: %w", subscribers, err)
			}
			fmt.Fprintf(b.out, "round %d  %5d subscribers  %7.2f µs CPU per reading, of which %7.2f µs for streams; %d events, %d dropped\n",
				round+1, subscribers, runs[i].Total(), runs[i].Streams(), runs[i].Events, runs[i].Dropped)
		}
		b.result.Without, b.result.With = append(b.result.Without, runs[0]), append(b.result.With, runs[1])
		text, err := runAll(ctx, programs, &tests{Match: "^BenchmarkPublish$", Time: time.Second})
		if err != nil {
			return err
		}
		results, err := report.ReadResults(bytes.NewReader(text), round)
		if err != nil {
			return err
		}
		if len(results) != 1 {
			return errors.New("there is no benchmark of a commit without subscribers")
		}
		b.result.Publish = append(b.result.Publish, results[0])
	}
	return nil
}
