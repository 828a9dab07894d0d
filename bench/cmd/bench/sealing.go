package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/bench/report"
	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// sealingCommand loads a server that seals readings all the time, and notes whether sealing and autovacuum keep up.
type sealingCommand struct {
	loads
	For       time.Duration `default:"1h" help:"Duration of the load."`
	Senders   int           `default:"5" help:"Connections, each of which sends a reading of each of its 1,000 devices every second."`
	SealAfter time.Duration `default:"1m" help:"Setting of the server, which visits each device every eight times as long."`
	Every     time.Duration `default:"5m" help:"Time between two rows of the table."`
}

func (c *sealingCommand) Run(ctx context.Context, out io.Writer) error {
	if _, err := pgtest.Programs(); err != nil {
		return err
	}
	return c.with(ctx, out, c.measure, report.Own)
}

func (c *sealingCommand) measure(ctx context.Context) (err error) {
	s, err := c.start(ctx, &contestant{name: "sealing", postgres: true, settings: databaseSettings, flags: []string{"--seal-after=" + c.SealAfter.String()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	table := &report.Table{Head: "after", Columns: []report.Column{
		{Title: "readings/s", Figure: "rate", Format: "%.0f", Show: report.Median},
		{Title: "answer, median, ms", Figure: "p50", Format: "%.0f", Show: report.Median},
		{Title: "99 %, ms", Figure: "p99", Format: "%.0f", Show: report.Median},
		{Title: "rows, MB", Figure: "rows", Format: "%.0f", Show: report.Median},
		{Title: "dead rows, millions", Figure: "dead", Format: "%.2f", Show: report.Median},
		{Title: "vacuums", Figure: "vacuums", Format: "%.0f", Show: report.Median},
		{Title: "segments, MB", Figure: "segments", Format: "%.0f", Show: report.Median},
		{Title: "sealed, millions", Figure: "sealed", Format: "%.2f", Show: report.Median},
		{Title: "bytes a sealed reading", Figure: "each", Format: "%.1f", Show: report.Median},
		{Title: "lag, s", Figure: "lag", Format: "%.0f", Show: report.Median},
		{Title: "CPU of PostgreSQL, µs a reading", Figure: "database", Format: "%.1f", Show: report.Median},
		{Title: "log, bytes a reading", Figure: "log", Format: "%.0f", Show: report.Median},
	}}
	batches := make([]*batch, c.Senders)
	for i := range batches {
		batches[i] = newBatch(form{array: true}, i)
	}
	stored, began := s.verified, time.Now()
	for at := c.Every; at <= c.For; at += c.Every {
		m, err := s.meter()
		if err != nil {
			return err
		}
		load, err := c.load(ctx, s, batches, began.Add(at-c.Every))
		if err != nil {
			return fmt.Errorf("%w: %s", err, s.nodes[0].text())
		}
		stored += load.batches * batchReadings
		load.duration = c.Every // what follows the last batch is a pause
		f, err := m.since(load.cost(batchReadings))
		if err == nil {
			err = sizes(ctx, s, f)
		}
		if err != nil {
			return err
		}
		table.Add(c.out, 0, at.String(), "", f)
	}
	if err := s.nodes[0].stop(); err != nil {
		return err
	}
	var kept uint64
	if err := s.databases[0].query(ctx, "SELECT (SELECT count(*) FROM pulsegate.readings) + (SELECT coalesce(sum(n), 0) FROM pulsegate.segments)", &kept); err != nil {
		return err
	}
	if kept != stored {
		return fmt.Errorf("%d readings were acknowledged, and there are %d", stored, kept)
	}
	r := c.reportOf(fmt.Sprintf("make bench-sealing MINUTES=%.0f", c.For.Minutes()), "Rows and segments are with their indexes. Rates, answers, CPU and log are those since the row before.",
		describePostgres()+"; all else, autovacuum too, by default",
		fmt.Sprintf("Load: %d devices with a reading a second of five signs, in batches of %d, sent when they are due", c.Senders*batchReadings, batchReadings),
		fmt.Sprintf("Sealing: `--seal-after %v`, so that each device is visited every %v", c.SealAfter, 8*c.SealAfter),
		fmt.Sprintf("At the end there were the %s readings that were acknowledged, each once", report.Count(int(stored))))
	r.Tables = []*report.Table{table}
	return c.write("sealing", r)
}

// load sends the batches of each second of c.Every, which are due from began, however long the answers take.
func (c *sealingCommand) load(ctx context.Context, s *cluster, batches []*batch, began time.Time) (flowed, error) {
	return inParallel(ctx, len(batches), func(ctx context.Context, i int, start time.Time, p *flowed) error {
		to, err := openOwn(s.nodes[0].public, "")(ctx)
		if err != nil {
			return err
		}
		defer to.close()
		at := began.Add(time.Duration(i) * time.Second / time.Duration(len(batches)))
		for end := at.Add(c.Every); at.Before(end); at = at.Add(time.Second) {
			if err := sleep(ctx, time.Until(at)); err != nil {
				return err
			}
			batches[i].set(at)
			if err := p.store(ctx, to, start, batches[i].body); err != nil {
				return err
			}
		}
		return nil
	})
}

// sizes adds the sizes of tables to f, and how far sealing lags behind.
func sizes(ctx context.Context, s *cluster, f report.Figures) error {
	metrics, err := scrape(ctx, s.nodes[0].admin)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.databases[0].dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var rows, dead, vacuums, segments, sealed float64
	if err := conn.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::float8, coalesce(sum(n_dead_tup), 0)::float8, coalesce(sum(autovacuum_count), 0)::float8,
		pg_total_relation_size('pulsegate.segments')::float8, (SELECT coalesce(sum(n), 0) FROM pulsegate.segments)::float8
		FROM pg_stat_user_tables WHERE schemaname = 'pulsegate' AND relname ~ '^readings_p'`).Scan(&rows, &dead, &vacuums, &segments, &sealed); err != nil {
		return err
	}
	f["rows"], f["dead"], f["vacuums"], f["segments"], f["sealed"] = rows/1e6, dead/1e6, vacuums, segments/1e6, sealed/1e6
	if sealed > 0 {
		f["each"] = segments / sealed
		f["lag"] = metrics["pulsegate_postgres_seal_lag_seconds"]
	}
	return nil
}
