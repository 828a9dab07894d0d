package pgstore

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// repeatChanges makes the changes again that the database lacks, in their order.
func (r *repair) repeatChanges() error {
	var ids []int64
	if err := r.step(func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), r.sql.of("SELECT id FROM SCHEMA.changes"))
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	}); err != nil {
		return err
	}
	all := changelog{r.database}.all()
	if err := (changelog{r.database}).decide(all); err != nil {
		return err
	}
	for _, c := range all {
		if slices.Contains(ids, c.ID) {
			continue
		}
		err := repeatAbsent(r, &c)
		if err == nil {
			err = r.repeat(&c)
		}
		if err != nil {
			return fmt.Errorf("repeat a change: %w", err)
		}
	}
	return nil
}

// repeatAbsent erases the assignments of an erasedAbsent that are there now.
func repeatAbsent(r *repair, c *change) error {
	if c.Kind != erasedAbsent {
		return nil
	}
	var all []storage.Assignment
	err := r.step(func(tx pgx.Tx) (err error) {
		all, err = r.remover.subjects.queryAssignments(context.Background(), tx, assignmentsOfSubject, string(c.Subject))
		return err
	})
	for i := 0; i < len(all) && err == nil; i++ {
		if erased, ok := c.of(&all[i]); ok {
			erased.ID = newID()
			err = r.repeat(&erased)
		}
	}
	return err
}

// repeat makes a change again. A repeated erasure removes what was received before it, by the clocks of servers. What
// was received after it, or at the same time, may have been acknowledged after it. Old readings are left to retention,
// which removes them again.
func (r *repair) repeat(c *change) error {
	erases := c.Kind == erasedDevice || c.Kind == erasedAssignment || c.Kind == erasedValues && !c.unknown
	if c.unknown {
		r.opt.Log.Warn("an erasure of a gateway's values is not repeated: erase them again", "device", c.Device)
	}
	if c.Kind == erasedValues && c.Signs&^r.sql.reading.Load().signs != 0 {
		if err := (dictionary{r.database}).renew(context.Background()); err != nil {
			return err
		}
	}
	for more := erases && (c.Kind != erasedValues || !ofSome(c.erasure())); more; {
		if err := r.step(func(tx pgx.Tx) error {
			deleted, _, err := r.sql.removeSome(tx, c.Device.String(), c.FromMs, c.ToMs, c.AtMs-clockSkewMs)
			more = deleted == chunkReadings
			return err
		}); err != nil {
			return err
		}
	}
	var lost *Loss
	err := r.step(func(tx pgx.Tx) (err error) {
		lost = nil
		if err = r.sql.meetSealer(tx); err != nil {
			return err
		}
		if err = r.sql.lock(tx, "SCHEMA.readings IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		if err = r.sees(context.Background(), tx, r.conn.PgConn()); err != nil {
			return err
		}
		var repeated bool // by another server
		if err = tx.QueryRow(context.Background(), r.sql.of("SELECT EXISTS (SELECT FROM SCHEMA.changes WHERE id = $1)"),
			c.ID).Scan(&repeated); err != nil || repeated {
			return err
		}
		if erases {
			if lost, err = r.eraseAgain(tx, c); err != nil {
				return err
			}
		}
		if lost != nil {
			err = r.insertLoss(tx, newID(), *lost)
		}
		if err == nil {
			err = (changelog{r.database}).insertChange(tx, *c)
		}
		if err == nil {
			err = r.events().addGap(tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	r.noteLoss(lost)
	return r.look() // the generation is higher now
}

// eraseAgain removes what an erasure has removed, and returns a loss if some of it may have been acknowledged after the
// erasure.
func (r *repair) eraseAgain(tx pgx.Tx, c *change) (*Loss, error) {
	ctx, device, untilMs := context.Background(), c.Device.String(), c.AtMs+clockSkewMs
	// This server may know that the primary is in a state from before the erasure, whatever the clocks were.
	if c.before != nil {
		marks, _, err := r.sql.queryMarks(ctx, tx, "")
		if err != nil {
			return nil, err
		}
		if !marks.exceed(c.before) {
			untilMs = math.MaxInt64
		}
	}
	if err := c.endErasing(tx, r.sql); err != nil {
		return nil, err
	}
	doubtful := map[int64]int64{} // times of receipt, by time
	if err := r.removeAgain(tx, c, untilMs, func(timeMs, receivedMs int64) {
		if receivedMs > c.AtMs-clockSkewMs {
			doubtful[timeMs] = receivedMs
		}
	}); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, r.sql.of("SELECT FROM SCHEMA.state FOR UPDATE")); err != nil {
		return nil, err
	}
	if _, err := r.remover.deleteEmpty(tx, []string{device}); err != nil {
		return nil, err
	}
	if len(doubtful) == 0 || untilMs == math.MaxInt64 {
		return nil, nil
	}
	// It may also know that it has acknowledged the readings before.
	before, after := map[int64]bool{}, map[int64]bool{} // times of readings that this server has acknowledged then
	for e, err := range r.memory.All() {
		if err != nil {
			return nil, err
		}
		for i := range e.Readings {
			reading := &e.Readings[i]
			if reading.Device != c.Device {
				continue
			}
			if removed, perhaps := c.removes(e, reading.ReceivedUnixMs); removed && !perhaps {
				before[reading.TimeUnixMs] = true
			} else {
				after[reading.TimeUnixMs] = true
			}
		}
	}
	var lost *Loss
	for timeMs, receivedMs := range doubtful {
		if !before[timeMs] || after[timeMs] {
			lost = lost.extend(receivedMs, time.Now().UnixMilli())
		}
	}
	return lost, nil
}

// removeAgain removes what an erasure has removed of what was received until a time, and calls removed with each
// reading.
func (r *repair) removeAgain(tx pgx.Tx, c *change, untilMs int64, removed func(timeMs, receivedMs int64)) error {
	v := valuesRemoval{Erasure: &storage.Erasure{Device: c.Device}, q: r.sql, untilMs: untilMs, removed: removed}
	if c.Kind == erasedValues {
		v.Erasure, v.but = c.erasure(), slices.Collect(maps.Keys(c.kept))
	}
	if err := v.remove(tx, c.FromMs, c.ToMs); err != nil || c.Kind == erasedValues {
		return err
	}
	sql := "DELETE FROM SCHEMA.assignments WHERE device = $1"
	args := []any{c.Device.String()}
	if c.Kind == erasedAssignment { // changes of erasures that found it do not keep the subject
		sql, args = sql+" AND from_ms = $2 AND subject <> '' AND $3 IN ('', subject)",
			append(args, c.FromMs, string(c.Subject))
	}
	_, err := tx.Exec(context.Background(), r.sql.of(sql), args...)
	return err
}

// learn reads the changes of this history.
func (r *repair) learn() error {
	var all []change
	var generation, nowMs int64
	if err := r.step(func(tx pgx.Tx) (err error) {
		all, generation, nowMs, err = changelog{r.database}.queryChanges(context.Background(), tx, 0, 0)
		return err
	}); err != nil {
		return err
	}
	learned := r.marks.learn(all, generation, nowMs)
	r.change = r.marks.last().ID
	keeper{r.database}.keepChanges()
	// One that another server has repeated says nothing about this database.
	if slices.ContainsFunc(learned, func(c change) bool { return c.Kind == acceptedRestore && c.Learned == c.Since }) {
		r.opt.Log.Warn("a restore of the database was accepted: what this server remembers beyond it is given up")
		r.memory.Forget()
		clear(r.debts)
	}
	return nil
}

// recheck reports as lost what this server took for duplicates of readings that a repeated erasure has then removed.
func (s *repairer) recheck(ctx context.Context) {
	repeated := changelog{s.database}.takeRepeated()
	if len(repeated) == 0 || s.memory == nil {
		return
	}
	taken, ok := s.marks.takeAll(ctx) // so the memory has all transactions that were committed before
	if !ok {
		return
	}
	s.marks.releaseAll(taken)
	if err := s.reportRemoved(repeated); err != nil {
		changelog{s.database}.again(repeated)
		s.opt.Log.Error("what a repeated erasure has removed is not reported yet", "error", hide(err))
	}
}

// reportRemoved reports as lost what repeated erasures have removed though it may have been acknowledged after them.
func (s *repairer) reportRemoved(repeated []change) error {
	removed, err := changelog{s.database}.removals()
	if err != nil {
		return err
	}
	var devices, subjects []string
	var times, acknowledged []int64
	suspect := func(e *history.Entry, device *vitals.Name, timeMs int64, subject storage.Subject) {
		devices, subjects, times, acknowledged = append(devices, device.String()), append(subjects, string(subject)),
			append(times, timeMs), append(acknowledged, e.UnixMs)
	}
	for e, err := range s.memory.All() {
		if err != nil {
			return err
		}
		for i := range e.Readings {
			reading := &e.Readings[i]
			if slices.ContainsFunc(repeated, func(c change) bool {
				return c.matches(&reading.Device, reading.TimeUnixMs) && reading.ReceivedUnixMs > c.AtMs-clockSkewMs
			}) {
				if gone, doubtful := removed.reading(e, reading); !gone || doubtful {
					suspect(e, &reading.Device, reading.TimeUnixMs, "")
				}
			}
		}
		if e.Assignments == nil {
			continue
		}
		if a := &e.Assignments[0]; slices.ContainsFunc(repeated, func(c change) bool {
			return c.matchesAssignment(a) &&
				e.UnixMs > c.AtMs-clockSkewMs
		}) {
			if gone, doubtful := removed.assignment(e); !gone || doubtful {
				suspect(e, &a.Device, a.FromUnixMs, a.Subject)
			}
		}
	}
	if len(devices) == 0 {
		return nil
	}
	var lost *Loss
	if err := s.try().run(func(conn *pgx.Conn) error {
		return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			var fromMs, toMs *int64
			if err := s.sees(context.Background(), tx, conn.PgConn()); err != nil {
				return err
			}
			if err := tx.QueryRow(context.Background(), s.sql.of(`SELECT min(k.at_ms), max(k.at_ms)
				FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS k(device, subject, time_ms, at_ms)
				WHERE CASE WHEN k.subject = '' THEN NOT EXISTS (SELECT FROM SCHEMA.all_readings AS r WHERE r.device = k.device AND r.time_ms = k.time_ms
						AND r.stored_from_ms <= k.time_ms AND r.stored_to_ms >= k.time_ms)
					ELSE NOT EXISTS (SELECT FROM SCHEMA.assignments AS a WHERE a.device = k.device AND a.from_ms = k.time_ms AND a.subject = k.subject) END`),
				devices, subjects, times, acknowledged).Scan(&fromMs, &toMs); err != nil || fromMs == nil {
				return err
			}
			lost = &Loss{*fromMs, *toMs}
			return s.insertLoss(tx, newID(), *lost)
		})
	}); err != nil {
		return err
	}
	s.noteLoss(lost)
	return nil
}
