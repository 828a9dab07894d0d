package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
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
	partBefore  = "before"
)

// postgresCommand measures Pulsegate with PostgreSQL as its store: single readings, in
// comparison with a service that inserts each and with Pulsegate's own store; batches, also
// with standbys and with two servers; and batches into tables with few and many rows. It also compares
// with an earlier Pulsegate.
type postgresCommand struct {
	loads
	Parts       []string `default:"single,batches,rows" enum:"single,batches,rows,before,alerts" help:"What to measure: single readings, batches, batches into tables with rows, an earlier pulsegate, two servers with alerts."`
	Before      string   `type:"existingdir" help:"Directory with an earlier pulsegate, for the part before."`
	Connections int      `default:"1000" help:"Connections with single readings."`
	Rows        []int    `default:"1000000,50000000" help:"Numbers of rows of the tables."`
	Readings    int      `default:"200000" help:"Readings of one measurement of a table."`
}

func (c *postgresCommand) Validate() error {
	if c.Connections < 1 || c.Readings < batchReadings {
		return fmt.Errorf("--connections must be at least 1, and --readings %d", batchReadings)
	}
	if slices.Contains(c.Parts, partBefore) && (c.Before == "" || len(c.Parts) > 1) {
		return errors.New("--parts before is measured alone, and needs --before")
	}
	if slices.Contains(c.Parts, partAlerts) && len(c.Parts) > 1 {
		return errors.New("--parts alerts is measured alone")
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
	postgresAlerts   = "batches: two servers with `--alerts` and `--alertmanager`, one PostgreSQL"
)

// earlier follows the names of rows of the earlier pulsegate.
const earlier = ", the earlier pulsegate"

// intoTable is the name of the row of a table that has this many rows before.
func intoTable(rows int) string { return "batches: into a table of " + report.Count(rows) + " rows" }

// databaseSettings are those of every database of the run, all servers' included.
var databaseSettings = []string{"fsync=on", "full_page_writes=on", "synchronous_commit=on", "shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200"}

// loadDevices is the number of devices of each load.
const loadDevices = senders * batchReadings

// A postgresRun is one run of the command.
type postgresRun struct {
	*postgresCommand
	work   string
	out    io.Writer
	wrk    *wrk // nil means no single readings
	result *report.Table

	database string   // version and settings of PostgreSQL
	alerts   []string // flags of servers with alerts
}

func (c *postgresCommand) Run(ctx context.Context, out io.Writer) (err error) {
	if _, err := pgtest.Programs(); err != nil {
		return err
	}
	setting := c.setting("bench-postgres")
	work, remove, err := c.prepare(ctx, "peer", report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	b := &postgresRun{postgresCommand: c, work: work, out: out, result: &report.Table{Head: "server", Columns: append([]report.Column{
		{Title: "CPU of the server, µs a reading", Figure: "node", Format: "%.2f"},
		{Title: "of PostgreSQL, µs", Figure: "database", Format: "%.2f"},
		{Title: "sum, µs", Figure: "cpu", Format: "%.2f"},
		{Title: "readings/s", Figure: "rate", Format: "%.0f"},
		{Title: "generator, µs", Figure: "loader", Format: "%.2f", Show: report.Median},
	}, latencyColumns("%.1f")...)}}
	if c.Before != "" {
		b.result.Columns = slices.Insert(b.result.Columns, 3, report.Column{Title: "log of PostgreSQL, bytes a reading", Figure: "log", Format: "%.1f"})
	}
	block := "bench-postgres"
	if slices.Contains(c.Parts, partAlerts) {
		block, setting = "bench-postgres-alerts", report.Here(fmt.Sprintf("make bench-postgres PARTS=alerts ROUNDS=%d SECONDS=%d", c.Rounds, c.Seconds))
		flags, stop, err := alertFlags(work)
		if err != nil {
			return err
		}
		defer stop()
		b.alerts = flags
		if b.WarmUp > 0 {
			b.WarmUp += alertsBegin
		}
		for i, figure := range []string{"node", "database"} {
			b.result.Columns = slices.Insert(b.result.Columns, 2*i+1, report.Column{Title: "x without", Figure: figure, Format: "%.3f", Base: postgresNodes})
		}
	}
	if slices.Contains(c.Parts, partSingle) || c.Before != "" {
		if b.wrk, err = findWrk(ctx, work, ingestScript); err != nil {
			return err
		}
		if err := raiseFileLimit(c.Connections); err != nil {
			return err
		}
	}
	for round := range c.Rounds {
		for _, part := range c.Parts {
			switch {
			case part == partSingle:
				err = b.singles(ctx, round)
			case part == partBatches, part == partAlerts:
				err = b.batches(ctx, round)
			case part == partBefore:
				err = b.beside(ctx, round)
			case round == 0:
				err = b.tables(ctx)
			}
			if err != nil {
				return fmt.Errorf("measure %s: %w", part, err)
			}
		}
	}
	if c.Before != "" {
		return b.write(out, "bench-postgres-before", b.report(report.Here(fmt.Sprintf("make bench-postgres PARTS=before BEFORE=… ROUNDS=%d SECONDS=%d", c.Rounds, c.Seconds))).Markdown())
	}
	return b.write(out, block, b.report(setting).Markdown())
}

// thanEarlier returns a goal for the ratio of a figure to that of the earlier pulsegate.
func thanEarlier(what, row, figure string, limit float64) report.Bar {
	return report.Bar{What: what + " / that of the earlier pulsegate", Row: row, Figure: figure, Base: row + earlier, Limit: limit, Format: "%.3f"}
}

// Numbers of rows that a goal compares.
const (
	smallTable = 1_000_000
	largeTable = 50_000_000
)

func (b *postgresRun) report(setting report.Setting) *report.Report {
	r := &report.Report{
		Setting: setting,
		Notes:   []string{"PostgreSQL: " + b.database + "; on the same machine, over Unix sockets"},
		Text: "CPU is user and system time, divided by the readings that were answered as stored; that of PostgreSQL includes its standbys, and its work in the background during the load. " +
			"Load generator, servers and databases share the processors. Ratios are computed within a round. " + rounded + " Latency is that of a request, from the actual time of sending.",
		Tables: []*report.Table{b.result},
		Goals: b.result.Goals(
			report.Bar{What: "single readings: CPU of server and PostgreSQL / that of " + postgresInsert, Row: postgresSingle, Figure: "cpu", Base: postgresInsert, Limit: 0.15, Format: "%.3f"},
			report.Bar{What: "single readings: CPU of the server / that of one with its own directory", Row: postgresSingle, Figure: "node", Base: postgresOwnDir, Limit: 1.4, Format: "%.3f"},
			report.Bar{What: postgresBatches + ": readings/s", Row: postgresBatches, Figure: "rate", AtLeast: true, Limit: 40_000, Format: "%.0f"},
			report.Bar{What: postgresStandbys + ": readings/s", Row: postgresStandbys, Figure: "rate", AtLeast: true, Limit: 30_000, Format: "%.0f"},
			report.Bar{What: "two servers: readings/s / those of one", Row: postgresNodes, Figure: "rate", Base: postgresBatches, AtLeast: true, Limit: 1, Format: "%.3f"},
			report.Bar{What: "CPU with " + report.Count(largeTable) + " rows / with " + report.Count(smallTable), Row: intoTable(largeTable), Figure: "cpu", Base: intoTable(smallTable), Limit: 1.3, Format: "%.3f"},
		),
	}
	if b.Before != "" {
		r.Goals = b.result.Goals(
			thanEarlier("single readings: CPU of the server", postgresSingle, "node", 1.05),
			thanEarlier("single readings: CPU of PostgreSQL", postgresSingle, "database", 1.05),
			thanEarlier("single readings: log of PostgreSQL", postgresSingle, "log", 1.05),
			thanEarlier("batches: CPU of the server", postgresBatches, "node", 1.05),
			thanEarlier("batches: CPU of PostgreSQL", postgresBatches, "database", 1.05),
			thanEarlier("batches: log of PostgreSQL", postgresBatches, "log", 1.05))
	}
	if b.alerts != nil {
		r.Goals = nil
	}
	if b.wrk != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("Single readings: %s, one thread, %d connections", b.wrk.version, b.Connections))
	}
	r.Notes = append(r.Notes,
		fmt.Sprintf("Batches: %d readings, each of another device, over %d connections, each of which sends the next batch after the answer", batchReadings, senders),
		fmt.Sprintf("Rounds: %d, in each of which servers and databases are new, warmed up for %v and loaded for %v; only tables with rows are made once, and get %s readings in each round, one after the other",
			b.Rounds, b.WarmUp, b.duration(), report.Count(b.Readings)),
		fmt.Sprintf("Load: %d devices; every reading is new; the number of rows is checked afterwards", loadDevices),
		"Data: on "+fileSystem(b.work))
	return r
}

// A cluster is what is measured: servers, and the databases that they use.
type cluster struct {
	nodes     []*process
	databases []*database // the primary first; empty means none
	remove    func() error
}

// startCluster starts a primary with standbys in a new directory, and servers on it.
func (b *postgresRun) startCluster(ctx context.Context, nodes, standbys int, more ...string) (_ *cluster, err error) {
	c, err := b.startDatabases(ctx, standbys)
	if err != nil {
		return nil, err
	}
	for n := range nodes {
		flags := append([]string{"--store=" + c.databases[0].dsn}, more...)
		if standbys == 0 {
			flags = append(flags, "--postgres-single")
		}
		p, err := b.startOwn(ctx, filepath.Join(b.work, fmt.Sprintf("none-%d", n)), nil, flags...)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.nodes = append(c.nodes, p)
	}
	return c, nil
}

func (b *postgresRun) startDatabases(ctx context.Context, standbys int) (_ *cluster, err error) {
	c := &cluster{remove: func() error { return nil }}
	settings := slices.Clone(databaseSettings)
	if standbys > 0 {
		settings = append(settings, "synchronous_standby_names=ANY 1 (s1, s2)")
	}
	primary := ""
	for n := range 1 + standbys {
		dir, remove, err := temporary(b.work)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		removeOthers := c.remove
		c.remove = func() error { return errors.Join(remove(), removeOthers()) }
		var db *database
		if n == 0 {
			primary = dir
			db, err = startPostgres(ctx, dir, settings...)
		} else {
			db, err = startStandby(ctx, primary, dir, fmt.Sprintf("s%d", n), settings...)
		}
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.databases = append(c.databases, db)
	}
	if b.database == "" {
		b.database, err = describePostgres(ctx, c.databases[0])
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

// describePostgres returns the version of a database, and the settings.
func describePostgres(ctx context.Context, db *database) (text string, err error) {
	err = db.query(ctx, "SELECT 'version ' || current_setting('server_version')", &text)
	return text + ", " + strings.Join(databaseSettings, ", "), err
}

// stop stops everything, the servers first.
func (c *cluster) stop() (err error) {
	for _, p := range c.nodes {
		err = errors.Join(err, p.stop())
	}
	for _, db := range slices.Backward(c.databases) {
		err = errors.Join(err, db.stop())
	}
	return errors.Join(err, c.remove())
}

func (c *cluster) pids() (nodes, databases []int) {
	for _, p := range c.nodes {
		nodes = append(nodes, p.pid())
	}
	for _, db := range c.databases {
		databases = append(databases, db.process.pid())
	}
	return nodes, databases
}

// A cost is what a load takes: its readings, and the time in which they were stored.
type cost struct {
	readings     uint64
	took, loader time.Duration
	p50, p99     time.Duration
}

// costOf is the cost of a load of batches.
func costOf(f *flowed) cost {
	q := f.quantiles(0.5, 0.99)
	return cost{f.batches * batchReadings, f.duration, f.cpu, q[0], q[1]}
}

// measure returns what load costs the cluster.
func (c *cluster) measure(load func() (cost, error)) (report.Figures, error) {
	nodes, databases := c.pids()
	var l cost
	var database time.Duration
	var before uint64
	if len(c.databases) > 0 {
		var err error
		if before, err = c.databases[0].logged(); err != nil {
			return nil, err
		}
	}
	node, err := cpuDuring(nodes, func() (err error) {
		database, err = cpuDuring(databases, func() (err error) {
			l, err = load()
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	f := latency(per(l.readings, l.took, node+database, l.loader), l.p50, l.p99)
	if len(c.databases) > 0 {
		logged, err := c.databases[0].logged()
		if err != nil {
			return nil, err
		}
		f["log"] = float64(logged-before) / float64(l.readings)
	}
	f["node"], f["database"] = report.Micros(node)/float64(l.readings), report.Micros(database)/float64(l.readings)
	return f, nil
}

// ownTable is Pulsegate's table.
const ownTable = "pulsegate.readings"

// checkRows checks that a table has the acknowledged rows, and at most those in flight more.
func (c *cluster) checkRows(ctx context.Context, table string, acknowledged, inFlight uint64) error {
	rows, err := c.databases[0].count(ctx, table)
	if err == nil && (rows < acknowledged || rows > acknowledged+inFlight) {
		err = fmt.Errorf("%d readings were answered as stored, and there are %d, with at most %d unanswered", acknowledged, rows, inFlight)
	}
	return err
}

// singles measures one reading per request. The order rotates by one in each round.
func (b *postgresRun) singles(ctx context.Context, round int) error {
	all := []struct {
		name, table string
		start       func() (*cluster, error)
	}{
		{postgresInsert, "readings", func() (*cluster, error) {
			c, err := b.startDatabases(ctx, 0)
			if err != nil {
				return nil, err
			}
			p, err := b.startPeer(ctx, "ginpg", "-dsn", c.databases[0].dsn)
			if err != nil {
				return nil, errors.Join(err, c.stop())
			}
			c.nodes = []*process{p}
			return c, nil
		}},
		{postgresOwnDir, "", func() (*cluster, error) {
			dir, remove, err := temporary(b.work)
			if err != nil {
				return nil, err
			}
			p, err := b.startOwn(ctx, filepath.Join(dir, "data"), nil)
			if err != nil {
				return nil, errors.Join(err, remove())
			}
			return &cluster{nodes: []*process{p}, remove: remove}, nil
		}},
		{postgresSingle, ownTable, func() (*cluster, error) { return b.startCluster(ctx, 1, 0) }},
	}
	for i := range all {
		one := all[(i+round)%len(all)]
		c, err := one.start()
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		f, err := b.single(ctx, c, one.table)
		if err = errors.Join(err, c.stop()); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		b.result.Add(b.out, round, one.name, "", f)
	}
	return nil
}

// single measures one reading per request on a new server.
func (b *postgresRun) single(ctx context.Context, c *cluster, table string) (report.Figures, error) {
	addr := c.nodes[0].public
	if err := verify(ctx, addr, nil); err != nil {
		return nil, err
	}
	base := time.Now().Add(-baseAge)
	var warm, l load
	if b.WarmUp > 0 {
		var err error
		warm, err = b.wrk.run(ctx, addr, b.Connections, b.WarmUp, base.UnixMilli())
		if err = errors.Join(err, warm.check()); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	f, err := c.measure(func() (_ cost, err error) {
		l, err = b.wrk.run(ctx, addr, b.Connections, b.duration(), base.Add(baseStep).UnixMilli())
		return cost{l.requests, l.duration, l.cpu, l.p50, l.p99}, errors.Join(err, l.check())
	})
	if err == nil && table != "" {
		err = c.checkRows(ctx, table, 1+warm.requests+l.requests, 2*uint64(b.Connections)) // wrk does not wait for the last answers
	}
	return f, err
}

// batches measures batches. The order rotates by one in each round.
func (b *postgresRun) batches(ctx context.Context, round int) error {
	type measured struct {
		name            string
		nodes, standbys int
		flags           []string
	}
	all := []measured{
		{postgresBatches, 1, 0, nil},
		{postgresStandbys, 1, 2, nil},
		{postgresNodes, 2, 0, nil},
	}
	if b.alerts != nil {
		all = append(all[2:], measured{postgresAlerts, 2, 0, b.alerts})
	}
	for i := range all {
		one := all[(i+round)%len(all)]
		c, err := b.startCluster(ctx, one.nodes, one.standbys, one.flags...)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		f, err := b.bulk(ctx, c)
		if err = errors.Join(err, c.stop()); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		b.result.Add(b.out, round, one.name, "", f)
	}
	return nil
}

// beside measures single readings and batches, with this pulsegate and with the earlier one. Which is first changes with each round.
func (b *postgresRun) beside(ctx context.Context, round int) error {
	old := *b.postgresCommand
	old.Programs = b.Before
	for i := range 4 {
		run, suffix := *b, ""
		if (i+round)%2 == 0 {
			run.postgresCommand, suffix = &old, earlier
		}
		name, load := postgresSingle, func(c *cluster) (report.Figures, error) { return run.single(ctx, c, ownTable) }
		if i >= 2 {
			name, load = postgresBatches, func(c *cluster) (report.Figures, error) { return run.bulk(ctx, c) }
		}
		c, err := run.startCluster(ctx, 1, 0)
		if err != nil {
			return fmt.Errorf("%s%s: %w", name, suffix, err)
		}
		f, err := load(c)
		if err = errors.Join(err, c.stop()); err != nil {
			return fmt.Errorf("%s%s: %w", name, suffix, err)
		}
		b.database = run.database
		b.result.Add(b.out, round, name+suffix, "", f)
	}
	return nil
}

// bulk measures batches on new servers, among which the senders are divided.
func (b *postgresRun) bulk(ctx context.Context, c *cluster) (report.Figures, error) {
	base := time.Now().Add(-baseAge)
	var warm, p flowed
	if b.WarmUp > 0 {
		var err error
		if warm, err = postAll(ctx, c.nodes, base, b.WarmUp); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	f, err := c.measure(func() (_ cost, err error) {
		if p, err = postAll(ctx, c.nodes, base.Add(baseStep), b.duration()); err != nil {
			return cost{}, err
		}
		return costOf(&p), nil
	})
	if err == nil {
		err = c.checkRows(ctx, ownTable, (warm.batches+p.batches)*batchReadings, 0)
	}
	return f, err
}

// postAll sends batches to servers for d. Each sender sends to one of them.
func postAll(ctx context.Context, nodes []*process, base time.Time, d time.Duration) (flowed, error) {
	var all []feed
	for i := range senders {
		addr := nodes[i%len(nodes)].public
		all = append(all, feed{addr, plain(addr, form{array: true}, i, base)})
	}
	return post(ctx, all, d, isBatchAnswer)
}

// A table is one with rows, and the load that adds to it.
type table struct {
	*cluster
	name   string
	load   *flow
	stored uint64 // batches
}

// tables measures batches into tables of each number of rows, in turn.
func (b *postgresRun) tables(ctx context.Context) (err error) {
	var all []*table
	defer func() {
		for _, t := range all {
			err = errors.Join(err, t.stop())
		}
	}()
	for _, rows := range b.Rows {
		t, err := b.fill(ctx, rows)
		if t != nil {
			all = append(all, t)
		}
		if err != nil {
			return err
		}
	}
	for round := range b.Rounds {
		for i := range all {
			t := all[(i+round)%len(all)]
			f, err := t.measure(func() (cost, error) {
				load, err := t.load.run(ctx, b.Readings/batchReadings)
				if err != nil {
					return cost{}, err
				}
				t.stored += load.batches
				return costOf(&load), nil
			})
			if err != nil {
				return err
			}
			b.result.Add(b.out, round, t.name, "", f)
		}
	}
	for _, t := range all {
		if err := t.checkRows(ctx, ownTable, t.stored*batchReadings, 0); err != nil {
			return err
		}
	}
	return nil
}

// fill starts a server and a database with this many rows, which COPY adds: readings of the
// wearers whose next ones are measured. It returns what it has started also with an error.
func (b *postgresRun) fill(ctx context.Context, rows int) (*table, error) {
	c, err := b.startCluster(ctx, 1, 0)
	if err != nil {
		return nil, err
	}
	viaServer := openOwn(c.nodes[0].public)
	t := &table{c, intoTable(rows), newFlow(loadDevices, 2, senders, startWithin(rows+(b.Rounds+1)*b.Readings), viaServer), 0}
	// The server creates the partition and registers the devices.
	load, err := t.load.run(ctx, loadDevices/batchReadings)
	if err != nil {
		return t, err
	}
	t.stored = load.batches
	began := time.Now()
	t.load.open = openCopy(c.databases[0], ownTable+" (device, time_ms, received_ms, sys, dia, spo2, hr, rhr, gateway, had)", ",0")
	load, err = t.load.run(ctx, max(0, rows/batchReadings-int(t.stored)))
	if err != nil {
		return t, fmt.Errorf("copy rows: %w", err)
	}
	t.stored += load.batches
	t.load.open = viaServer
	fmt.Fprintf(b.out, "copied %d rows in %v\n", load.batches*batchReadings, time.Since(began).Round(time.Second))
	return t, c.databases[0].execute(ctx, "VACUUM ANALYZE "+ownTable, "CHECKPOINT")
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
