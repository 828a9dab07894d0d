package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Names of the rows of a Store beside Own.
const (
	OwnTenth        = Own + ", a tenth of the readings"
	OwnAllSigns     = Own + ", five signs"
	VictoriaMetrics = "victoria-metrics"
)

// A Store has the figures of servers that store many readings.
type Store struct {
	Setting    Setting
	Rounds     int
	Readings   uint64
	Devices    int
	Batch      int           // readings in a batch
	Senders    int           // connections
	Settled    time.Duration // how long a settled server has been idle
	Kill       time.Duration // of the load before the server is killed
	FileSystem string
	Servers    []StoreServer
	Starts     []StoreStart
	Year       []StoreRead // through the API
	Scans      []Result    // of BenchmarkAggregate
	ScanSize   int         // readings that an operation of it scans
	Left       []string    // omitted servers, with the reason
}

// A StoreServer is a server with a load.
type StoreServer struct {
	Name, What string
	Runs       []StoreRun
}

// A StoreRun is one load of one server.
type StoreRun struct {
	Round          int // from 0
	Readings       uint64
	Duration       time.Duration // of the load
	Settling       time.Duration // from the load's end until the server was idle
	CPU, LoaderCPU time.Duration // CPU: of the server, until it had settled
	SentBytes      uint64        // in bodies
	WrittenBytes   uint64        // to the disk, until the server had settled
	DiskBytes      uint64
	DebtBytes      float64 // left to compact in the settled store
	P50, P99, P999 time.Duration
	Refused        uint64  // batches rejected with 503
	SlowestRate    float64 // readings/s in the slowest ten seconds
}

func (r *StoreRun) cpu() float64     { return microseconds(r.CPU) / float64(r.Readings) }
func (r *StoreRun) rate() float64    { return float64(r.Readings) / r.Duration.Seconds() }
func (r *StoreRun) disk() float64    { return float64(r.DiskBytes) / float64(r.Readings) }
func (r *StoreRun) written() float64 { return float64(r.WrittenBytes) / float64(r.SentBytes) }

// String describes the run in a line.
func (r *StoreRun) String() string {
	return fmt.Sprintf("%.2f µs CPU a reading, %.0f readings/s, slowest %.0f/s, %.2f bytes a reading on disk, %.2f bytes written for one sent (%.0f a reading), p50 %v, p99 %v, p99.9 %v, %d refused, settled in %v with %.0f bytes left to compact, generator %.2f µs a reading",
		r.cpu(), r.rate(), r.SlowestRate, r.disk(), r.written(), float64(r.SentBytes)/float64(r.Readings), r.P50.Round(time.Microsecond), r.P99.Round(time.Microsecond), r.P999.Round(time.Microsecond),
		r.Refused, r.Settling.Round(time.Second), r.DebtBytes, microseconds(r.LoaderCPU)/float64(r.Readings))
}

// A StoreStart is a start after the server was killed at full load.
type StoreStart struct {
	Round    int
	Readings uint64        // stored at least
	Took     time.Duration // from exec until it was ready
	CPU      time.Duration // of the server until then
}

// A StoreRead is some requests, one after another, for all readings of a device.
type StoreRead struct {
	Round    int
	Format   string
	Requests int
	Readings int // in each answer
	Took     time.Duration
	CPU      time.Duration // of the server
}

// server returns a row, or nil if it was not measured.
func (s *Store) server(name string) *StoreServer {
	i := slices.IndexFunc(s.Servers, func(one StoreServer) bool { return one.Name == name && len(one.Runs) > 0 })
	if i < 0 {
		return nil
	}
	return &s.Servers[i]
}

func (s *StoreServer) figure(of func(*StoreRun) float64) Spread {
	values := make([]float64, len(s.Runs))
	for i := range s.Runs {
		values[i] = of(&s.Runs[i])
	}
	return SpreadOf(values)
}

// ratio divides a figure of two rows within the rounds that both have.
func (s *Store) ratio(name, base string, of func(*StoreRun) float64) (Spread, bool) {
	a, b := s.server(name), s.server(base)
	if a == nil || b == nil {
		return Spread{}, false
	}
	var values []float64
	for i := range a.Runs {
		for j := range b.Runs {
			if a.Runs[i].Round == b.Runs[j].Round {
				values = append(values, of(&a.Runs[i])/of(&b.Runs[j]))
			}
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Block returns the name of the block of the page. The figures of a large store have one
// of their own.
func (s *Store) Block() string {
	if s.Readings >= largeStore {
		return "bench-store-large"
	}
	return "bench-store"
}

// Markdown formats the figures as the block of the page.
func (s *Store) Markdown() string {
	var b strings.Builder
	b.WriteString(s.Setting.markdown())
	fmt.Fprintf(&b, "- Load: %s readings of %d wearers, each with a time of its own to the millisecond, and with a gateway; batches of %d readings over %d connections, each of which sends the next batch after the answer; every reading is new\n",
		count(s.Readings), s.Devices, s.Batch, s.Senders)
	fmt.Fprintf(&b, "- Rounds: %d, with a new server for every row\n- Data: on %s\n\n", s.Rounds, s.FileSystem)
	fmt.Fprintf(&b, "CPU is user and system time of the server from the start of the load until it has settled: until its CPU was idle, and the size of its data unchanged, for %v. "+
		"On disk is the space of the data directory then; with Pulsegate after another start, so that its log is empty. "+
		"Written is what the kernel attributes to the server's processes, divided by the bytes of the bodies. "+
		"Latency is that of a whole batch, from the actual time of sending. Slowest is the rate in the slowest 10 s of the load. The load generator shares the CPUs. "+
		"Figures are medians, with the range over the rounds in brackets.\n\n", s.Settled)
	b.WriteString("| server | readings, M | CPU, µs a reading | readings/s | slowest | on disk, bytes a reading | written / received | p50, ms | p99, ms | p99.9, ms | 503 | generator, µs |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range s.Servers {
		v := &s.Servers[i]
		if len(v.Runs) == 0 {
			continue
		}
		median := func(of func(*StoreRun) float64) float64 { return v.figure(of).Median }
		fmt.Fprintf(&b, "| %s | %.4g | %s | %s | %.0f | %s | %s | %.1f | %.1f | %.1f | %.0f | %.2f |\n", v.Name, median(func(r *StoreRun) float64 { return float64(r.Readings) / 1e6 }),
			v.figure((*StoreRun).cpu).text("%.2f"), v.figure((*StoreRun).rate).text("%.0f"), median(func(r *StoreRun) float64 { return r.SlowestRate }),
			v.figure((*StoreRun).disk).text("%.2f"), v.figure((*StoreRun).written).text("%.2f"),
			median(func(r *StoreRun) float64 { return milliseconds(r.P50) }), median(func(r *StoreRun) float64 { return milliseconds(r.P99) }),
			median(func(r *StoreRun) float64 { return milliseconds(r.P999) }), median(func(r *StoreRun) float64 { return float64(r.Refused) }),
			median(func(r *StoreRun) float64 { return microseconds(r.LoaderCPU) / float64(r.Readings) }))
	}
	b.WriteString("\n")
	for i := range s.Servers {
		if v := &s.Servers[i]; len(v.Runs) > 0 && v.What != "" {
			fmt.Fprintf(&b, "- %s: %s\n", v.Name, v.What)
		}
	}
	if len(s.Starts) > 0 {
		fmt.Fprintf(&b, "- Start after kill -9 in the midst of a load of %v, with %s readings stored: %s ms until ready, with %s ms of CPU; the system's cache is warm\n", s.Kill, count(s.Starts[0].Readings),
			s.starts(func(one *StoreStart) float64 { return milliseconds(one.Took) }).text("%.0f"), s.starts(func(one *StoreStart) float64 { return milliseconds(one.CPU) }).text("%.0f"))
	}
	s.reads(&b)
	goalsTable(&b, s.goals())
	for _, left := range s.Left {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", left)
	}
	return b.String()
}

// count formats a number of readings.
func count(n uint64) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%.4g M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

func (s *Store) starts(of func(*StoreStart) float64) Spread {
	values := make([]float64, len(s.Starts))
	for i := range s.Starts {
		values[i] = of(&s.Starts[i])
	}
	return SpreadOf(values)
}

// A storeScan is a way to read a device-year.
type storeScan struct {
	name   string
	goal   float64   // readings per second and core, at least
	millis []float64 // by round
	rate   []float64 // readings per second of CPU, by round
}

// scans returns the ways that were measured.
func (s *Store) scans() []storeScan {
	scans := []storeScan{
		{name: "scan from the store's cache", goal: 15e6}, {name: "scan from the system's cache", goal: 8e6},
		{name: "NDJSON", goal: 5e6}, {name: "CSV", goal: 5e6},
	}
	for i, name := range []string{"Aggregate/cache=store", "Aggregate/cache=system"} {
		for j := range s.Scans {
			if r := &s.Scans[j]; r.Name == name {
				scans[i].millis = append(scans[i].millis, r.Nanos/1e6)
				scans[i].rate = append(scans[i].rate, float64(s.ScanSize)/(r.Nanos/1e9))
			}
		}
	}
	for _, r := range s.Year {
		i := slices.IndexFunc(scans, func(one storeScan) bool { return one.name == r.Format })
		scans[i].millis = append(scans[i].millis, milliseconds(r.Took)/float64(r.Requests))
		scans[i].rate = append(scans[i].rate, float64(r.Requests*r.Readings)/r.CPU.Seconds())
	}
	return scans
}

// reads writes the table of reads of a device-year.
func (s *Store) reads(b *strings.Builder) {
	if len(s.Year)+len(s.Scans) == 0 {
		return
	}
	b.WriteString("\nAll readings of a device with one a minute for a year. The scans count, and compute minimum, maximum and sum of a sign for each hour, in one goroutine in the process of the store; the others are answers to requests, of which ten, one after another, are measured together.\n\n")
	b.WriteString("| read as | ms | M readings per second of CPU |\n|---|--:|--:|\n")
	for _, scan := range s.scans() {
		if len(scan.rate) > 0 {
			rate := SpreadOf(scan.rate)
			fmt.Fprintf(b, "| %s | %s | %s |\n", scan.name, SpreadOf(scan.millis).text("%.1f"),
				Spread{rate.Median / 1e6, rate.Min / 1e6, rate.Max / 1e6}.text("%.2f"))
		}
	}
}

// largeStore is the number of readings from which the goals of a large store count.
const largeStore = 100_000_000

// goals returns the goals of the store.
func (s *Store) goals() []goal {
	var goals []goal
	of := func(name, what string, limit float64, format string, f func(*StoreRun) float64) {
		g := goal{what: name + ": " + what, limit: limit, format: format}
		if v := s.server(name); v != nil {
			g.figure, g.known = v.figure(f), true
		}
		goals = append(goals, g)
	}
	relative := func(what, name, base string, limit float64, judged bool) {
		g := goal{what: what, limit: limit, format: "%.2f"}
		if judged {
			g.figure, g.known = s.ratio(name, base, (*StoreRun).cpu)
		}
		goals = append(goals, g)
	}
	of(Own, "bytes a reading on disk", 6, "%.2f", (*StoreRun).disk)
	of(OwnAllSigns, "bytes a reading on disk", 11, "%.2f", (*StoreRun).disk)
	of(Own, "CPU per reading, µs", 3, "%.2f", (*StoreRun).cpu)
	relative(Own+": CPU per reading / that of "+VictoriaMetrics, Own, VictoriaMetrics, 0.7, true)
	of(Own, "bytes written / received", 0.6, "%.2f", (*StoreRun).written)
	of(Own, "p99.9 / p50", 10, "%.1f", func(r *StoreRun) float64 { return float64(r.P999) / float64(r.P50) })
	of(Own, "batches rejected with 503", 0, "%.0f", func(r *StoreRun) float64 { return float64(r.Refused) })
	large := s.Readings >= largeStore
	relative("CPU per reading of 100 M / that of 10 M", Own, OwnTenth, 1.15, large)
	start := goal{what: "start after kill -9 with 100 M readings, s", limit: 2, format: "%.2f"}
	if start.known = large && len(s.Starts) > 0; start.known {
		start.figure = s.starts(func(one *StoreStart) float64 { return one.Took.Seconds() })
	}
	goals = append(goals, start)
	scans := s.scans()
	year := goal{what: "a device-year of minutes scanned and aggregated, ms", limit: 60, format: "%.1f"}
	if year.known = len(scans[0].millis) > 0; year.known {
		year.figure = SpreadOf(scans[0].millis)
	}
	goals = append(goals, year)
	for _, scan := range scans {
		g := goal{what: scan.name + ": readings per second of CPU", atLeast: true, limit: scan.goal, format: "%.3g"}
		if g.known = len(scan.rate) > 0; g.known {
			g.figure = SpreadOf(scan.rate)
		}
		goals = append(goals, g)
	}
	return goals
}
