package report

import (
	"fmt"
	"strings"
	"time"
)

// A Read has the cost of the latest values of a device, and of streams of live readings.
type Read struct {
	Setting    Setting
	Rounds     int
	Duration   time.Duration // of one measurement
	FileSystem string        // of the data directory

	// Latest values: Pulsegate, then a fixed answer. Empty: not measured.
	Loader      string // load generator with its version
	Readings    uint64 // in the store
	Devices     int
	Connections int
	Latest      []Server

	// Streams of live readings, by round. Empty: not measured.
	Subscribers   int
	Rate          int // readings per second
	Without, With []LiveRun
	Publish       []Result // of a commit, for nobody
}

// A LiveRun is the cost of readings that arrive one by one.
type LiveRun struct {
	Readings        uint64        // stored
	CPU             time.Duration // of the server
	StreamShare     float64       // of the CPU time: the dispatcher and the handlers of streams
	Events, Dropped uint64
}

// Total returns the CPU time of the server per reading in µs.
func (r *LiveRun) Total() float64 { return float64(r.CPU.Nanoseconds()) / 1e3 / float64(r.Readings) }

// Streams returns the part of Total that streams have used.
func (r *LiveRun) Streams() float64 { return r.Total() * r.StreamShare }

// Ingest returns the other part of Total.
func (r *LiveRun) Ingest() float64 { return r.Total() - r.Streams() }

// liveFigure returns a figure over the rounds.
func liveFigure(runs []LiveRun, of func(*LiveRun) float64) Spread {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = of(&runs[i])
	}
	return SpreadOf(values)
}

// Markdown formats the figures as the block of the page.
func (r *Read) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Setting.markdown())
	fmt.Fprintf(&b, "- Rounds: %d of %v each\n- Data: on %s\n\n", r.Rounds, r.Duration, r.FileSystem)
	b.WriteString("CPU is user and system time of the server. Load generators and subscribers share the CPUs. Ratios are computed within a round. " +
		"Figures are medians, with the range over the rounds in brackets.\n")
	r.latest(&b)
	r.live(&b)
	goalsTable(&b, r.goals())
	return b.String()
}

// latest writes the table of latest values.
func (r *Read) latest(b *strings.Builder) {
	if len(r.Latest) == 0 {
		return
	}
	fmt.Fprintf(b, "\nLatest values, `GET /v1/devices/{device}`: %s, one thread, %d connections; %s readings of %d devices are stored and have settled, and each request is for a random one of these devices.\n\n",
		r.Loader, r.Connections, count(r.Readings), r.Devices)
	b.WriteString("| server | CPU per request, µs | x nethttp | requests/s | p50, ms | p99, ms |\n|---|--:|--:|--:|--:|--:|\n")
	for i := range r.Latest {
		s := &r.Latest[i]
		ratio, _ := ratios(s.Runs, r.Latest[len(r.Latest)-1].Runs, (*Run).CPUPerRequest)
		fmt.Fprintf(b, "| **%s**: %s | %s | %s | %s | %.2f | %.2f |\n", s.Name, s.What, cost(s.Runs).text("%.1f"), ratio.text("%.2f"), figure(s.Runs, (*Run).PerSecond).text("%.0f"),
			figure(s.Runs, func(r *Run) float64 { return milliseconds(r.P50) }).Median, figure(s.Runs, func(r *Run) float64 { return milliseconds(r.P99) }).Median)
	}
}

// live writes the table of streams.
func (r *Read) live(b *strings.Builder) {
	if len(r.With) == 0 {
		return
	}
	fmt.Fprintf(b, "\nStreams, `GET /v1/live`: %d readings per second are posted one by one (`pulsegate sim`, an open loop), one per second of each device. "+
		"Every device is watched by one of the subscribers, so that each reading is an event. Each row has a new server, and the order alternates. "+
		"A CPU profile tells what the dispatcher and the handlers of the streams have used; all else, garbage collection and scheduling included, counts as ingest.\n\n", r.Rate)
	b.WriteString("| subscribers | CPU per reading, µs | for streams, µs | ingest, µs | events/s | dropped |\n|--:|--:|--:|--:|--:|--:|\n")
	for _, row := range []struct {
		subscribers int
		runs        []LiveRun
	}{{0, r.Without}, {r.Subscribers, r.With}} {
		fmt.Fprintf(b, "| %d | %s | %s | %s | %.0f | %.0f |\n", row.subscribers,
			liveFigure(row.runs, (*LiveRun).Total).text("%.1f"), liveFigure(row.runs, (*LiveRun).Streams).text("%.1f"), liveFigure(row.runs, (*LiveRun).Ingest).text("%.1f"),
			liveFigure(row.runs, func(one *LiveRun) float64 { return float64(one.Events) / r.Duration.Seconds() }).Median,
			liveFigure(row.runs, func(one *LiveRun) float64 { return float64(one.Dropped) }).Median)
	}
	fmt.Fprintf(b, "\nWithout subscribers, a commit calls the dispatcher once, which takes %s ns and allocates %s bytes (BenchmarkPublish). The goal compares that with the CPU time of a single reading above, although most commits have several.\n",
		resultFigure(r.Publish, func(one *Result) float64 { return one.Nanos }).text("%.1f"), resultFigure(r.Publish, func(one *Result) float64 { return one.Bytes }).text("%.0f"))
}

// goals returns the goals of reads.
func (r *Read) goals() []goal {
	latest := goal{what: fmt.Sprintf("latest values of a device, %d connections: CPU per request, µs", r.Connections), limit: 35, format: "%.1f"}
	if latest.known = len(r.Latest) > 0; latest.known {
		latest.figure = cost(r.Latest[0].Runs)
	}
	with := goal{what: fmt.Sprintf("%d subscribers, %d readings/s: ingest's CPU per reading / that without", r.Subscribers, r.Rate), limit: 1.25, format: "%.2f"}
	none := goal{what: "no subscriber: the dispatcher's part of the CPU per reading, %", limit: 2, format: "%.3f"}
	if with.known = len(r.With) > 0; with.known {
		var ratios, parts []float64
		for i := range r.With {
			without := r.Without[i].Ingest()
			ratios = append(ratios, r.With[i].Ingest()/without)
			parts = append(parts, 100*r.Publish[i].Nanos/1e3/without)
		}
		with.figure, none.figure, none.known = SpreadOf(ratios), SpreadOf(parts), true
	}
	return []goal{latest, with, none}
}
