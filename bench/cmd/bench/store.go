package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
)

// Names of the parts of a run, which all write one block.
const (
	partLoad  = "load"
	partYear  = "year"
	partScan  = "scan"
	partPeers = "peers"
)

// storeCommand measures the cost of many readings: Pulsegate with two signs, with a tenth
// of the readings, with five signs; its start after it was killed; reads of a device with
// a year of readings; and other stores with the same readings.
type storeCommand struct {
	loads
	Readings        int           `default:"30000000" help:"Readings of one load."`
	Devices         int           `default:"20000" help:"Devices."`
	Parts           []string      `default:"load,year,scan,peers" enum:"load,year,scan,peers" help:"What to measure: Pulsegate's loads, a device-year through the API, the same within the store, other stores."`
	Peers           []string      `help:"Other stores, such as victoria-metrics,sqlite. Default: all that are installed."`
	TableReadings   int           `default:"3000000" help:"Readings of one load of SQLite and PostgreSQL, at most. More take hours."`
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
	return c.loads.Validate()
}

// A storeRun is one run of the command.
type storeRun struct {
	*storeCommand
	work   string
	out    io.Writer
	result *report.Store
}

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
	b := &storeRun{c, work, out, &report.Store{
		Setting: setting, Rounds: c.Rounds, Devices: c.Devices, Batch: batchReadings, Senders: senders,
		Readings: uint64(c.Readings), Settled: c.Settled, Kill: c.duration(), FileSystem: fileSystem(work), ScanSize: yearReadings,
	}}
	for round := range c.Rounds {
		for _, part := range c.Parts {
			var err error
			switch part {
			case partLoad:
				err = b.loadOwn(ctx, round)
			case partYear:
				err = b.readYear(ctx, round)
			case partScan:
				err = b.scanYear(ctx, round)
			case partPeers:
				err = b.loadPeers(ctx, round, chosen)
			}
			if err != nil {
				return err
			}
		}
	}
	return b.write(out, b.result.Block(), b.result.Markdown())
}

// add adds a run to a row of the table.
func (b *storeRun) add(name, what string, run report.StoreRun) {
	fmt.Fprintf(b.out, "round %d  %s: %s\n", run.Round+1, name, &run)
	for i := range b.result.Servers {
		if s := &b.result.Servers[i]; s.Name == name {
			s.Runs = append(s.Runs, run)
			return
		}
	}
	b.result.Servers = append(b.result.Servers, report.StoreServer{Name: name, What: what, Runs: []report.StoreRun{run}})
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

// loadOwn measures Pulsegate: with a tenth of the readings, with all of them, and with
// five signs.
func (b *storeRun) loadOwn(ctx context.Context, round int) error {
	for _, load := range []struct {
		name            string
		readings, signs int
		kill            bool
	}{
		{report.OwnTenth, b.Readings / 10, 2, false},
		{report.Own, b.Readings, 2, true},
		{report.OwnAllSigns, b.Readings, 5, false},
	} {
		err := b.inDir(func(dir string) error {
			k, err := b.startKeeper(ctx, dir)
			if err != nil {
				return err
			}
			f := flowOf(load.readings, b.Devices, load.signs, senders, k.open)
			run, err := b.measure(ctx, k, f, load.readings, round)
			if err = errors.Join(err, k.stop()); err != nil {
				return err
			}
			// A new start leaves nothing in the log that is not elsewhere.
			if k, err = b.startKeeper(ctx, dir); err != nil {
				return err
			}
			if run.DiskBytes, run.DebtBytes, err = b.settle(ctx, k); err != nil {
				return errors.Join(err, k.stop())
			}
			b.add(load.name, "", run)
			if !load.kill {
				return k.stop()
			}
			return b.kill(ctx, k, f, dir, run)
		})
		if err != nil {
			return fmt.Errorf("measure %s: %w", load.name, err)
		}
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
func (b *storeRun) measure(ctx context.Context, k *keeper, f *flow, readings, round int) (report.StoreRun, error) {
	pid := k.process.pid()
	cpuBefore, err := cpuTime(pid)
	if err != nil {
		return report.StoreRun{}, err
	}
	writtenBefore, err := writtenBytes(pid)
	if err != nil {
		return report.StoreRun{}, err
	}
	load, err := f.run(ctx, readings/batchReadings)
	if err != nil {
		return report.StoreRun{}, err
	}
	loaded := time.Now()
	if k.finish != nil {
		if err := k.finish(ctx); err != nil {
			return report.StoreRun{}, err
		}
	}
	run := report.StoreRun{
		Round: round, Readings: load.batches * batchReadings, Duration: load.duration, LoaderCPU: load.cpu,
		SentBytes: load.bytes, Refused: load.refused, SlowestRate: load.slowest(),
	}
	q := load.quantiles(0.5, 0.99, 0.999)
	run.P50, run.P99, run.P999 = q[0], q[1], q[2]
	if run.DiskBytes, run.DebtBytes, err = b.settle(ctx, k); err != nil {
		return report.StoreRun{}, err
	}
	run.Settling = time.Since(loaded) - b.Settled
	cpu, err := cpuTime(pid)
	if err != nil {
		return report.StoreRun{}, err
	}
	written, err := writtenBytes(pid)
	if err != nil {
		return report.StoreRun{}, err
	}
	run.CPU, run.WrittenBytes = cpu-cpuBefore, written-writtenBefore
	stored, err := k.stored(ctx)
	if err == nil && stored != run.Readings {
		err = fmt.Errorf("%d readings were answered as stored, and %d are", run.Readings, stored)
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
func (b *storeRun) kill(ctx context.Context, k *keeper, f *flow, dir string, run report.StoreRun) error {
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
	start := report.StoreStart{Round: run.Round, Readings: run.Readings + more.batches*batchReadings}
	began := time.Now()
	if k, err = b.startKeeper(ctx, dir); err != nil {
		return err
	}
	start.Took = time.Since(began)
	if start.CPU, err = cpuTime(k.process.pid()); err != nil {
		return errors.Join(err, k.stop())
	}
	fmt.Fprintf(b.out, "round %d  start after kill -9 with %d readings: %v, %v of CPU\n", run.Round+1, start.Readings, start.Took, start.CPU)
	b.result.Starts = append(b.result.Starts, start)
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
			run, err := b.measure(ctx, k, flowOf(readings, b.Devices, 2, p.conns, k.open), readings, round)
			if err = errors.Join(err, k.stop()); err == nil {
				b.add(p.name, p.what, run)
			}
			return err
		})
		if ctx.Err() != nil {
			return fmt.Errorf("measure %s: %w", p.name, ctx.Err())
		}
		if err != nil {
			fmt.Fprintf(b.out, "round %d  %s: %v\n", round+1, p.name, err)
			b.result.Left = append(b.result.Left, fmt.Sprintf("%s in round %d, because %v", p.name, round+1, firstLine(err)))
		}
	}
	return nil
}

func firstLine(err error) []byte {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return line
}

const (
	yearReadings = 525_600 // of BenchmarkAggregate: one per minute
	yearTimes    = 5       // how often each format is measured

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
				r := report.StoreRead{Round: round, Format: format, Requests: yearRequests, Readings: int(load.batches * batchReadings)}
				if err := timeRead(ctx, k, &r); err != nil {
					return err
				}
				b.result.Year = append(b.result.Year, r)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read a device-year: %w", err)
	}
	return nil
}

// timeRead requests all readings of the first wearer, r.Requests times.
func timeRead(ctx context.Context, k *keeper, r *report.StoreRead) error {
	before, err := cpuTime(k.process.pid())
	if err != nil {
		return err
	}
	start := time.Now()
	for range r.Requests {
		if err := readAll(ctx, k, r); err != nil {
			return err
		}
	}
	r.Took = time.Since(start)
	after, err := cpuTime(k.process.pid())
	r.CPU = max(after-before, tick) // of reads that are shorter than a tick
	return err
}

// readAll requests all readings of the first wearer, and checks their number.
func readAll(ctx context.Context, k *keeper, r *report.StoreRead) error {
	url := "http://" + k.process.public + "/v1/devices/" + string(appendDevice(nil, 0)) + "/readings?format="
	url += map[string]string{"NDJSON": "ndjson", "CSV": "csv"}[r.Format]
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
	want := r.Readings
	if r.Format == "CSV" {
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

// scanYear runs the store's own benchmark of a scan.
func (b *storeRun) scanYear(ctx context.Context, round int) error {
	programs, err := build(ctx, b.Root, "./internal/storage/pebblestore", filepath.Join(b.work, fmt.Sprintf("scan-%d", round)))
	if err != nil {
		return err
	}
	text, err := runAll(ctx, programs, &tests{Match: "^BenchmarkAggregate$", Time: time.Second})
	if err != nil {
		return err
	}
	results, err := report.ReadResults(bytes.NewReader(text), round)
	if err != nil {
		return err
	}
	if len(results) == 0 {
		return errors.New("the store has no benchmark of a scan")
	}
	b.result.Scans = append(b.result.Scans, results...)
	return nil
}
