package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pulsegate/pulsegate/bench/report"
	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// Parts of a run of postgresCommand, besides partSingle.
const (
	partBatches = "batches"
	partRows    = "rows"
)

// postgresCommand measures Pulsegate with PostgreSQL as its store: single readings, in
// comparison with a service that inserts each and with Pulsegate's own store; batches, also
// with standbys and with two servers; and batches into tables with few and many rows.
type postgresCommand struct {
	loads
	Parts       []string `default:"single,batches,rows" enum:"single,batches,rows" help:"What to measure: single readings, batches, batches into tables with rows."`
	Connections int      `default:"1000" help:"Connections with single readings."`
	Rows        []int    `default:"1000000,50000000" help:"Numbers of rows of the tables."`
	Readings    int      `default:"200000" help:"Readings of one measurement of a table."`
}

func (c *postgresCommand) Validate() error {
	if c.Connections < 1 || c.Readings < batchReadings {
		return fmt.Errorf("--connections must be at least 1, and --readings %d", batchReadings)
	}
	if len(c.Rows) == 0 || slices.Min(c.Rows) < batchReadings {
		return fmt.Errorf("--rows must be at least %d", batchReadings)
	}
	return c.loads.Validate()
}

// Names of rows of the table.
const (
	postgresInsert   = "gin, one INSERT per request"
	postgresOwnDir   = "pulsegate, its own directory"
	postgresSingle   = "pulsegate, PostgreSQL"
	postgresBatches  = "batches: pulsegate, PostgreSQL"
	postgresStandbys = "batches: pulsegate, PostgreSQL with two standbys, ANY 1"
	postgresNodes    = "batches: two servers, one PostgreSQL"
)

// intoTable is the name of the row of a table that has this many rows before.
func intoTable(rows int) string { return "batches: into a table of " + report.Count(rows) + " rows" }

// databaseSettings are those of every database of the run, all servers' included.
var databaseSettings = []string{"fsync=on", "full_page_writes=on", "synchronous_commit=on", "shared_buffers=512MB",
	"max_wal_size=4GB", "max_connections=200"}

// loadDevices is the number of devices of each load.
const loadDevices = senders * batchReadings

// describePostgres returns the version of PostgreSQL, and the settings of databases.
func describePostgres() string {
	return "PostgreSQL: " + pgtest.Version() + ", " + strings.Join(databaseSettings, ", ")
}

func (c *postgresCommand) Run(ctx context.Context, out io.Writer) error {
	if _, err := pgtest.Programs(); err != nil {
		return err
	}
	return c.with(ctx, out, c.measure, "peer", report.Own)
}

// A postgresPart is contestants, and how they are loaded.
type postgresPart struct {
	all  []contestant
	load func(*contestant) (report.Figures, error)
}

func (c *postgresCommand) measure(ctx context.Context) error {
	wrk, err := findWrk(ctx, c.work, ingestScript)
	if err != nil {
		return err
	}
	if err := raiseFileLimit(c.Connections); err != nil {
		return err
	}
	single := func(one *contestant) (report.Figures, error) {
		all, err := c.single(ctx, wrk, one, c.Connections)
		return append(all, nil)[0], err
	}
	bulk := func(one *contestant) (report.Figures, error) { return c.bulk(ctx, one, form{array: true}) }
	nodes := contestant{name: postgresNodes, postgres: true, servers: 2}
	parts := map[string][]postgresPart{
		partSingle: {{[]contestant{{name: postgresInsert, peer: "ginpg", postgres: true}, {name: postgresOwnDir},
			{name: postgresSingle, postgres: true}}, single}},
		partBatches: {
			{[]contestant{{name: postgresBatches, postgres: true}, {name: postgresStandbys, postgres: true, standbys: 2}, nodes},
				bulk}},
	}
	t := &report.Table{Head: "server", Columns: append([]report.Column{
		{Title: "CPU of the server, µs a reading", Figure: "node", Format: "%.2f"},
		{Title: "of PostgreSQL, µs", Figure: "database", Format: "%.2f"},
		{Title: "sum, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
		{Title: "generator, µs", Figure: "loader", Format: "%.2f", Show: report.Median},
	}, latencyColumns("%.1f")...)}
	for _, name := range c.Parts {
		for _, part := range parts[name] {
			for i := range part.all {
				part.all[i].settings = databaseSettings
			}
			if err := compare(&c.common, t, part.all, (*contestant).row, part.load); err != nil {
				return err
			}
		}
		if name == partRows {
			if err := c.tables(ctx, t); err != nil {
				return fmt.Errorf("measure %s: %w", name, err)
			}
		}
	}
	r := c.report("bench-postgres",
		"CPU is user and system time, divided by the readings that were answered as stored; that of PostgreSQL includes "+
			"its standbys, and its work in the background during the load. "+
			"Load generator, servers and databases share the processors. Ratios are computed "+
			"within a round. "+rounded+" Latency is that of a request, from the actual time of sending.",
		describePostgres()+"; on the same machine, over Unix sockets",
		fmt.Sprintf("Single readings: %s, one thread, %d connections", wrk.version, c.Connections),
		fmt.Sprintf(
			"Batches: %d readings, each of another device, over %d connections, each of which sends the next batch "+
				"after the answer", batchReadings, senders),
		fmt.Sprintf(
			"Rounds: %d, in each of which servers and databases are new, warmed up for %v and loaded for %v; only tables with "+
				"rows are made once, and get %s readings in each round, one after the other",
			c.Rounds, c.WarmUp, c.duration(), report.Count(c.Readings)),
		fmt.Sprintf("Load: %d devices; every reading is new; the number of rows is checked afterwards", loadDevices))
	r.Tables, r.Goals = []*report.Table{t}, t.Goals(postgresBars()...)
	return c.write("postgres", r)
}

// Numbers of rows that a goal compares.
const (
	smallTable = 1_000_000
	largeTable = 50_000_000
)

func postgresBars() []report.Bar {
	return []report.Bar{
		report.Bar{What: "single readings: CPU of server and PostgreSQL / that of " + postgresInsert, Row: postgresSingle,
			Figure: "cpu", Base: postgresInsert, Limit: 0.15, Format: "%.3f"},
		report.Bar{What: "single readings: CPU of the server / that of one with its own directory", Row: postgresSingle,
			Figure: "node", Base: postgresOwnDir, Limit: 1.4, Format: "%.3f"},
		report.Bar{What: postgresBatches + ": readings/s", Row: postgresBatches, Figure: "rate", AtLeast: true, Limit: 40_000,
			Format: "%.0f"},
		report.Bar{What: postgresStandbys + ": readings/s", Row: postgresStandbys, Figure: "rate", AtLeast: true,
			Limit: 30_000, Format: "%.0f"},
		report.Bar{What: "two servers: readings/s / those of one", Row: postgresNodes, Figure: "rate", Base: postgresBatches,
			AtLeast: true, Limit: 1, Format: "%.3f"},
		report.Bar{What: "CPU with " + report.Count(largeTable) + " rows / with " + report.Count(smallTable),
			Row: intoTable(largeTable), Figure: "cpu", Base: intoTable(smallTable), Limit: 1.3, Format: "%.3f"},
	}
}

// A table is one with rows, and the load that adds to it.
type table struct {
	*cluster
	load   *flow
	stored uint64 // batches
}

// tables measures batches into tables of each number of rows, in turn.
func (c *postgresCommand) tables(ctx context.Context, to *report.Table) (err error) {
	var all []table
	for _, rows := range c.Rows {
		one := contestant{name: intoTable(rows), postgres: true, settings: databaseSettings}
		s, err := c.start(ctx, &one)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		t := table{cluster: s}
		if err := c.fill(ctx, &t, rows); err != nil {
			return err
		}
		all = append(all, t)
	}
	if err := compare(&c.common, to, all, (*table).row, func(t *table) (report.Figures, error) {
		m, err := t.meter()
		if err != nil {
			return nil, err
		}
		load, err := t.load.run(ctx, c.Readings/batchReadings)
		if err != nil {
			return nil, err
		}
		t.stored += load.batches
		return m.since(load.cost(batchReadings))
	}); err != nil {
		return err
	}
	for i := range all {
		t := &all[i]
		if err := t.end(ctx, t.stored*batchReadings, 0); err != nil {
			return err
		}
	}
	return nil
}

// fill gives a database this many rows, which COPY adds: readings of the wearers whose next ones are
// measured.
func (c *postgresCommand) fill(ctx context.Context, t *table, rows int) error {
	viaServer := ownOutlet(t.nodes[0].public)
	t.load = newFlow(loadDevices, 2, senders, startWithin(rows+(c.Rounds+1)*c.Readings), viaServer)
	// The server creates the partition and registers the devices.
	load, err := t.load.run(ctx, loadDevices/batchReadings)
	if err != nil {
		return err
	}
	t.stored = load.batches
	began := time.Now()
	t.load.outlet = copyOutlet(t.databases[0],
		ownTable+" (device, time_ms, received_ms, systolic_mmhg, diastolic_mmhg, spo2_pct, heart_rate_bpm, "+
			"resting_heart_rate_bpm, gateway, shared, changed)", ",f,3")
	load, err = t.load.run(ctx, max(0, rows/batchReadings-int(t.stored)))
	if err != nil {
		return fmt.Errorf("copy rows: %w", err)
	}
	t.stored += load.batches
	t.load.outlet = viaServer
	fmt.Fprintf(c.out, "copied %d rows in %v\n", load.batches*batchReadings, time.Since(began).Round(time.Second))
	return t.databases[0].execute(ctx, "VACUUM ANALYZE "+ownTable, "CHECKPOINT")
}

// partition is the time that a partition of Pulsegate's table has.
const partition = 30 * 24 * time.Hour

// startWithin returns a start for this many readings of loadDevices devices, one a minute
// of each, such that they end before now and are in one partition.
func startWithin(readings int) time.Time {
	span := time.Duration(readings/loadDevices+2) * time.Minute
	end := time.Now().Add(-time.Minute)
	if begin := end.Add(-(time.Duration(end.UnixMilli()) * time.Millisecond) % partition); end.Add(-span).Before(begin) {
		end = begin
	}
	return end.Add(-span)
}
