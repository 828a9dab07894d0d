package pgstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/vitals"
)

// A Loss is when readings or assignments were acknowledged that a database has forgotten and that no server remembers:
// not before the first time, and not after the second one.
type Loss struct{ FromUnixMs, ToUnixMs int64 }

// extend returns the loss of l, which may be nil, and of what was acknowledged between two times.
func (l *Loss) extend(fromUnixMs, toUnixMs int64) *Loss {
	if l == nil {
		return &Loss{fromUnixMs, toUnixMs}
	}
	return &Loss{min(l.FromUnixMs, fromUnixMs), max(l.ToUnixMs, toUnixMs)}
}

// A LossError means that something acknowledged was lost, and no operator has confirmed that.
type LossError struct{ Loss }

func (e *LossError) Error() string {
	return fmt.Sprintf("pgstore: the database has forgotten what was acknowledged from %s to %s, and no server remembers all of it", showTime(e.FromUnixMs), showTime(e.ToUnixMs))
}

// Public returns what anybody may know: when it was acknowledged.
func (e *LossError) Public() string {
	return fmt.Sprintf("acknowledged from %s to %s", showTime(e.FromUnixMs), showTime(e.ToUnixMs))
}

// A MemoryError means that the directory of [Options.RememberDir] lacks something of what the server remembers.
type MemoryError struct{ err error }

func (e *MemoryError) Error() string { return "pgstore: " + e.Public() + ": " + e.err.Error() }

// Public returns what anybody may know.
func (e *MemoryError) Public() string {
	return "the directory of what is remembered cannot be written: a restart would forget it"
}

func showTime(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339) }

// A healer is what operators decide about a database that has forgotten.
type healer struct{ changelog }

// Degraded returns a [*LossError] from the first to the last of all losses that are not confirmed, or nil if there are none. It does not
// block.
func (s *healer) Degraded() error {
	if l := s.lost.Load(); l != nil {
		return &LossError{*l}
	}
	return nil
}

// Memory returns a [*MemoryError] while the directory of what is remembered cannot be written, and otherwise nil. It does not block.
func (s *healer) Memory() error {
	if s.memory != nil {
		if err := s.memory.Trouble(); err != nil {
			return &MemoryError{err}
		}
	}
	return nil
}

// ConfirmLoss ends the reports of all losses between two times, on all servers, and returns the losses.
func (s *healer) ConfirmLoss(ctx context.Context, within Loss) (all []Loss, err error) {
	atMs := time.Now().UnixMilli()
	err = s.decide(ctx, "confirm losses", func(tx pgx.Tx) error {
		all = nil
		rows, err := tx.Query(context.Background(), s.sql.of(`UPDATE SCHEMA.losses SET confirmed_ms = $1
			WHERE (confirmed_ms IS NULL OR confirmed_ms = $1) AND from_ms >= $2 AND to_ms <= $3 RETURNING from_ms, to_ms`), atMs, within.FromUnixMs, within.ToUnixMs)
		if err != nil {
			return err
		}
		var l Loss
		_, err = pgx.ForEachRow(rows, []any{&l.FromUnixMs, &l.ToUnixMs}, func() error { all = append(all, l); return nil })
		return err
	})
	return all, err
}

// AcceptRestore says that the database was restored to an earlier state on purpose. Servers that miss something in it then forget the
// readings and assignments that they remember, in place of sending them again. They repeat erasures in any case.
func (s *healer) AcceptRestore(ctx context.Context) error {
	c := newChange(acceptedRestore, vitals.Name{}, 0, math.MaxInt64)
	return s.decide(ctx, "accept restore", func(tx pgx.Tx) error { return s.insertChange(tx, c) })
}

// LastMark returns when a server has last committed a transaction with a mark, by its clock; 0 if none has.
func (s *healer) LastMark(ctx context.Context) (unixMs int64, err error) {
	err = s.decide(ctx, "read marks", func(tx pgx.Tx) error {
		return tx.QueryRow(context.Background(), s.sql.of("SELECT coalesce(max(at_ms), 0) FROM SCHEMA.marks")).Scan(&unixMs)
	})
	return unixMs, err
}

// decide runs a transaction until its outcome is known.
func (s *healer) decide(ctx context.Context, what string, do func(pgx.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.enter()
	if err == nil {
		defer s.calls.RUnlock()
		err = s.try().run(func(conn *pgx.Conn) error { return pgx.BeginFunc(context.Background(), conn, do) }, nil)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
