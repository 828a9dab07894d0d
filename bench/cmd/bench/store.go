package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of the parts of a run, which all write one block.
const (
	partLoad  = "load"
	partYear  = "year"
	partPeers = "peers"
)

// storeCommand measures the cost of many readings: Pulsegate with two signs, with a tenth
// of the readings, with five signs, with ten; its start after it was killed; reads of a device with
// a year of readings; and other stores with the same readings.
type storeCommand struct {
	loads
	Readings        int           `default:"30000000" help:"Readings of one load."`
	Devices         int           `default:"20000" help:"Devices."`
	Parts           []string      `default:"load,year,peers" enum:"load,year,peers,before" help:"What to measure: Pulsegate's loads, a device-year through the API, other stores; or an earlier pulsegate, alone."`
	Before          string        `type:"existingdir" help:"Directory with an earlier pulsegate, for the part before."`
	Peers           []string      `help:"Other stores, such as victoria-metrics. Default: all that are installed."`
	TableReadings   int           `default:"3000000" help:"Readings of one load of PostgreSQL, at most. More take hours."`
	VictoriaMetrics string        `default:"victoria-metrics" help:"Program of a single node of VictoriaMetrics."`
	Year            int           `default:"525600" help:"Readings of the device whose readings are read."`
	Settled         time.Duration `default:"8s" help:"How long a server must be idle until it counts as settled."`
}

func (c *storeCommand) Validate() error {
	if c.Readings < 10*batchReadings || min(c.Year, c.TableReadings) < batchReadings {
		return fmt.Errorf("--readings must be at least %d, --year and --table-readings %d", 10*batchReadings, batchReadings)
	}
	if c.Devices < 1 || c.Devices > 1_000_000 || c.Settled <= 0 {
		return errors.New("--devices must be from 1 to 1000000, --settled positive")
	}
	if slices.Contains(c.Parts, partBefore) && (c.Before == "" || len(c.Parts) > 1) {
		return errors.New("--before must be set for the part before, which is measured alone")
	}
	return c.loads.Validate()
}

// A storeRun is one run of the command.
type storeRun struct {
	*storeCommand
	work    string
	out     io.Writer
	servers *report.Table
	starts  *report.Table
	year    *report.Table
	notes   []string // what peers are
	left    []string // omitted peers, with the reason
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

func (c *storeCommand) Run(ctx context.Context, out io.Writer) (err error) {
	chosen, err := choose(peers(), func(p peer) string { return p.name }, c.Peers)
	if err != nil {
		return fmt.Errorf("--peers: %w", err)
	}
	setting := report.Here(fmt.Sprintf("make bench-store READINGS=%d DEVICES=%d", c.Readings, c.Devices))
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &storeRun{storeCommand: c, work: work, out: out}
	b.servers = &report.Table{Head: "server", Columns: append(append([]report.Column{
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
	b.starts = &report.Table{
		Text: fmt.Sprintf("Starts after kill -9 in the midst of a load of %v; the system's cache is warm:", c.duration()), Head: "server",
		Columns: []report.Column{
			{Title: "readings stored, M", Figure: "millions", Format: "%.4g", Show: report.Median},
			{Title: "ms until ready", Figure: "ready", Format: "%.0f"},
			{Title: "ms of CPU", Figure: "cpu", Format: "%.0f"},
		},
	}
	b.year = &report.Table{
		Text: "All readings of a device with one a minute for a year, as answers to requests, of which ten, one after another, are measured together.",
		Head: "read as", Columns: []report.Column{{Title: "ms", Figure: "ms", Format: "%.1f"}, {Title: "M readings per second of CPU", Figure: "rate", Format: "%.2f"}},
	}
	for round := range c.Rounds {
		for _, part := range c.Parts {
			var err error
			switch part {
			case partLoad:
				err = b.loadOwn(ctx, round)
			case partYear:
				err = b.readYear(ctx, round)
			case partPeers:
				err = b.loadPeers(ctx, round, chosen)
			case partBefore:
				err = b.loadBefore(ctx, round)
			}
			if err != nil {
				return err
			}
		}
	}
	block := "bench-store"
	if c.Before != "" {
		r := b.report(report.Here(fmt.Sprintf("make bench-store PARTS=before BEFORE=… ROUNDS=%d READINGS=%d DEVICES=%d", c.Rounds, c.Readings, c.Devices)))
		r.Tables = []*report.Table{b.servers}
		r.Goals = b.servers.Goals(
			thanEarlier("CPU per reading", report.Own, "cpu", 1.03), thanEarlier("bytes a reading on disk", report.Own, "disk", 1.03), thanEarlier("bytes written", report.Own, "written", 1.03))
		return b.write(out, block+"-before", r.Markdown())
	}
	if c.Readings >= largeStore {
		block += "-large"
	}
	return b.write(out, block, b.report(setting).Markdown())
}

func (b *storeRun) report(setting report.Setting) *report.Report {
	own := func(name, what, figure string, limit float64, format string) report.Bar {
		return report.Bar{What: name + ": " + what, Row: name, Figure: figure, Limit: limit, Format: format}
	}
	r := &report.Report{
		Setting: setting,
		Notes: append([]string{
			fmt.Sprintf("Load: %s readings of %d wearers, each with a time of its own to the millisecond, and with a gateway; batches of %d readings over %d connections, each of which sends the next batch after the answer; every reading is new",
				report.Count(b.Readings), b.Devices, batchReadings, senders),
			fmt.Sprintf("Rounds: %d, with a new server for every row", b.Rounds),
			"Data: on " + fileSystem(b.work),
		}, b.notes...),
		Text: fmt.Sprintf("CPU is user and system time of the server from the start of the load until it has settled: until its CPU was idle, and the size of its data unchanged, for %v. "+
			"On disk is the space of the data directory then; with Pulsegate after another start, so that its log is empty. "+
			"Written is what the kernel attributes to the server's processes, divided by the bytes of the bodies. "+
			"Latency is that of a whole batch, from the actual time of sending. Slowest is the rate in the slowest 10 s of the load. The load generator shares the CPUs. "+rounded, b.Settled),
		Tables: []*report.Table{b.servers, b.starts, b.year},
		Left:   b.left,
		Goals: b.servers.Goals(
			own(report.Own, "bytes a reading on disk", "disk", 6, "%.2f"),
			own(ownAllSigns, "bytes a reading on disk", "disk", 11, "%.2f"),
			report.Bar{What: ownTenSigns + ": bytes a reading on disk / with two signs", Row: ownTenSigns, Figure: "disk", Base: report.Own, Limit: 2.2, Format: "%.2f"},
			own(report.Own, "CPU per reading, µs", "cpu", 3, "%.2f"),
			report.Bar{What: report.Own + ": CPU per reading / that of " + victoriaMetrics, Row: report.Own, Figure: "cpu", Base: victoriaMetrics, Limit: 0.7, Format: "%.2f"},
			own(report.Own, "bytes written / received", "written", 0.6, "%.2f"),
			own(report.Own, "p99.9 / p50", "tail", 10, "%.1f"),
			own(report.Own, "batches rejected with 503", "refused", 0, "%.0f"),
		),
	}
	if b.Readings >= largeStore {
		r.Goals = append(r.Goals, b.servers.Goals(report.Bar{What: "CPU per reading of 100 M / that of 10 M", Row: report.Own, Figure: "cpu", Base: ownTenth, Limit: 1.15, Format: "%.2f"})...)
		r.Goals = append(r.Goals, b.starts.Goals(report.Bar{What: "start after kill -9 with 100 M readings, ms", Row: report.Own, Figure: "ready", Limit: 2000, Format: "%.0f"})...)
	}
	for _, format := range []string{"NDJSON", "CSV"} {
		r.Goals = append(r.Goals, b.year.Goals(report.Bar{What: format + ": M readings per second of CPU", Row: format, Figure: "rate", AtLeast: true, Limit: 5, Format: "%.3g"})...)
	}
	return r
}

// inDir calls f with a new directory, which it removes afterwards.
func (b *storeRun) inDir(f func(dir string) error) (err error) {
	dir, remove, err := temporary(b.work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	return f(dir)
}

// spareMinutes are the minutes before now that a load leaves for the load that is
// interrupted by kill -9.
const spareMinutes = 50_000

// flowOf returns a flow of readings of devices, whose times end before now.
func flowOf(readings, devices, signs, conns int, open func(context.Context) (sink, error)) *flow {
	return newFlow(devices, signs, conns, time.Now().Add(-time.Minute*time.Duration(readings/devices+spareMinutes)), open)
}

// loadOwn measures Pulsegate: with a tenth of the readings, with all of them, with five signs,
// and with ten.
func (b *storeRun) loadOwn(ctx context.Context, round int) error {
	for _, load := range []ownLoad{
		{ownTenth, b.Readings / 10, 2, false},
		{report.Own, b.Readings, 2, true},
		{ownAllSigns, b.Readings, 5, false},
		{ownTenSigns, b.Readings, 10, false},
	} {
		if err := b.loadOne(ctx, round, load); err != nil {
			return err
		}
	}
	return nil
}

// loadBefore measures Pulsegate and an earlier one. Which is first changes with each round.
func (b *storeRun) loadBefore(ctx context.Context, round int) error {
	old := *b.storeCommand
	old.Programs = b.Before
	for i := range 2 {
		run, name := *b, report.Own
		if (i+round)%2 == 0 {
			run.storeCommand, name = &old, report.Own+earlier
		}
		if err := run.loadOne(ctx, round, ownLoad{name, b.Readings, 2, false}); err != nil {
			return err
		}
	}
	return nil
}

// An ownLoad is a load of Pulsegate.
type ownLoad struct {
	name            string
	readings, signs int
	kill            bool // the server, in the midst of another load
}

func (b *storeRun) loadOne(ctx context.Context, round int, load ownLoad) error {
	err := b.inDir(func(dir string) error {
		k, err := b.startKeeper(ctx, dir)
		if err != nil {
			return err
		}
		f := flowOf(load.readings, b.Devices, load.signs, senders, k.open)
		run, err := b.measure(ctx, k, f, load.readings)
		if err = errors.Join(err, k.stop()); err != nil {
			return err
		}
		// A new start leaves nothing in the log that is not elsewhere.
		if k, err = b.startKeeper(ctx, dir); err != nil {
			return err
		}
		disk, _, err := b.settle(ctx, k)
		if err != nil {
			return errors.Join(err, k.stop())
		}
		run["disk"] = float64(disk) / run["readings"]
		b.servers.Add(b.out, round, load.name, "", run)
		if !load.kill {
			return k.stop()
		}
		return b.kill(ctx, k, f, dir, round, uint64(run["readings"]))
	})
	if err != nil {
		return fmt.Errorf("measure %s: %w", load.name, err)
	}
	return nil
}

// startKeeper starts Pulsegate with its data in dir.
func (b *storeRun) startKeeper(ctx context.Context, dir string) (*keeper, error) {
	p, err := b.startOwn(ctx, filepath.Join(dir, "data"), nil)
	if err != nil {
		return nil, err
	}
	if err := p.awaitOK(ctx, "http://"+p.public+"/readyz"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return &keeper{
		process: p, dir: filepath.Join(dir, "data"), open: openOwn(p.public), stop: p.stop,
		stored: func(ctx context.Context) (uint64, error) {
			metrics, err := scrape(ctx, p.admin)
			return uint64(metrics[`pulsegate_readings_total{outcome="stored"}`]), err
		},
	}, nil
}

// measure loads a server and waits until it has settled.
func (b *storeRun) measure(ctx context.Context, k *keeper, f *flow, readings int) (report.Figures, error) {
	pid := k.process.pid()
	cpuBefore, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	writtenBefore, err := writtenBytes(pid)
	if err != nil {
		return nil, err
	}
	load, err := f.run(ctx, readings/batchReadings)
	if err != nil {
		return nil, err
	}
	if k.finish != nil {
		if err := k.finish(ctx); err != nil {
			return nil, err
		}
	}
	disk, _, err := b.settle(ctx, k)
	if err != nil {
		return nil, err
	}
	cpu, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	written, err := writtenBytes(pid)
	if err != nil {
		return nil, err
	}
	n := load.batches * batchReadings
	q := load.quantiles(0.5, 0.99, 0.999)
	run := latency(per(n, load.duration, cpu-cpuBefore, load.cpu), q[0], q[1])
	run["p99.9"], run["tail"] = report.Millis(q[2]), float64(q[2])/float64(q[0])
	run["readings"], run["millions"], run["slowest"], run["refused"] = float64(n), float64(n)/1e6, load.slowest(), float64(load.refused)
	run["disk"], run["written"] = float64(disk)/float64(n), float64(written-writtenBefore)/float64(load.bytes)
	stored, err := k.stored(ctx)
	if err == nil && stored != n {
		err = fmt.Errorf("%d readings were answered as stored, and %d are", n, stored)
	}
	return run, err
}

const (
	settleCheck   = 500 * time.Millisecond
	settleTimeout = 30 * time.Minute

	// idlePermille is the CPU time of a server that is idle, in permille of a core.
	// Runtimes and tickers use some.
	idlePermille = 60
)

// settle waits until a server has been idle, and the size of its data has not changed,
// for b.Settled. It returns that size, and the bytes that Pulsegate has still to compact:
// an estimate, which need not be 0.
func (b *storeRun) settle(ctx context.Context, k *keeper) (size uint64, debt float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	last, err := b.state(ctx, k)
	if err != nil {
		return 0, 0, err
	}
	for since := time.Now(); time.Since(since) < b.Settled; {
		if err := sleep(ctx, min(settleCheck, b.Settled)); err != nil {
			return 0, 0, fmt.Errorf("wait for a settled server: %w", err)
		}
		now, err := b.state(ctx, k)
		if err != nil {
			return 0, 0, err
		}
		if now.busySince(last) {
			since = time.Now()
		}
		last = now
	}
	return last.size, last.work[0], nil
}

// workMetrics are metrics of Pulsegate that change while it works in the background. The
// first is what it has to compact. A version without one of them is known by its CPU.
var workMetrics = [...]string{"pulsegate_store_compaction_debt_bytes", "pulsegate_store_tables", "pulsegate_store_sealed_readings_total"}

// A keeperState is what shows whether a server is at work.
type keeperState struct {
	at   time.Time
	cpu  time.Duration
	size uint64
	work [len(workMetrics)]float64
}

// busySince reports whether a server has worked since an earlier state.
func (s keeperState) busySince(earlier keeperState) bool {
	idle := s.at.Sub(earlier.at)*idlePermille/1000 + tick
	return s.cpu-earlier.cpu > idle || s.size != earlier.size || s.work != earlier.work
}

func (b *storeRun) state(ctx context.Context, k *keeper) (s keeperState, err error) {
	s.at = time.Now()
	if s.cpu, err = cpuTime(k.process.pid()); err != nil {
		return s, err
	}
	if s.size, err = diskBytes(k.dir, k.leaveOut); err != nil || k.process.admin == "" {
		return s, err
	}
	metrics, err := scrape(ctx, k.process.admin)
	for i, name := range workMetrics {
		s.work[i] = metrics[name]
	}
	return s, err
}

// kill loads a server for b.duration, kills it, and measures how long a start takes.
func (b *storeRun) kill(ctx context.Context, k *keeper, f *flow, dir string, round int, stored uint64) error {
	loading, cancel := context.WithTimeout(ctx, b.duration())
	defer cancel()
	f.open = k.open
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
	if k, err = b.startKeeper(ctx, dir); err != nil {
		return err
	}
	took := time.Since(began)
	cpu, err := cpuTime(k.process.pid())
	if err != nil {
		return errors.Join(err, k.stop())
	}
	b.starts.Add(b.out, round, report.Own, "", report.Figures{
		"millions": float64(stored+more.batches*batchReadings) / 1e6, "ready": report.Millis(took), "cpu": report.Millis(cpu),
	})
	return errors.Join(verify(ctx, k.process.public, nil), k.stop())
}

// loadPeers measures other stores. One that fails is left out of the round.
func (b *storeRun) loadPeers(ctx context.Context, round int, chosen []peer) error {
	for _, p := range chosen {
		err := b.inDir(func(dir string) error {
			k, err := p.start(ctx, b.storeCommand, dir)
			if err != nil {
				return err
			}
			if _, _, err := b.settle(ctx, k); err != nil { // what creates the database
				return errors.Join(err, k.stop())
			}
			readings := b.Readings
			if p.table {
				readings = min(readings, b.TableReadings)
			}
			run, err := b.measure(ctx, k, flowOf(readings, b.Devices, 2, p.conns, k.open), readings)
			if err = errors.Join(err, k.stop()); err == nil {
				b.servers.Add(b.out, round, p.name, "", run)
				if note := p.name + ": " + p.what; !slices.Contains(b.notes, note) {
					b.notes = append(b.notes, note)
				}
			}
			return err
		})
		if ctx.Err() != nil {
			return fmt.Errorf("measure %s: %w", p.name, ctx.Err())
		}
		if err != nil {
			fmt.Fprintf(b.out, "round %d  %s: %v\n", round+1, p.name, err)
			b.left = append(b.left, fmt.Sprintf("%s in round %d, because %s", p.name, round+1, firstLine(err)))
		}
	}
	return nil
}

func firstLine(err error) []byte {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return line
}

const (
	yearTimes = 5 // how often each format is measured

	// yearRequests is the number of requests whose CPU time is read together, because an
	// answer takes about ten of the kernel's ticks.
	yearRequests = 10
)

// readYear measures requests for all readings of a device.
func (b *storeRun) readYear(ctx context.Context, round int) error {
	err := b.inDir(func(dir string) (err error) {
		k, err := b.startKeeper(ctx, dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.stop()) }()
		f := flowOf(b.Year, 1, 2, 1, k.open)
		load, err := f.run(ctx, (b.Year+batchReadings-1)/batchReadings)
		if err != nil {
			return err
		}
		if _, _, err := b.settle(ctx, k); err != nil {
			return err
		}
		for range yearTimes {
			for _, format := range []string{"NDJSON", "CSV"} {
				f, err := timeRead(ctx, k, format, int(load.batches*batchReadings))
				if err != nil {
					return err
				}
				b.year.Add(b.out, round, format, "", f)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read a device-year: %w", err)
	}
	return nil
}

// timeRead requests all readings of the first wearer, yearRequests times.
func timeRead(ctx context.Context, k *keeper, format string, readings int) (report.Figures, error) {
	start := time.Now()
	cpu, err := cpuDuring([]int{k.process.pid()}, func() error {
		for range yearRequests {
			if err := readAll(ctx, k, format, readings); err != nil {
				return err
			}
		}
		return nil
	})
	took := time.Since(start)
	cpu = max(cpu, tick) // of reads that are shorter than a tick
	return report.Figures{"ms": report.Millis(took) / yearRequests, "rate": float64(yearRequests*readings) / 1e6 / cpu.Seconds()}, err
}

// readAll requests all readings of the first wearer, and checks their number.
func readAll(ctx context.Context, k *keeper, format string, readings int) error {
	url := "http://" + k.process.public + "/v1/devices/" + string(appendDevice(nil, 0)) + "/readings?format="
	url += map[string]string{"NDJSON": "ndjson", "CSV": "csv"}[format]
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var lines lineCounter
	if _, err := io.CopyBuffer(&lines, resp.Body, make([]byte, 256<<10)); err != nil {
		return err
	}
	want := readings
	if format == "CSV" {
		want++ // the header
	}
	if int(lines) != want || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d and %d lines, want %d", resp.StatusCode, lines, want)
	}
	return nil
}

// A lineCounter counts the lines that are written to it.
type lineCounter int

func (c *lineCounter) Write(p []byte) (int, error) {
	*c += lineCounter(bytes.Count(p, []byte("\n")))
	return len(p), nil
}
