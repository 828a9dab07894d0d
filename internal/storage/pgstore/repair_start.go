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

// begin begins a run of a memory with a directory: it puts back what earlier runs have acknowledged and the database
// lacks, and sets a mark of this run, which vouches for theirs. As a server that runs does, it first looks for a host
// that has everything.
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

// hasEarlier checks a new connection: the server must accept writes, and have what earlier runs have acknowledged and
// knew.
func (s *repairer) hasEarlier(ctx context.Context, conn *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn); err != nil {
		return err
	}
	_, generation, change := s.marks.known()
	return recall{s.database}.has(ctx, conn, s.memory.Past().Last, generation, change)
}

// start gives this run its identity. If the database knows a later run of the memory's directory, that is a copy of an
// earlier state.
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

// ErrCopied means that another process uses the directory of [Options.RememberDir], or a copy of it.
var ErrCopied = errors.New(
	"another server uses this server's directory of what is remembered, or a copy of it: give each server an empty one " +
		"of its own, and restart this one")

// noticeCopy looks whether another run of the memory's directory goes on: its marks move, and were issued after this
// one had begun. So the directory was copied, with its identity, and each of the two would take what the other one
// acknowledges for its own past. The later run stores nothing from now on; an earlier one goes on.
func (s *repairer) noticeCopy(ctx context.Context) {
	if s.opt.RememberDir == "" || s.memory == nil || s.copied.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	first, last := s.memory.Range()
	all, atMs, err := s.sql.queryMarks(ctx, s.read, "WHERE server BETWEEN $1 AND $2 AND server <> $3", first, last,
		s.marks.server)
	if err != nil {
		return // the next probe reports it
	}
	var other int64 // the earliest other run that goes on
	for k, number := range all {
		// A transaction that an earlier run has given up may be committed late. Clocks of two machines may differ.
		if s.others != nil && number > s.others[k] && atMs[k] > s.begunMs+clockSkewMs && (other == 0 || k.Server < other) {
			other = k.Server
		}
	}
	if s.others == nil {
		s.others = all
	}
	if s.begunMs == 0 {
		s.begunMs = time.Now().UnixMilli()
	}
	switch {
	case other == 0:
	case other < s.marks.server:
		s.copied.Store(true)
		s.opt.Log.Error("nothing is stored any more", "error", ErrCopied, "dir", s.opt.RememberDir)
	default:
		s.others, s.begunMs = all, time.Now().UnixMilli() // it is logged once a minute at most
		s.opt.Log.Error("another server uses a copy of this server's directory of what is remembered, and is refused", "dir",
			s.opt.RememberDir)
	}
}

// latest returns the identity of the latest run of the memory's directory that has a mark, 0 if none has.
func (r *repair) latest(ctx context.Context) (server int64, err error) {
	first, last := r.memory.Range()
	err = r.conn.QueryRow(ctx,
		r.sql.of("SELECT coalesce(max(server), 0) FROM SCHEMA.marks WHERE server BETWEEN $1 AND $2"), first,
		last).Scan(&server)
	return server, err
}
