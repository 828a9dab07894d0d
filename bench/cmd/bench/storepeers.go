package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// A keeper is a running server that stores readings.
type keeper struct {
	process  *process
	dir      string // of its data
	leaveOut string // name of a folder in dir that is not counted
	open     func(ctx context.Context) (sink, error)
	finish   func(ctx context.Context) error           // writes what the server has yet to write; nil means it does by itself
	stored   func(ctx context.Context) (uint64, error) // number of readings
	stop     func() error
}

// A peer is a server to compare with.
type peer struct {
	name, what string
	conns      int
	table      bool // a database, whose cost grows with every reading
	start      func(ctx context.Context, c *storeCommand, dir string) (*keeper, error)
}

func peers() []peer {
	return []peer{
		{victoriaMetrics, "InfluxDB lines, one for each reading, with the device and the gateway as labels; no times of receipt; not durable when answered", senders, false, startVictoriaMetrics},
		{"postgres", "a table with the primary key (device, time); a COPY for each batch; default settings; its log is not counted in the bytes on disk", senders, true, startPostgresTable},
	}
}

// startVictoriaMetrics starts a single node on a free loopback port.
func startVictoriaMetrics(ctx context.Context, c *storeCommand, dir string) (*keeper, error) {
	program, err := exec.LookPath(c.VictoriaMetrics)
	if err != nil {
		return nil, errors.New("there is no program victoria-metrics in PATH; install it, or name its path with --victoria-metrics")
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
		return nil, errors.Join(err, p.stop())
	}
	return &keeper{
		process: p, dir: data,
		open: func(ctx context.Context) (sink, error) {
			return openHTTP(ctx, addr, "/write?precision=ms", influxLines{}, http.StatusNoContent, nil)
		},
		stored: func(ctx context.Context) (uint64, error) {
			metrics, err := scrape(ctx, addr)
			// A row of its metrics is a value; a reading has two.
			return uint64(metrics[`vm_rows_inserted_total{type="influx"}`]) / 2, err
		},
		stop: p.stop,
	}, nil
}

// awaitOK waits until a GET of url is answered with 200.
func (p *process) awaitOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*startTimeout)
	defer cancel()
	client := &http.Client{Timeout: answerTimeout}
	defer client.CloseIdleConnections()
	for {
		if r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil); err != nil {
			return fmt.Errorf("wait for server: %w", err)
		} else if resp, err := client.Do(r); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.ended:
			return fmt.Errorf("wait for server: it ended: %s", p.text())
		case <-ctx.Done():
			return fmt.Errorf("wait for server: %w: %s", ctx.Err(), p.text())
		}
	}
}

// postgresSink copies batches into a table.
type postgresSink struct {
	csvRows
	conn *pgx.Conn
	copy string
}

// openCopy returns how to connect to a database to copy rows into a table.
func openCopy(db *database, table string, rows csvRows) func(context.Context) (sink, error) {
	return func(ctx context.Context) (sink, error) {
		conn, err := pgx.Connect(ctx, db.dsn)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		return &postgresSink{rows, conn, "COPY " + table + " FROM STDIN (FORMAT csv)"}, nil
	}
}

// startPostgresTable starts PostgreSQL with an empty table.
func startPostgresTable(ctx context.Context, c *storeCommand, dir string) (*keeper, error) {
	db, err := startPostgres(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := db.execute(ctx, createReadings); err != nil {
		return nil, errors.Join(err, db.stop())
	}
	return &keeper{
		process: db.process, dir: filepath.Join(dir, "data"), leaveOut: "pg_wal",
		open: openCopy(db, "readings", ""),
		finish: func(ctx context.Context) error {
			return db.execute(ctx, "VACUUM readings", "CHECKPOINT")
		},
		stored: db.stored,
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

// diskBytes returns the disk space of the files below dir, without the folder leaveOut.
func diskBytes(dir, leaveOut string) (total uint64, err error) {
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == leaveOut {
			return filepath.SkipDir
		}
		if err == nil && d.Type().IsRegular() {
			var n uint64
			n, err = allocatedBytes(path)
			total += n
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // the server has removed it since it was listed
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure disk space: %w", err)
	}
	return total, nil
}
