package pgstore

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A debt is readings that a repair has left out, because their partition is locked or detached: it does not hold up
// everything else. They are reported as lost, in the transaction that raises the marks, and tried again while the
// server remembers them. The one that stores them ends the report.
type debt struct {
	Loss
	id    int64 // in the table of losses
	noted bool
	paid  bool      // in the present state of the database
	after time.Time // of the next attempt, after one that failed
}

// owe reports readings of a partition as lost until they are stored. It returns the debt as it is if tx is committed.
func (s *repairer) owe(tx pgx.Tx, partition int64, l Loss) (*debt, error) {
	d := debt{Loss: l, id: newID()}
	if before := s.debts[partition]; before != nil {
		d = *before
	}
	d.Loss, d.noted = *d.extend(l.FromUnixMs, l.ToUnixMs), false
	return &d, s.insertLoss(tx, d.id, d.Loss)
}

// noteDebts reports the debts whose transactions were committed.
func (s *repairer) noteDebts() {
	for n, d := range s.debts {
		if !d.noted {
			d.noted = true
			s.noteLoss(&d.Loss)
			s.opt.Log.Error(
				"a repair has left out readings of a time, whose table is locked or detached; they are tried again every minute",
				"from", showTime(n*partitionMs), "to", showTime(endOf(n)))
		}
	}
}

// payDebts stores what repairs have left out, unless its partition was found closed a short while ago. What is not
// remembered any more stays lost.
func (s *repairer) payDebts() {
	if len(s.debts) == 0 {
		return
	}
	closed := s.writer.partitions.closed()
	maps.DeleteFunc(s.debts, func(_ int64, d *debt) bool { return !s.memory.Reaches(d.FromUnixMs) })
	for n, d := range s.debts {
		if d.paid || closed[n] || time.Now().Before(d.after) {
			continue
		}
		switch err := s.pay(n, d); {
		case err == nil && d.paid:
			s.opt.Log.Info("what a repair has left out is stored", "from", showTime(n*partitionMs), "to", showTime(endOf(n)))
		case err != nil:
			d.after = time.Now().Add(closedFor)
			s.opt.Log.Error("what a repair has left out is not stored yet", "from", showTime(n*partitionMs), "to",
				showTime(endOf(n)), "error", hide(err))
		}
	}
}

// pay stores all that is remembered of a partition. What is there already is a duplicate.
func (s *repairer) pay(partition int64, d *debt) error {
	known := s.marks.last().ID // before the removals are read
	removed, err := changelog{s.database}.removals()
	if err != nil {
		return err
	}
	b, begun, whole := &batch{}, false, false
	for e, err := range s.memory.All() {
		if err != nil {
			return err
		}
		if !begun { // All has taken the entries that it returns
			begun, whole = true, s.memory.Reaches(d.FromUnixMs)
		}
		for i := range e.Readings {
			reading := &e.Readings[i]
			if partitionOf(reading.TimeUnixMs) != partition {
				continue
			}
			gone, doubtful := removed.reading(e, reading)
			if whole = whole && !doubtful; !gone {
				b.addReading(e, reading)
				b.untilMs = e.UnixMs
			}
		}
		if len(b.readings) >= batchReadings {
			if stored, err := s.payBatch(b, known, nil); err != nil || !stored {
				return err
			}
			b = &batch{}
		}
	}
	end := d
	if !whole { // some of it has gone, or was perhaps acknowledged after an erasure, and stays lost
		end = nil
	}
	d.paid, err = s.payBatch(b, known, end)
	return err
}

// payBatch stores readings in a transaction with a mark, and ends the report of a debt unless it is nil. It reports
// false if that must wait: something was removed after the change known, which the caller has not read, or the
// partition is closed.
func (s *repairer) payBatch(b *batch, known int64, end *debt) (stored bool, err error) {
	t := s.try()
	k, err := s.marks.take(t)
	if err != nil {
		return false, err
	}
	defer s.marks.release(k)
	var generation int64
	var stale bool
	closed, err := t.runOpen(func(conn *pgx.Conn) error {
		w := s.writer.work(b.readings)
		defer s.writer.release(w)
		k = s.marks.attempt(k)
		r := &repair{repairer: s, conn: conn}
		if err := s.writer.partitions.ensure(conn, w, &sync.Map{}); err != nil {
			return err
		}
		err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			err := r.store(tx, w) // nobody removes anything until tx ends
			if err == nil && s.marks.last().ID != known {
				err = errPrimaryChanged
			}
			if err == nil && end != nil {
				_, err = tx.Exec(context.Background(), s.sql.of("DELETE FROM SCHEMA.losses WHERE id = $1"), end.id)
			}
			if err == nil {
				generation, err = s.marks.set(tx, s.sql, k)
			}
			return err
		})
		if stale = errors.Is(err, errPrimaryChanged); stale {
			return nil // the outcome is known
		}
		if err == nil {
			err = changelog{s.database}.keepUp(conn, generation)
		}
		return err
	})
	if err != nil || closed != nil || stale {
		return false, err
	}
	s.marks.acknowledge(k, generation)
	s.noteStored(b, 0)
	return true, nil
}
