package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Ingest has the figures of servers with one reading per request.
type Ingest struct {
	Setting     Setting
	Loader      string        // load generator with its version
	Duration    time.Duration // of one measurement
	WarmUp      time.Duration // before the measurements of one start
	Rounds      int
	Body        int    // bytes of a request's body
	FileSystem  string // of the data directory
	Connections []int  // in the order in which they were measured
	Servers     []Server
	Left        []string // omitted servers, with the reason
	Profile     string   // profile of Pulsegate with the most connections; empty: none
	TLS         *TLS     // nil: without TLS
}

// A TLS has the figures that only servers with TLS have, by round.
type TLS struct {
	Handshakes []float64 // full handshakes per CPU time, divided by those of crypto/tls alone
	Flooded    []float64 // p99 with a flood of handshakes, divided by that without

	// With one processor for the server and another one for its clients.
	ApartConnections int
	Apart            []Server
	FloodedApart     []float64
}

// A Server is one of the servers compared.
type Server struct {
	Name   string // such as "nethttp"
	What   string // what it does for a request
	Stores string // guarantee of an answer, such as "no" or "durable"
	Runs   []Run
}

// A Run is one measurement of one server.
type Run struct {
	Round       int // from 0
	Connections int
	Requests    uint64 // answered with 2xx
	Duration    time.Duration
	CPU         time.Duration // user and system time of the server's processes
	LoaderCPU   time.Duration // that of the load generator
	P50, P99    time.Duration
	Allocated   Allocated // total; zero if unknown
}

// Allocated is what a process has allocated.
type Allocated struct{ Objects, Bytes float64 }

// Since returns what was allocated since before.
func (a Allocated) Since(before Allocated) Allocated {
	return Allocated{a.Objects - before.Objects, a.Bytes - before.Bytes}
}

// CPUPerRequest returns the CPU time per request in µs.
func (r *Run) CPUPerRequest() float64 {
	return float64(r.CPU.Nanoseconds()) / 1e3 / float64(r.Requests)
}

// PerSecond returns the requests answered per second.
func (r *Run) PerSecond() float64 { return float64(r.Requests) / r.Duration.Seconds() }

// Names of special servers: the baseline, and the subject of the comparison.
const (
	Floor = "floor"
	Own   = "pulsegate"

	FullLane = "full lane"
	Proxy    = "nginx"
)

// at returns the runs with n connections, by round.
func (s *Server) at(n int) []Run {
	var runs []Run
	for _, r := range s.Runs {
		if r.Connections == n {
			runs = append(runs, r)
		}
	}
	slices.SortFunc(runs, func(a, b Run) int { return a.Round - b.Round })
	return runs
}

// server returns the named server, or nil.
func (in *Ingest) server(name string) *Server {
	for i := range in.Servers {
		if in.Servers[i].Name == name {
			return &in.Servers[i]
		}
	}
	return nil
}

// cost returns the CPU time per request in µs.
func cost(runs []Run) Spread { return figure(runs, (*Run).CPUPerRequest) }

func figure(runs []Run, of func(*Run) float64) Spread {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = of(&runs[i])
	}
	return SpreadOf(values)
}

// ratios returns a figure of a server divided by that of base in the same round. It
// returns false if no round has both.
func ratios(runs, base []Run, of func(*Run) float64) (Spread, bool) {
	var values []float64
	for i := range runs {
		for j := range base {
			if base[j].Round == runs[i].Round {
				values = append(values, of(&runs[i])/of(&base[j]))
			}
		}
	}
	if len(values) == 0 {
		return Spread{}, false
	}
	return SpreadOf(values), true
}

// Markdown formats the figures as the block of the page. plot is the path of the plot,
// relative to the page.
func (in *Ingest) Markdown(plot string) string {
	var b strings.Builder
	b.WriteString(in.Setting.markdown())
	fmt.Fprintf(&b, "- Loader: %s, one thread, on the same CPUs; a reading of %d bytes per request, each different\n", in.Loader, in.Body)
	fmt.Fprintf(&b, "- Rounds: %d, in each of which every server is restarted, warmed up for %v and loaded for %v per number of connections; the order rotates by one server in each round\n",
		in.Rounds, in.WarmUp, in.Duration)
	fmt.Fprintf(&b, "- Data: on %s\n\n", in.FileSystem)
	b.WriteString("CPU is user and system time of the server's processes, divided by the requests that they answered. " +
		"Ratios are computed within a round. Figures are medians, with the range over the rounds in brackets. " +
		"The load is a closed loop: latency is measured from the actual, not from an intended, time of sending.\n\n")
	if in.TLS != nil {
		b.WriteString("TLS 1.3, a certificate with a key on P-256, and a token in every request. The first seconds of each load, with the handshakes, count for the latencies alone.\n")
	} else {
		fmt.Fprintf(&b, "![CPU time per request of each server](%s)\n", plot)
	}
	for _, n := range in.Connections {
		fmt.Fprintf(&b, "\n%d connections:\n\n", n)
		in.table(&b, n)
		in.allocations(&b, n)
	}
	if in.TLS != nil {
		in.apart(&b)
	}
	goalsTable(&b, in.goals())
	if in.Profile != "" {
		fmt.Fprintf(&b, "\nWhere the CPU time of %s goes with %d connections, as reported by `pulsegate profile` for a load after the rounds. "+
			"[ADR 13](adr/0013-cheaper-fast-lane.md) describes attempts to reduce it.\n\n```\n%s\n```\n", Own, slices.Max(in.Connections), in.Profile)
	}
	for _, left := range in.Left {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", left)
	}
	return b.String()
}

// table writes the table for n connections.
func (in *Ingest) table(b *strings.Builder, n int) {
	var floor []Run
	if s := in.server(Floor); s != nil {
		floor = s.at(n)
	}
	b.WriteString("| server | stored when answered | CPU per request, µs | x floor | requests/s | p50, ms | p99, ms |\n|---|---|--:|--:|--:|--:|--:|\n")
	for i := range in.Servers {
		s := &in.Servers[i]
		runs := s.at(n)
		if len(runs) == 0 {
			continue
		}
		ratio := ""
		if x, ok := ratios(runs, floor, (*Run).CPUPerRequest); ok {
			ratio = x.text("%.2f")
		}
		fmt.Fprintf(b, "| **%s**: %s | %s | %s | %s | %s | %.2f | %.2f |\n", s.Name, s.What, s.Stores,
			cost(runs).text("%.1f"), ratio, figure(runs, (*Run).PerSecond).text("%.0f"),
			figure(runs, func(r *Run) float64 { return milliseconds(r.P50) }).Median,
			figure(runs, func(r *Run) float64 { return milliseconds(r.P99) }).Median)
	}
}

// apart writes what was measured with one processor for the server and another one for its
// clients.
func (in *Ingest) apart(b *strings.Builder) {
	if len(in.TLS.Apart) > 0 {
		fmt.Fprintf(b, "\n%d connections, the server on one processor (GOMAXPROCS 1) and the loader on another one:\n\n", in.TLS.ApartConnections)
		b.WriteString("| server | CPU per request, µs | requests/s | p50, ms | p99, ms | the server's processor is busy, % | the loader's, % |\n|---|--:|--:|--:|--:|--:|--:|\n")
	}
	for i := range in.TLS.Apart {
		s := &in.TLS.Apart[i]
		busy := func(of func(*Run) time.Duration) string {
			return figure(s.Runs, func(r *Run) float64 { return 100 * of(r).Seconds() / r.Duration.Seconds() }).text("%.0f")
		}
		fmt.Fprintf(b, "| **%s**: %s | %s | %s | %.2f | %.2f | %s | %s |\n", s.Name, s.What,
			cost(s.Runs).text("%.1f"), figure(s.Runs, (*Run).PerSecond).text("%.0f"),
			figure(s.Runs, func(r *Run) float64 { return milliseconds(r.P50) }).Median,
			figure(s.Runs, func(r *Run) float64 { return milliseconds(r.P99) }).Median,
			busy(func(r *Run) time.Duration { return r.CPU }), busy(func(r *Run) time.Duration { return r.LoaderCPU }))
	}
	if len(in.TLS.Flooded) > 0 {
		b.WriteString("\nThe clients that flood with handshakes run at the lowest priority (nice 19), send a recorded first message and leave before they compute anything, as if they were on another machine.\n")
	}
}

// allocations writes the allocations of Pulsegate's process with n connections.
func (in *Ingest) allocations(b *strings.Builder, n int) {
	own := in.server(Own)
	if own == nil {
		return
	}
	runs := own.at(n)
	if len(runs) == 0 || runs[0].Allocated == (Allocated{}) {
		return
	}
	per := func(of func(Allocated) float64) Spread {
		return figure(runs, func(r *Run) float64 { return of(r.Allocated) / float64(r.Requests) })
	}
	lane := "A request in the fast lane allocates none, which TestLaneAllocations asserts."
	if in.TLS != nil {
		lane = "Those of a request are crypto/tls's."
	}
	fmt.Fprintf(b, "\nThe whole process of %s allocates %s objects of %s bytes for each request, compactions and measuring included. %s\n", Own,
		per(func(a Allocated) float64 { return a.Objects }).text("%.2f"), per(func(a Allocated) float64 { return a.Bytes }).text("%.0f"), lane)
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// text formats the median and the range with format.
func (s Spread) text(format string) string {
	return fmt.Sprintf(format+" ["+format+"–"+format+"]", s.Median, s.Min, s.Max)
}
