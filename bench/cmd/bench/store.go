package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of the parts of a run, which all write one file.
const (
	partLoad  = "load"
	partYear  = "year"
	partPeers = "peers"
)

// storeCommand measures the cost of many readings: Pulsegate with two signs, with a tenth
// of the readings, with five signs, with ten; its start after it was killed; reads of a device with
// a year of readings; and other stores with the same readings.
type storeCommand struct {
	storing
	Readings        int      `default:"30000000" help:"Readings of one load."`
	Devices         int      `default:"20000" help:"Devices."`
	Parts           []string `default:"load,year,peers" enum:"load,year,peers" help:"What to measure: Pulsegate's loads, a device-year through the API, other stores."`
	Peers           []string `help:"Other stores, such as victoria-metrics. Default: all that are installed."`
	TableReadings   int      `default:"3000000" help:"Readings of one load of PostgreSQL, at most. More take hours."`
	VictoriaMetrics string   `default:"victoria-metrics" help:"Program of a single node of VictoriaMetrics."`
	Year            int      `default:"525600" help:"Readings of the device whose readings are read."`

	chosen                []peer
	servers, starts, year *report.Table
	result                *report.Report
}

func (c *storeCommand) Validate() error {
	if c.Readings < 10*batchReadings || min(c.Year, c.TableReadings) < batchReadings {
		return fmt.Errorf("--readings must be at least %d, --year and --table-readings %d", 10*batchReadings, batchReadings)
	}
	if c.Devices < 1 || c.Devices > 1_000_000 {
		return errors.New("--devices must be from 1 to 1000000")
	}
	return c.storing.Validate()
}

// Names of rows beside report.Own.
const (
	ownTenth        = report.Own + ", a tenth of the readings"
	ownAllSigns     = report.Own + ", five signs"
	ownTenSigns     = report.Own + ", ten signs"
	victoriaMetrics = "victoria-metrics"
)

// largeStore is the number of readings from which the goals of a large store count.
const largeStore = 100_000_000

func (c *storeCommand) Run(ctx context.Context, out io.Writer) error {
	var err error
	if c.chosen, err = choose(c.peers(), func(p peer) string { return p.name }, c.Peers); err != nil {
		return fmt.Errorf("--peers: %w", err)
	}
	return c.with(ctx, out, c.measure, report.Own)
}

func (c *storeCommand) measure(ctx context.Context) error {
	c.servers = &report.Table{Head: "server", Columns: append(append([]report.Column{
		{Title: "readings, M", Figure: "millions", Format: "%.4g", Show: report.Median},
		{Title: "CPU, µs a reading", Figure: "cpu", Format: "%.2f"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
		{Title: "slowest", Figure: "slowest", Format: "%.0f", Show: report.Median},
		{Title: "on disk, bytes a reading", Figure: "disk", Format: "%.2f"},
		{Title: "written / received", Figure: "written", Format: "%.2f"},
	}, latencyColumns("%.1f")...),
		report.Column{Title: "p99.9, ms", Figure: "p99.9", Format: "%.1f", Show: report.Median},
		report.Column{Title: "503", Figure: "refused", Format: "%.0f", Show: report.Median},
		report.Column{Title: "generator, µs", Figure: "loader", Format: "%.2f", Show: report.Median})}
	c.starts = &report.Table{
		Text: fmt.Sprintf("Starts after kill -9 in the midst of a load of %v; the system's cache is warm:", c.duration()),
		Head: "server",
		Columns: []report.Column{
			{Title: "readings stored, M", Figure: "millions", Format: "%.4g", Show: report.Median},
			{Title: "ms until ready", Figure: "ready", Format: "%.0f"},
			{Title: "ms of CPU", Figure: "cpu", Format: "%.0f"},
		},
	}
	c.year = &report.Table{
		Text: "All readings of a device with one a minute for a year, as answers to requests, of which ten, one after " +
			"another, are measured together.",
		Head: "read as", Columns: []report.Column{{Title: "ms", Figure: "ms", Format: "%.1f"},
			{Title: "M readings per second of CPU", Figure: "rate", Format: "%.2f"}},
	}
	c.result = c.reportOf(fmt.Sprintf("make bench-store READINGS=%d DEVICES=%d", c.Readings, c.Devices),
		fmt.Sprintf(
			"CPU is user and system time of the server from the start of the load until it has settled: until its CPU was "+
				"idle, and the size of its data unchanged, for %v. "+
				"On disk is the space of the data directory then; with Pulsegate after another start, so that its log is empty. "+
				"Written is what the kernel attributes to the server's processes, divided by the bytes of the bodies. "+
				"Latency is that of a whole batch, from the actual time of sending. Slowest is the rate in the slowest 10 s of "+
				"the load. The load generator shares the CPUs. "+rounded, c.Settled),
		fmt.Sprintf(
			"Load: %s readings of %d wearers, each with a time of its own to the millisecond, and with a gateway; batches of "+
				"%d readings over %d connections, each of which sends the next batch after the answer; every reading is new",
			report.Count(c.Readings), c.Devices, batchReadings, senders),
		fmt.Sprintf("Rounds: %d, with a new server for every row", c.Rounds))
	for _, part := range c.Parts {
		var err error
		switch part {
		case partLoad:
			err = c.loadOwn(ctx, ownLoad{ownTenth, c.Readings / 10, 2, false}, ownLoad{report.Own, c.Readings, 2, true},
				ownLoad{ownAllSigns, c.Readings, 5, false}, ownLoad{ownTenSigns, c.Readings, 10, false})
		case partYear:
			for round := 0; round < c.Rounds && err == nil; round++ {
				err = c.readYear(ctx, round)
			}
		case partPeers:
			err = c.loadPeers(ctx)
		}
		if err != nil {
			return err
		}
	}
	file := "store"
	if c.Readings >= largeStore {
		file += "-large"
	}
	c.result.Tables = []*report.Table{c.servers, c.starts, c.year}
	c.setGoals()
	return c.write(file, c.result)
}

// setGoals sets the goals of the report.
func (c *storeCommand) setGoals() {
	own := func(name, what, figure string, limit float64, format string) report.Bar {
		return report.Bar{What: name + ": " + what, Row: name, Figure: figure, Limit: limit, Format: format}
	}
	c.result.Goals = c.servers.Goals(
		own(report.Own, "bytes a reading on disk", "disk", 6, "%.2f"),
		own(ownAllSigns, "bytes a reading on disk", "disk", 11, "%.2f"),
		report.Bar{What: ownTenSigns + ": bytes a reading on disk / with two signs", Row: ownTenSigns, Figure: "disk",
			Base: report.Own, Limit: 2.2, Format: "%.2f"},
		own(report.Own, "CPU per reading, µs", "cpu", 3, "%.2f"),
		report.Bar{What: report.Own + ": CPU per reading / that of " + victoriaMetrics, Row: report.Own, Figure: "cpu",
			Base: victoriaMetrics, Limit: 0.7, Format: "%.2f"},
		own(report.Own, "bytes written / received", "written", 0.6, "%.2f"),
		own(report.Own, "p99.9 / p50", "tail", 10, "%.1f"),
		own(report.Own, "batches rejected with 503", "refused", 0, "%.0f"),
	)
	if c.Readings >= largeStore {
		c.result.Goals = append(c.result.Goals,
			c.servers.Goals(report.Bar{What: "CPU per reading of 100 M / that of 10 M", Row: report.Own, Figure: "cpu",
				Base: ownTenth, Limit: 1.15, Format: "%.2f"})...)
		c.result.Goals = append(c.result.Goals,
			c.starts.Goals(report.Bar{What: "start after kill -9 with 100 M readings, ms", Row: report.Own, Figure: "ready",
				Limit: 2000, Format: "%.0f"})...)
	}
	for _, format := range []string{"NDJSON", "CSV"} {
		c.result.Goals = append(c.result.Goals,
			c.year.Goals(report.Bar{What: format + ": M readings per second of CPU", Row: format, Figure: "rate", AtLeast: true,
				Limit: 5, Format: "%.3g"})...)
	}
}

// spareMinutes are the minutes before now that a load leaves for the load that is
// interrupted by kill -9.
const spareMinutes = 50_000

// flowOf returns a flow of readings of devices, whose times end before now.
func flowOf(readings, devices, signs, conns int, to outlet) *flow {
	return newFlow(devices, signs, conns, time.Now().Add(-time.Minute*time.Duration(readings/devices+spareMinutes)), to)
}

// An ownLoad is a load of Pulsegate.
type ownLoad struct {
	name            string
	readings, signs int
	kill            bool // the server, in the midst of another load
}

// loadOwn measures loads of Pulsegate.
func (c *storeCommand) loadOwn(ctx context.Context, all ...ownLoad) error {
	return rotate(c.Rounds, all, func(round int, load *ownLoad) error {
		if err := c.loadOne(ctx, round, load); err != nil {
			return fmt.Errorf("measure %s: %w", load.name, err)
		}
		return nil
	})
}

func (c *storeCommand) loadOne(ctx context.Context, round int, load *ownLoad) error {
	return c.keep(ctx, ownKeeper(c.Programs), func(k *keeper) error {
		f := flowOf(load.readings, c.Devices, load.signs, senders, k.outlet)
		run, err := c.store(ctx, k, f, load.readings)
		if err != nil {
			return err
		}
		// A new start leaves nothing in the log that is not elsewhere.
		if err := errors.Join(k.stop(), k.restart(ctx)); err != nil {
			return err
		}
		disk, err := c.settle(ctx, k)
		if err != nil {
			return err
		}
		run["disk"] = float64(disk) / run["readings"]
		c.servers.Add(c.out, round, load.name, "", run)
		if load.kill {
			return c.kill(ctx, k, f, round, uint64(run["readings"]))
		}
		return nil
	})
}

// kill loads a server for c.duration, kills it, and measures how long a start takes.
func (c *storeCommand) kill(ctx context.Context, k *keeper, f *flow, round int, stored uint64) error {
	loading, cancel := context.WithTimeout(ctx, c.duration())
	defer cancel()
	f.outlet = k.outlet
	load := make(chan flowed, 1)
	go func() {
		// It ends with an error: that of loading or of the killed server.
		p, _ := f.run(context.WithoutCancel(ctx), -1)
		load <- p
	}()
	<-loading.Done()
	err := k.process.cmd.Process.Kill()
	<-k.process.ended
	more := <-load
	if err = errors.Join(err, ctx.Err()); err != nil {
		return fmt.Errorf("kill server: %w", err)
	}
	if more.batches == 0 {
		return errors.New("no batch was stored before the server was killed")
	}
	began := time.Now()
	if err := k.restart(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	cpu, err := cpuTime(k.process.pid())
	if err != nil {
		return err
	}
	c.starts.Add(c.out, round, report.Own, "", report.Figures{
		"millions": float64(stored+more.batches*batchReadings) / 1e6, "ready": report.Millis(took), "cpu": report.Millis(cpu),
	})
	return verify(ctx, k.process.public, nil)
}

// loadPeers measures other stores. One that fails is left out of the round.
func (c *storeCommand) loadPeers(ctx context.Context) error {
	return rotate(c.Rounds, c.chosen, func(round int, p *peer) error {
		err := c.keep(ctx, p.start, func(k *keeper) error {
			if _, err := c.settle(ctx, k); err != nil { // what creates the database
				return err
			}
			readings := c.Readings
			if p.table {
				readings = min(readings, c.TableReadings)
			}
			run, err := c.store(ctx, k, flowOf(readings, c.Devices, 2, senders, k.outlet), readings)
			if err == nil {
				c.servers.Add(c.out, round, p.name, "", run)
			}
			return err
		})
		if err != nil {
			return c.leave(ctx, c.result, p.name, round, err)
		}
		if note := p.name + ": " + p.what; !slices.Contains(c.result.Notes, note) {
			c.result.Notes = append(c.result.Notes, note)
		}
		return nil
	})
}

const (
	yearTimes = 5 // how often each format is measured

	// yearRequests is the number of requests whose CPU time is read together, because an
	// answer takes about ten of the kernel's ticks.
	yearRequests = 10
)

// readYear measures requests for all readings of a device.
func (c *storeCommand) readYear(ctx context.Context, round int) error {
	return c.keep(ctx, ownKeeper(c.Programs), func(k *keeper) error {
		load, err := flowOf(c.Year, 1, 2, 1, k.outlet).run(ctx, (c.Year+batchReadings-1)/batchReadings)
		if err != nil {
			return err
		}
		if _, err := c.settle(ctx, k); err != nil {
			return err
		}
		for range yearTimes {
			for _, format := range []string{"NDJSON", "CSV"} {
				f, err := timeRead(ctx, k, format, int(load.batches*batchReadings))
				if err != nil {
					return fmt.Errorf("read a device-year: %w", err)
				}
				c.year.Add(c.out, round, format, "", f)
			}
		}
		return nil
	})
}

// timeRead requests all readings of the first wearer, yearRequests times.
func timeRead(ctx context.Context, k *keeper, format string, readings int) (report.Figures, error) {
	url := "http://" + k.process.public + "/v1/devices/" + string(appendDevice(nil, 0)) + "/readings?format=" +
		strings.ToLower(format)
	lines := readings
	if format == "CSV" {
		lines++ // the header
	}
	ctx, cancel := context.WithTimeout(ctx, yearRequests*storeTimeout)
	defer cancel()
	start := time.Now()
	cpu, err := cpuDuring([]int{k.process.pid()}, func() (err error) {
		var text []byte
		for range yearRequests {
			if text, err = exchange(ctx, http.MethodGet, url, nil, text); err != nil {
				return err
			}
			if n := bytes.Count(text, []byte("\n")); n != lines {
				return fmt.Errorf("%d lines, want %d", n, lines)
			}
		}
		return nil
	})
	took := time.Since(start)
	cpu = max(cpu, tick) // of reads that are shorter than a tick
	return report.Figures{"ms": report.Millis(took) / yearRequests, "rate": float64(yearRequests*readings) / 1e6 /
		cpu.Seconds()}, err
}
