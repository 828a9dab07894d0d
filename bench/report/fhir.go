package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A FHIR has the figures of Pulsegate as a FHIR server.
type FHIR struct {
	Setting    Setting
	Rounds     int
	Duration   time.Duration // of one measurement
	WarmUp     time.Duration // before Bundles
	Readings   int           // searched
	Senders    int           // connections that send Bundles
	FileSystem string
	Searches   []FHIRSearch
	Bundles    []FHIRBundle
}

// A FHIRSearch is a search with a length of its pages.
type FHIRSearch struct {
	Count int // Observations in a page
	Runs  []FHIRRun
}

// A FHIRBundle is a kind of Bundle that is sent.
type FHIRBundle struct {
	Type         string
	Observations int
	Runs         []FHIRRun
}

// A FHIRRun is one measurement.
type FHIRRun struct {
	Observations uint64
	Bytes        uint64 // of all pages or Bundles
	Duration     time.Duration
	CPU          time.Duration // of the server
	BeforeBytes  uint64        // resident memory of the server before a search
	PeakBytes    uint64        // its greatest resident memory

	Latencies []time.Duration // of pages or Bundles, until Sort
	P50, P99  time.Duration
}

// Sort replaces the latencies by their quantiles.
func (r *FHIRRun) Sort() {
	slices.Sort(r.Latencies)
	at := func(q float64) time.Duration { return r.Latencies[int(q*float64(len(r.Latencies)-1))] }
	r.P50, r.P99, r.Latencies = at(0.5), at(0.99), nil
}

// PerSecond returns the Observations per second.
func (r *FHIRRun) PerSecond() float64 { return float64(r.Observations) / r.Duration.Seconds() }

// CPUPerObservation returns the server's CPU time per Observation in µs.
func (r *FHIRRun) CPUPerObservation() float64 { return microseconds(r.CPU) / float64(r.Observations) }

func (r *FHIRRun) peak() float64   { return MiB(r.PeakBytes) }
func (r *FHIRRun) before() float64 { return MiB(r.BeforeBytes) }

func fhirFigure(runs []FHIRRun, of func(*FHIRRun) float64) Spread {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = of(&runs[i])
	}
	return SpreadOf(values)
}

// Markdown formats the figures as the block of the page.
func (f *FHIR) Markdown() string {
	var b strings.Builder
	b.WriteString(f.Setting.markdown())
	fmt.Fprintf(&b, "- Search: one client reads all Observations of a patient with %d readings of heart rate, one a minute, page by page, again and again\n", f.Readings)
	fmt.Fprintf(&b, "- Bundles: %d connections send Bundles of new Observations of one device each, and the next one after the answer\n", f.Senders)
	fmt.Fprintf(&b, "- Rounds: %d, in each of which a new server is started for every line and loaded for %v, for Bundles after a warm-up of %v; the order rotates by one line in each round\n", f.Rounds, f.Duration, f.WarmUp)
	fmt.Fprintf(&b, "- Data: on %s\n\n", f.FileSystem)
	b.WriteString("The client shares the CPUs; it counts the Observations of each page. CPU is user and system time of the server. " +
		"Every Bundle was answered after its sync, and the number of stored readings was checked. " +
		"Figures are medians, with the range over the rounds in brackets. Latency is that of a page or Bundle.\n\n")
	b.WriteString("| search, Observations a page | Observations/s | CPU each, µs | bytes each | p50, ms | p99, ms | resident before, MiB | peak, MiB |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	var goals []goal
	for _, s := range f.Searches {
		rate := goal{what: fmt.Sprintf("search, %d a page: Observations/s", s.Count), atLeast: true, limit: 100_000, format: "%.0f"}
		if rate.known = len(s.Runs) > 0; rate.known {
			rate.figure = fhirFigure(s.Runs, (*FHIRRun).PerSecond)
			fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", s.Count, fhirRow(s.Runs), fhirFigure(s.Runs, (*FHIRRun).before).text("%.0f"), fhirFigure(s.Runs, (*FHIRRun).peak).text("%.0f"))
		}
		goals = append(goals, rate)
	}
	b.WriteString("\n| Bundle | Observations/s | CPU each, µs | bytes each | p50, ms | p99, ms | peak, MiB |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range f.Bundles {
		what := fmt.Sprintf("%s of %d", s.Type, s.Observations)
		rate := goal{what: what + ": durable Observations/s", atLeast: true, limit: 20_000, format: "%.0f"}
		if rate.known = len(s.Runs) > 0; rate.known {
			rate.figure = fhirFigure(s.Runs, (*FHIRRun).PerSecond)
			fmt.Fprintf(&b, "| %s | %s | %s |\n", what, fhirRow(s.Runs), fhirFigure(s.Runs, (*FHIRRun).peak).text("%.0f"))
		}
		goals = append(goals, rate)
	}
	goalsTable(&b, goals)
	return b.String()
}

// fhirRow returns the cells that searches and Bundles have in common.
func fhirRow(runs []FHIRRun) string {
	return fmt.Sprintf("%s | %s | %.0f | %.2f | %.2f", fhirFigure(runs, (*FHIRRun).PerSecond).text("%.0f"), fhirFigure(runs, (*FHIRRun).CPUPerObservation).text("%.2f"),
		fhirFigure(runs, func(r *FHIRRun) float64 { return float64(r.Bytes) / float64(r.Observations) }).Median,
		fhirFigure(runs, func(r *FHIRRun) float64 { return milliseconds(r.P50) }).Median,
		fhirFigure(runs, func(r *FHIRRun) float64 { return milliseconds(r.P99) }).Median)
}
