package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	var servers, slots, numbers []int64
	for k, number := range s.memory.Past().Last {
		servers, slots, numbers = append(servers, k.Server), append(slots, int64(k.Slot)), append(numbers, number)
	}
	_, generation, change := s.marks.known()
	if len(servers) == 0 && change == 0 {
		return nil
	}
	text := func(all []int64) []byte {
		b := []byte("{")
		for i, v := range all {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, v, 10)
		}
		return append(b, '}')
	}
	result := conn.ExecParams(ctx, s.sql.of(`SELECT generation >= $4::bigint AND ($5::bigint = 0 OR EXISTS (SELECT FROM SCHEMA.changes AS c WHERE c.id = $5::bigint)) AND NOT EXISTS (
		SELECT FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS a(server, slot, number) LEFT JOIN SCHEMA.marks AS k USING (server, slot)
		WHERE (k.number < a.number) IS NOT FALSE) FROM SCHEMA.state`),
		[][]byte{text(servers), text(slots), text(numbers), strconv.AppendInt(nil, generation, 10), strconv.AppendInt(nil, change, 10)}, nil, nil, nil).Read()
	state := sqlState(result.Err)
	switch {
	case state == noTable || state == noSchema: // it is from before the table
	case result.Err != nil:
		return fmt.Errorf("check marks: %w", hide(result.Err))
	case len(result.Rows) == 1 && string(result.Rows[0][0]) == "t":
		return nil
	}
	return ErrForgot
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
