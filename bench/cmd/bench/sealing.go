package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
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

func (c *sealingCommand) Run(ctx context.Context, out io.Writer) (err error) {
	if _, err := pgtest.Programs(); err != nil {
		return err
	}
	setting := report.Here(fmt.Sprintf("make bench-sealing MINUTES=%.0f", c.For.Minutes()))
	work, remove, err := c.prepare(ctx, report.Own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	dir, removeData, err := temporary(work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeData()) }()
	db, err := startPostgres(ctx, dir, databaseSettings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	server, err := c.startOwn(ctx, filepath.Join(work, "none"), nil, "--store="+db.dsn, "--postgres-single", "--seal-after="+c.SealAfter.String())
	if err != nil {
		return err
	}
	running := true
	defer func() {
		if running {
			err = errors.Join(err, server.stop())
		}
	}()
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
		{Title: "CPU of PostgreSQL, µs a reading", Figure: "cpu", Format: "%.1f", Show: report.Median},
		{Title: "log, bytes a reading", Figure: "log", Format: "%.0f", Show: report.Median},
	}}
	m := &sealingRun{db: db, server: server}
	if err := m.load(ctx, c, func(at time.Duration, f report.Figures) {
		table.Add(out, 0, at.String(), "", f)
	}); err != nil {
		return err
	}
	running = false
	if err := server.stop(); err != nil {
		return err
	}
	var stored uint64
	if err := db.query(ctx, "SELECT (SELECT count(*) FROM pulsegate.readings) + (SELECT coalesce(sum(n), 0) FROM pulsegate.segments)", &stored); err != nil {
		return err
	}
	if stored != m.batches*batchReadings {
		return fmt.Errorf("%d readings were acknowledged, and there are %d", m.batches*batchReadings, stored)
	}
	described, err := describePostgres(ctx, db)
	if err != nil {
		return err
	}
	r := &report.Report{
		Setting: setting,
		Notes: []string{
			"PostgreSQL: " + described + "; all else, autovacuum too, by default",
			fmt.Sprintf("Load: %d devices with a reading a second of five signs, in batches of %d, sent when they are due", c.Senders*batchReadings, batchReadings),
			fmt.Sprintf("Sealing: `--seal-after %v`, so that each device is visited every %v", c.SealAfter, 8*c.SealAfter),
			fmt.Sprintf("At the end there were the %s readings that were acknowledged, each once", report.Count(int(stored))),
			"Data: on " + fileSystem(work),
			fmt.Sprintf("Connections that broke before an answer, whose batch was sent again: %d", m.broken),
		},
		Text:   "Rows and segments are with their indexes. Rates, answers, CPU and log are those since the row before.",
		Tables: []*report.Table{table},
	}
	return c.write(out, "bench-sealing", r.Markdown())
}

// A sealingRun is a load, and what it has caused so far.
type sealingRun struct {
	db     *database
	server *process

	mu      sync.Mutex // guards the following fields
	batches uint64     // acknowledged
	broken  int        // connections that broke before an answer
	took    []time.Duration
}

// load sends readings, and calls note with what is measured from time to time.
func (m *sealingRun) load(ctx context.Context, c *sealingCommand, note func(at time.Duration, f report.Figures)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	failed := make(chan error, c.Senders)
	for i := range c.Senders {
		all.Go(func() {
			if err := m.send(ctx, i, began.Add(time.Duration(i)*time.Second/time.Duration(c.Senders)), c.For); err != nil {
				failed <- err
			}
		})
	}
	defer all.Wait()
	defer cancel()
	before, err := m.total(ctx)
	if err != nil {
		return err
	}
	for at := c.Every; at <= c.For; at += c.Every {
		select {
		case <-time.After(time.Until(began.Add(at))):
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := m.total(ctx)
		if err != nil {
			return err
		}
		f, err := m.sizes(ctx)
		if err != nil {
			return err
		}
		m.mu.Lock()
		n := float64(now.readings - before.readings)
		slices.Sort(m.took)
		if len(m.took) > 0 {
			f["p50"], f["p99"] = report.Millis(m.took[len(m.took)/2]), report.Millis(m.took[len(m.took)*99/100])
		}
		m.took = m.took[:0]
		m.mu.Unlock()
		f["rate"] = n / c.Every.Seconds()
		f["cpu"], f["log"] = report.Micros(now.cpu-before.cpu)/n, float64(now.logged-before.logged)/n
		before = now
		note(at, f)
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// send sends a batch each second, however long the answers take, and repeats those that are not accepted.
func (m *sealingRun) send(ctx context.Context, number int, began time.Time, length time.Duration) error {
	f := form{array: true}
	b := newBatch(f, number)
	head := f.head(m.server.public, len(b.body))
	c, err := connect(ctx, m.server.public)
	if err != nil {
		return err
	}
	defer func() { c.close() }()
	for at := began; at.Before(began.Add(length)); at = at.Add(time.Second) {
		if err := sleep(ctx, time.Until(at)); err != nil {
			return nil
		}
		b.set(at)
		for sent := time.Now(); ; {
			resp, err := c.exchange(ctx, answerTimeout, head, b.body)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil { // the machine may be so busy that an answer takes too long
				m.mu.Lock()
				m.broken++
				m.mu.Unlock()
				c.close()
				if err := sleep(ctx, time.Second); err != nil {
					return nil
				}
				again, connectErr := connect(ctx, m.server.public)
				if connectErr != nil {
					return errors.Join(err, connectErr, errors.New(m.server.text()))
				}
				c = again
				continue
			}
			if resp.StatusCode == http.StatusOK {
				m.mu.Lock()
				m.batches++
				m.took = append(m.took, time.Since(sent))
				m.mu.Unlock()
				break
			}
			if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusTooManyRequests {
				return fmt.Errorf("status %d, body %.1000q", resp.StatusCode, c.body.Bytes())
			}
			if err := sleep(ctx, time.Second); err != nil {
				return nil
			}
		}
	}
	return nil
}

// A total is what a load has cost so far.
type total struct {
	readings, logged uint64
	cpu              time.Duration
}

func (m *sealingRun) total(ctx context.Context) (t total, err error) {
	m.mu.Lock()
	t.readings = m.batches * batchReadings
	m.mu.Unlock()
	if t.cpu, err = cpuTime(m.db.process.pid()); err != nil {
		return t, err
	}
	t.logged, err = m.db.logged()
	return t, err
}

// sizes returns the sizes of tables, and how far sealing lags behind.
func (m *sealingRun) sizes(ctx context.Context) (report.Figures, error) {
	metrics, err := scrape(ctx, m.server.admin)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, m.db.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var rows, dead, vacuums, segments, sealed float64
	if err := conn.QueryRow(ctx, `SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::float8, coalesce(sum(n_dead_tup), 0)::float8, coalesce(sum(autovacuum_count), 0)::float8,
		pg_total_relation_size('pulsegate.segments')::float8, (SELECT coalesce(sum(n), 0) FROM pulsegate.segments)::float8
		FROM pg_stat_user_tables WHERE schemaname = 'pulsegate' AND relname ~ '^readings_p'`).Scan(&rows, &dead, &vacuums, &segments, &sealed); err != nil {
		return nil, err
	}
	f := report.Figures{"rows": rows / 1e6, "dead": dead / 1e6, "vacuums": vacuums, "segments": segments / 1e6, "sealed": sealed / 1e6}
	if sealed > 0 {
		f["each"] = segments / sealed
		f["lag"] = metrics["pulsegate_postgres_seal_lag_seconds"]
	}
	return f, nil
}
