package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// beginAttempts bounds the attempts of begin.
const beginAttempts = 5

// begin begins a run of a memory with a directory: it puts back what earlier runs have acknowledged and the database lacks, and sets a mark of this
// run, which vouches for theirs. As a server that runs does, it first looks for a host that has everything.
func (s *repairer) begin(ctx context.Context) error {
	if err := (keeper{s.database}).resume(); err != nil {
		return fmt.Errorf("read what is remembered: %w", err)
	}
	defer s.repairing.Store(nil)
	validate := s.hasEarlier
	for attempt, probe := 1, 1; ; {
		err := s.repair(ctx, true, validate)
		switch {
		case errors.Is(err, ErrForgot):
			if probe++; probe > repairAfter {
				validate = pgconn.ValidateConnectTargetSessionAttrsReadWrite
			}
			select {
			case <-time.After(watchEvery):
			case <-ctx.Done():
				return ctx.Err()
			}
		case err == nil || attempt == beginAttempts || !errors.Is(err, errPrimaryChanged) && fateOf(err) != rolledBack:
			return hide(err)
		default:
			attempt++
		}
	}
}

// hasEarlier checks a new connection: the server must accept writes, and have what earlier runs have acknowledged and knew.
func (s *repairer) hasEarlier(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return err
	}
	_, generation, change := s.marks.known()
	return recall{s.database}.has(ctx, conn, s.memory.Past().Last, generation, change)
}

// start gives this run its identity. If the database knows a later run of the memory's directory, that is a copy of an earlier state.
func (r *repair) start(ctx context.Context) (err error) {
	if r.marks.server == r.memory.Server() { // an earlier attempt has
		return nil
	}
	latest, err := r.latest(ctx)
	if err != nil {
		return err
	}
	untilMs := r.memory.Past().UntilUnixMs
	older := r.memory.Start(latest)
	r.marks.server = r.memory.Server()
	if older {
		r.unknown = &Loss{untilMs, max(untilMs, time.Now().UnixMilli())}
		r.opt.Log.Error("the directory of what is remembered is older than its last run", "dir", r.opt.RememberDir)
	}
	return nil
}

// latest returns the identity of the latest run of the memory's directory that has a mark, 0 if none has.
func (r *repair) latest(ctx context.Context) (server int64, err error) {
	first, last := r.memory.Range()
	err = r.conn.QueryRow(ctx, r.sql.of("SELECT coalesce(max(server), 0) FROM SCHEMA.marks WHERE server BETWEEN $1 AND $2"), first, last).Scan(&server)
	return server, err
}
