package report

import (
	"fmt"
	"strings"
	"time"
)

// A Postgres has the figures of Pulsegate with PostgreSQL as its store, and of what it is
// compared with.
type Postgres struct {
	Setting     Setting
	Loader      string // load generator of single readings, with its version; "" : none ran
	Database    string // version and settings of PostgreSQL
	Duration    time.Duration
	WarmUp      time.Duration
	Rounds      int
	Connections int // with single readings
	Batch       int // readings in a batch
	Senders     int // connections with batches
	Devices     int
	Table       int // readings of one measurement of a table with rows
	FileSystem  string
	Servers     []PostgresServer
}

// A PostgresServer is a row of the table.
type PostgresServer struct {
	Name string
	Runs []PostgresRun
}

// A PostgresRun is one measurement.
type PostgresRun struct {
	Round       int // from 0
	Readings    uint64
	Duration    time.Duration
	NodeCPU     time.Duration // of the servers
	DatabaseCPU time.Duration // of PostgreSQL, standbys included
	LoaderCPU   time.Duration
	P50, P99    time.Duration
}

// Names of rows of the table.
const (
	PostgresInsert   = "gin, one INSERT per request"
	PostgresOwnDir   = "pulsegate, its own directory"
	PostgresSingle   = "pulsegate, PostgreSQL"
	PostgresBatches  = "batches: pulsegate, PostgreSQL"
	PostgresStandbys = "batches: pulsegate, PostgreSQL with two standbys, ANY 1"
	PostgresNodes    = "batches: two servers, one PostgreSQL"
)

// PostgresRows returns the name of the row of a table that has this many rows before.
func PostgresRows(rows int) string {
	return "batches: into a table of " + count(uint64(rows)) + " rows"
}

func (r *PostgresRun) node() float64      { return microseconds(r.NodeCPU) / float64(r.Readings) }
func (r *PostgresRun) database() float64  { return microseconds(r.DatabaseCPU) / float64(r.Readings) }
func (r *PostgresRun) cpu() float64       { return r.node() + r.database() }
func (r *PostgresRun) perSecond() float64 { return float64(r.Readings) / r.Duration.Seconds() }

// String is a line for the log of a run.
func (r *PostgresRun) String() string {
	return fmt.Sprintf("%.2f µs CPU of the server, %.2f µs of PostgreSQL, %.0f readings/s, p50 %v, p99 %v",
		r.node(), r.database(), r.perSecond(), r.P50.Round(time.Microsecond), r.P99.Round(time.Microsecond))
}

// Add adds a measurement to the row with a name.
func (p *Postgres) Add(name string, run PostgresRun) {
	if s := p.server(name); s != nil {
		s.Runs = append(s.Runs, run)
		return
	}
	p.Servers = append(p.Servers, PostgresServer{name, []PostgresRun{run}})
}

// server returns a row, or nil.
func (p *Postgres) server(name string) *PostgresServer {
	for i := range p.Servers {
		if p.Servers[i].Name == name {
			return &p.Servers[i]
		}
	}
	return nil
}

func (s *PostgresServer) figure(of func(*PostgresRun) float64) Spread {
	values := make([]float64, len(s.Runs))
	for i := range s.Runs {
		values[i] = of(&s.Runs[i])
	}
	return SpreadOf(values)
}

// ratio divides a figure of two rows within the rounds that both have.
func (p *Postgres) ratio(name, base string, of func(*PostgresRun) float64) (Spread, bool) {
	a, b := p.server(name), p.server(base)
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

// Markdown formats the figures as the block of the page.
func (p *Postgres) Markdown() string {
	var b strings.Builder
	b.WriteString(p.Setting.markdown())
	fmt.Fprintf(&b, "- PostgreSQL: %s; on the same machine, over Unix sockets\n", p.Database)
	if p.Loader != "" {
		fmt.Fprintf(&b, "- Single readings: %s, one thread, %d connections\n", p.Loader, p.Connections)
	}
	fmt.Fprintf(&b, "- Batches: %d readings, each of another device, over %d connections, each of which sends the next batch after the answer\n", p.Batch, p.Senders)
	fmt.Fprintf(&b, "- Rounds: %d, in each of which servers and databases are new, warmed up for %v and loaded for %v; only tables with rows are made once, and get %s readings in each round, one after the other\n",
		p.Rounds, p.WarmUp, p.Duration, count(uint64(p.Table)))
	fmt.Fprintf(&b, "- Load: %d devices; every reading is new; the number of rows is checked afterwards\n- Data: on %s\n\n", p.Devices, p.FileSystem)
	b.WriteString("CPU is user and system time, divided by the readings that were answered as stored; that of PostgreSQL includes its standbys, and its work in the background during the load. " +
		"Load generator, servers and databases share the processors. Ratios are computed within a round. Figures are medians, with the range over the rounds in brackets. " +
		"Latency is that of a request, from the actual time of sending.\n\n")
	b.WriteString("| | CPU of the server, µs a reading | of PostgreSQL, µs | sum, µs | readings/s | generator, µs | p50, ms | p99, ms |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range p.Servers {
		s := &p.Servers[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.2f | %.1f | %.1f |\n", s.Name, s.figure((*PostgresRun).node).text("%.2f"),
			s.figure((*PostgresRun).database).text("%.2f"), s.figure((*PostgresRun).cpu).text("%.2f"), s.figure((*PostgresRun).perSecond).text("%.0f"),
			s.figure(func(r *PostgresRun) float64 { return microseconds(r.LoaderCPU) / float64(r.Readings) }).Median,
			s.figure(func(r *PostgresRun) float64 { return milliseconds(r.P50) }).Median,
			s.figure(func(r *PostgresRun) float64 { return milliseconds(r.P99) }).Median)
	}
	goalsTable(&b, p.goals())
	return b.String()
}

// Numbers of rows that a goal compares.
const (
	SmallTable = 1_000_000
	LargeTable = 50_000_000
)

func (p *Postgres) goals() []goal {
	var goals []goal
	relative := func(what, name, base string, of func(*PostgresRun) float64, atLeast bool, limit float64) {
		g := goal{what: what, atLeast: atLeast, limit: limit, format: "%.3f"}
		g.figure, g.known = p.ratio(name, base, of)
		goals = append(goals, g)
	}
	rate := func(name string, limit float64) {
		g := goal{what: name + ": readings/s", atLeast: true, limit: limit, format: "%.0f"}
		if s := p.server(name); s != nil {
			g.figure, g.known = s.figure((*PostgresRun).perSecond), true
		}
		goals = append(goals, g)
	}
	relative("single readings: CPU of server and PostgreSQL / that of "+PostgresInsert, PostgresSingle, PostgresInsert, (*PostgresRun).cpu, false, 0.15)
	relative("single readings: CPU of the server / that of one with its own directory", PostgresSingle, PostgresOwnDir, (*PostgresRun).node, false, 1.4)
	rate(PostgresBatches, 40_000)
	rate(PostgresStandbys, 30_000)
	relative("two servers: readings/s / those of one", PostgresNodes, PostgresBatches, (*PostgresRun).perSecond, true, 1)
	relative("CPU with "+count(LargeTable)+" rows / with "+count(SmallTable), PostgresRows(LargeTable), PostgresRows(SmallTable), (*PostgresRun).cpu, false, 1.3)
	return goals
}
