package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/pgtest"
)

// A database is a temporary PostgreSQL: a new cluster, with default settings unless told
// otherwise, in a directory that only its user may access, with a Unix socket in that
// directory.
type database struct {
	process *process
	dsn     string
}

const databaseUser = "bench"

// startPostgres creates a cluster in dir and starts it. PostgreSQL refuses to run as
// root; root runs it as the user postgres or nobody.
func startPostgres(ctx context.Context, dir string, settings ...string) (_ *database, err error) {
	return createPostgres(ctx, dir, settings, "initdb", "-U", databaseUser, "--auth=trust", "--encoding=UTF8",
		"--locale=C", "--no-sync")
}

// startStandby creates a standby of a primary in dir, and starts it. name is its name in
// synchronous_standby_names.
func startStandby(ctx context.Context, primary *database, dir, name string, settings ...string) (*database, error) {
	source := primary.dsn + " application_name=" + name
	return createPostgres(ctx, dir, append(settings, "primary_conninfo="+source), "pg_basebackup", "-d", source, "-R",
		"--checkpoint=fast", "--no-sync")
}

// createPostgres creates a data directory in dir with a program of PostgreSQL, and starts
// a server on it.
func createPostgres(ctx context.Context, dir string, settings []string, program string, args ...string) (_ *database,
	err error) {
	programs, err := pgtest.Programs()
	if err != nil {
		return nil, err
	}
	attr, err := pgtest.Unprivileged(dir)
	if err != nil {
		return nil, err
	}
	// PostgreSQL's user needs to search the parent directory, which is ours.
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*startTimeout)
	defer cancel()
	data := filepath.Join(dir, "data")
	create := exec.CommandContext(ctx, filepath.Join(programs, program), append(args, "-D", data)...)
	create.Dir, create.SysProcAttr = dir, attr
	if text, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("create database: %w\n%s", err, text)
	}
	server := exec.Command(filepath.Join(programs, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=")
	for _, setting := range settings {
		server.Args = append(server.Args, "-c", setting)
	}
	server.Dir, server.SysProcAttr = dir, attr
	p, err := start(ctx, server)
	if err != nil {
		return nil, err
	}
	db := &database{process: p, dsn: "host=" + dir + " user=" + databaseUser + " dbname=postgres"}
	return db, p.await(ctx, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, db.dsn)
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	})
}

// countTimeout bounds the time to count the rows, of which there may be many millions.
const countTimeout = 5 * time.Minute

// count returns the number of rows of a table.
func (db *database) count(ctx context.Context, table string) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	err = db.query(ctx, "SELECT count(*) FROM "+table, &n)
	return n, err
}

// logged returns the number of bytes of the log so far.
func (db *database) logged() (n uint64, err error) {
	err = db.query(context.Background(), "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint", &n)
	return n, err
}

// query executes a query that returns one value.
func (db *database) query(ctx context.Context, sql string, value any) error {
	conn, err := pgx.Connect(ctx, db.dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, sql).Scan(value); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// execute executes statements, each in a transaction of its own.
func (db *database) execute(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, db.dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("execute %s: %w", statement, err)
		}
	}
	return nil
}

// stop stops the database with a fast shutdown, which does not wait for clients.
func (db *database) stop() error { return db.process.stopBy(syscall.SIGINT) }
