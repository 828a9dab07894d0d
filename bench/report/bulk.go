package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Bulk has the figures of Pulsegate with batches of readings.
type Bulk struct {
	Setting    Setting
	Duration   time.Duration // of one measurement
	WarmUp     time.Duration
	Rounds     int
	Readings   int // in a batch
	Senders    int // connections
	FileSystem string
	Forms      []BulkForm
}

// A BulkForm is a format of batches.
type BulkForm struct {
	Name   string
	Judged bool // has goals
	Runs   []BulkRun
}

// A BulkRun is one measurement of one form.
type BulkRun struct {
	Round     int // from 0
	Readings  uint64
	Duration  time.Duration
	CPU       time.Duration // CPU time of the server until it was idle again
	LoaderCPU time.Duration
	BodyBytes uint64 // mean size of a request, including its header
	P50, P99  time.Duration
}

// CPUPerReading returns the server's CPU time per reading in µs.
func (r *BulkRun) CPUPerReading() float64 { return microseconds(r.CPU) / float64(r.Readings) }

// LoaderPerReading returns the load generator's CPU time per reading in µs.
func (r *BulkRun) LoaderPerReading() float64 { return microseconds(r.LoaderCPU) / float64(r.Readings) }

// PerSecond returns the readings stored per second.
func (r *BulkRun) PerSecond() float64 { return float64(r.Readings) / r.Duration.Seconds() }

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// figure returns a figure of a form over the rounds.
func (f *BulkForm) figure(of func(*BulkRun) float64) Spread {
	values := make([]float64, len(f.Runs))
	for i := range f.Runs {
		values[i] = of(&f.Runs[i])
	}
	return SpreadOf(values)
}

// Markdown formats the figures as the block of the page.
func (b *Bulk) Markdown() string {
	var s strings.Builder
	s.WriteString(b.Setting.markdown())
	fmt.Fprintf(&s, "- Load: %d connections, each of which posts batches of %d readings of as many devices, and the next one after the answer; every reading is new\n", b.Senders, b.Readings)
	fmt.Fprintf(&s, "- Rounds: %d, in each of which a new server is started for every form, warmed up for %v and loaded for %v; the order rotates by one form in each round\n", b.Rounds, b.WarmUp, b.Duration)
	fmt.Fprintf(&s, "- Data: on %s\n\n", b.FileSystem)
	s.WriteString("CPU is user and system time of the server, until its compactions after the load have ended, divided by the readings that it answered as stored. " +
		"The load generator shares the CPUs; its bodies are templates in which only times and digits are written, and compressed ones are made in advance. " +
		"Figures are medians, with the range over the rounds in brackets. Latency is that of a whole batch, from the actual time of sending.\n\n")
	s.WriteString("| form | bytes a batch | CPU per reading, µs | readings/s | CPU of the generator, µs | p50, ms | p99, ms |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for i := range b.Forms {
		f := &b.Forms[i]
		if len(f.Runs) == 0 {
			continue
		}
		fmt.Fprintf(&s, "| %s | %.0f | %s | %s | %.2f | %.2f | %.2f |\n", f.Name,
			f.figure(func(r *BulkRun) float64 { return float64(r.BodyBytes) }).Median,
			f.figure((*BulkRun).CPUPerReading).text("%.2f"), f.figure((*BulkRun).PerSecond).text("%.0f"),
			f.figure((*BulkRun).LoaderPerReading).Median,
			f.figure(func(r *BulkRun) float64 { return milliseconds(r.P50) }).Median,
			f.figure(func(r *BulkRun) float64 { return milliseconds(r.P99) }).Median)
	}
	goalsTable(&s, b.goals())
	return s.String()
}

// goals returns the goals for batches.
func (b *Bulk) goals() []goal {
	var goals []goal
	for i := range b.Forms {
		f := &b.Forms[i]
		if !f.Judged {
			continue
		}
		cost := goal{what: f.Name + ": CPU per reading, µs", limit: 4, format: "%.2f"}
		rate := goal{what: f.Name + ": readings/s", atLeast: true, limit: 350_000, format: "%.0f"}
		if len(f.Runs) > 0 {
			cost.figure, cost.known = f.figure((*BulkRun).CPUPerReading), true
			rate.figure, rate.known = f.figure((*BulkRun).PerSecond), true
		}
		goals = slices.Concat(goals, []goal{cost, rate})
	}
	return goals
}
