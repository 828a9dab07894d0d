package pgstore

import (
	"context"
	"errors"
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
	return fmt.Sprintf("the database has forgotten what was acknowledged from %s to %s, and no server remembers all of it",
		showTime(e.FromUnixMs), showTime(e.ToUnixMs))
}

// Public returns what anybody may know: when it was acknowledged.
func (e *LossError) Public() string {
	return fmt.Sprintf("acknowledged from %s to %s", showTime(e.FromUnixMs), showTime(e.ToUnixMs))
}

// A MemoryError means that the directory of [Options.RememberDir] lacks something of what the server remembers.
type MemoryError struct{ err error }

func (e *MemoryError) Error() string { return e.Public() + ": " + e.err.Error() }

// Public returns what anybody may know.
func (e *MemoryError) Public() string {
	return "the directory of what is remembered cannot be written: a restart would forget it"
}

func showTime(unixMs int64) string { return time.UnixMilli(unixMs).UTC().Format(time.RFC3339) }

// A healer is what operators decide about a database that has forgotten.
type healer struct{ changelog }

// Degraded returns a [*LossError] from the first to the last of all losses that are not confirmed, or nil if there are
// none. It does not block.
func (s *healer) Degraded() error {
	if l := s.lost.Load(); l != nil {
		return &LossError{*l}
	}
	return nil
}

// Memory returns a [*MemoryError] while the directory of what is remembered cannot be written, and otherwise nil. It
// does not block.
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
			WHERE (confirmed_ms IS NULL OR confirmed_ms = $1) AND from_ms >= $2 AND to_ms <= $3 RETURNING from_ms, to_ms`), atMs,
			within.FromUnixMs, within.ToUnixMs)
		if err != nil {
			return err
		}
		var l Loss
		_, err = pgx.ForEachRow(rows, []any{&l.FromUnixMs, &l.ToUnixMs}, func() error { all = append(all, l); return nil })
		return err
	})
	return all, err
}

// AcceptRestore says that the database was restored to an earlier state on purpose. Servers that miss something in it
// then forget the readings and assignments that they remember, in place of sending them again. They repeat erasures in
// any case.
func (s *healer) AcceptRestore(ctx context.Context) error {
	c := newChange(acceptedRestore, vitals.Name{}, 0, math.MaxInt64)
	return s.decide(ctx, "accept restore",
		func(tx pgx.Tx) error { return errors.Join(s.insertChange(tx, c), s.events().addGap(tx)) })
}

// LastMark returns when a server has last committed a transaction with a mark, by its clock, or by the database's: see
// markedMs; 0 if none has.
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
		err = s.try().run(func(conn *pgx.Conn) error { return pgx.BeginFunc(context.Background(), conn, do) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// reportGone reports as lost what the memory does not have, or not any more.
func (r *repair) reportGone() error {
	to := numbers{}
	var lost *Loss
	_, untilMs := r.memory.Stats() // gone is what was acknowledged before
	if untilMs == 0 {
		untilMs = time.Now().UnixMilli()
	}
	past := r.memory.Past()
	for k, number := range past.Gone {
		if r.have[k] < number {
			fromMs := past.First[k]
			if atMs := r.atMs[k]; atMs <= untilMs { // a later mark has its time from the clock of the database
				fromMs = max(fromMs, atMs)
			}
			to[k] = number
			lost = lost.extend(fromMs, max(untilMs, fromMs))
		}
	}
	if damage := past.Damage; len(damage) > 0 {
		latest, err := r.latest(context.Background())
		if err != nil {
			return err
		}
		for _, d := range damage {
			if latest <= d.Server { // no later run has reported it in this database
				lost = lost.extend(d.FromUnixMs, d.ToUnixMs)
			}
		}
	}
	if u := r.unknown; u != nil && r.needed {
		lost = lost.extend(u.FromUnixMs, u.ToUnixMs)
	}
	if lost == nil {
		return nil
	}
	if err := r.step(func(tx pgx.Tx) error {
		return errors.Join(r.insertLoss(tx, newID(), *lost), r.raise(tx, to, untilMs))
	}); err != nil {
		return err
	}
	r.have.raise(to)
	r.noteLoss(lost)
	return nil
}

// insertLoss reports a loss in a transaction, or more of one that was reported with the same id.
func (s *repairer) insertLoss(tx pgx.Tx, id int64, l Loss) error {
	_, err := tx.Exec(context.Background(),
		s.sql.of(`INSERT INTO SCHEMA.losses AS l (id, from_ms, to_ms, at_ms) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET from_ms = least(l.from_ms, excluded.from_ms), to_ms = greatest(l.to_ms, excluded.to_ms), confirmed_ms = NULL`),
		id, l.FromUnixMs, l.ToUnixMs, time.Now().UnixMilli())
	return err
}

// noteLoss reports a loss, unless it is nil, whose transaction was committed.
func (s *repairer) noteLoss(l *Loss) {
	if l == nil {
		return
	}
	s.opt.Log.Error("the database has forgotten what was acknowledged, and no server remembers all of it",
		"acknowledged_from", time.UnixMilli(l.FromUnixMs).UTC(), "acknowledged_to", time.UnixMilli(l.ToUnixMs).UTC())
	if s.opt.OnLoss != nil {
		s.opt.OnLoss(*l)
	}
	s.counters.losses.Add(1)
}
