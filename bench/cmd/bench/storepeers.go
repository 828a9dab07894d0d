package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// A peer is a server to compare with.
type peer struct {
	name, what string
	table      bool // a database, whose cost grows with every reading
	start      func(ctx context.Context, dir string) (*keeper, error)
}

func (c *storeCommand) peers() []peer {
	return []peer{
		{victoriaMetrics,
			"InfluxDB lines, one for each reading, with the device and the gateway as labels; no times of receipt; not " +
				"durable when answered", false, c.startVictoriaMetrics},
		{"postgres",
			"a table with the primary key (device, time); a COPY for each batch; default settings; its log is not counted in " +
				"the bytes on disk", true, startPostgresTable},
	}
}

// startVictoriaMetrics starts a single node on a free loopback port.
func (c *storeCommand) startVictoriaMetrics(ctx context.Context, dir string) (*keeper, error) {
	program, err := exec.LookPath(c.VictoriaMetrics)
	if err != nil {
		return nil,
			errors.New("there is no program victoria-metrics in PATH; install it, or name its path with --victoria-metrics")
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	p, err := start(ctx, exec.Command(program, "-storageDataPath="+data, "-httpListenAddr="+addr, "-retentionPeriod=100y"))
	if err != nil {
		return nil, err
	}
	if err := p.awaitOK(ctx, "http://"+addr+"/health"); err != nil {
		return nil, err
	}
	return &keeper{
		process: p, dir: data,
		outlet: outlet{
			openHTTP(addr, "/write?precision=ms", "", func(status int, _ []byte) bool { return status == http.StatusNoContent }),
			influxLines,
		},
		stored: func(ctx context.Context) (uint64, error) {
			metrics, err := scrape(ctx, addr)
			// A row of its metrics is a value; a reading has two.
			return uint64(metrics[`vm_rows_inserted_total{type="influx"}`]) / 2, err
		},
		stop: p.stop,
	}, nil
}

// postgresSink copies batches into a table.
type postgresSink struct {
	conn *pgx.Conn
	copy string
}

// copyOutlet returns an outlet that copies rows, which end with rest, into a table of a database.
func copyOutlet(db *database, table, rest string) outlet {
	return outlet{func(ctx context.Context) (sink, error) {
		conn, err := pgx.Connect(ctx, db.dsn)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		return &postgresSink{conn, "COPY " + table + " FROM STDIN (FORMAT csv)"}, nil
	}, func() encoder { return csvRows(rest) }}
}

// startPostgresTable starts PostgreSQL with an empty table.
func startPostgresTable(ctx context.Context, dir string) (*keeper, error) {
	db, err := startPostgres(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := db.execute(ctx, createReadings); err != nil {
		return nil, errors.Join(err, db.stop())
	}
	return &keeper{
		process: db.process, dir: filepath.Join(dir, "data"), leaveOut: "pg_wal",
		outlet: copyOutlet(db, "readings", ""),
		finish: func(ctx context.Context) error {
			return db.execute(ctx, "VACUUM readings", "CHECKPOINT")
		},
		stored: func(ctx context.Context) (uint64, error) { return db.count(ctx, "readings") },
		stop:   db.stop,
	}, nil
}

func (s *postgresSink) send(ctx context.Context, batch []byte) (time.Duration, error) {
	tag, err := s.conn.PgConn().CopyFrom(ctx, bytes.NewReader(batch), s.copy)
	if err == nil && tag.RowsAffected() != batchReadings {
		err = fmt.Errorf("%d rows copied", tag.RowsAffected())
	}
	return 0, err
}

func (s *postgresSink) close() { s.conn.Close(context.Background()) }
