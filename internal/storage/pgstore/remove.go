package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// chunkReadings is the number of readings that one transaction of a removal deletes, so that it
// does not block others for long.
const chunkReadings = 5000

// A remover removes readings, and the rows of devices that have none left.
type remover struct {
	*database
	subjects   *subjects
	partitions *partitions
}

// Erase implements [storage.Remover]. Bytes of the readings stay in PostgreSQL's files until they
// are vacuumed, in its log, and in backups.
func (s *remover) Erase(device vitals.Name) (storage.Erasure, error) {
	return s.EraseRecorded(device, func(storage.Erasure) error { return nil })
}

// EraseRecorded is [Store.Erase] for a caller that keeps a record. It calls record after the
// readings are removed. If record returns an error, the erasure is unfinished, and repeating it
// calls record again.
func (s *remover) EraseRecorded(device vitals.Name, record func(storage.Erasure) error) (storage.Erasure, error) {
	e := storage.Erasure{Device: device}
	if err := s.erase(context.Background(), &e, &erasing{id: newID()}, record); err != nil {
		return e, fmt.Errorf("erase device %s: %w", device, err)
	}
	return e, nil
}

// EraseAssignment implements [storage.Remover]. Bytes stay as after [Store.Erase].
func (s *remover) EraseAssignment(a storage.Assignment) (storage.Erasure, error) {
	return s.EraseAssignmentRecorded(a, func(storage.Erasure) error { return nil })
}

// EraseAssignmentRecorded is [Store.EraseAssignment] for a caller that keeps a record, as
// [Store.EraseRecorded] is for one of devices.
func (s *remover) EraseAssignmentRecorded(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure,
	error) {
	e, err := s.eraseAssignment(a, record)
	if errors.Is(err, storage.ErrNotAssigned) {
		if failed := (changelog{s.database}).recordAbsent(erasedAbsent, &a); failed != nil {
			return e, fmt.Errorf("erase assignment of device %s: %w", a.Device, failed)
		}
		return s.eraseAssignment(a, record) // it may have come back before it was recorded
	}
	return e, err
}

func (s *remover) eraseAssignment(a storage.Assignment, record func(storage.Erasure) error) (storage.Erasure, error) {
	e := storage.Erasure{Device: a.Device, Subject: a.Subject, FromUnixMs: a.FromUnixMs}
	if a.Subject == "" { // without a subject, e would be an erasure of the device
		return e, fmt.Errorf("erase assignment of device %s: %w", a.Device, storage.ErrNotAssigned)
	}
	if err := s.erase(context.Background(), &e, &erasing{id: newID()}, record); err != nil {
		return e, fmt.Errorf("erase assignment of device %s: %w", a.Device, err)
	}
	return e, nil
}

// findErased returns ErrNotFound or ErrNotAssigned if nothing is there that e could erase, and nothing of it is left to
// be finished. Otherwise it sets the end of an assignment.
func findErased(conn *pgx.Conn, q *statements, e *storage.Erasure) error {
	ctx, device := context.Background(), e.Device.String()
	if e.Subject != "" {
		err := conn.QueryRow(ctx,
			q.of("SELECT to_ms FROM SCHEMA.assignments WHERE device = $1 AND from_ms = $2 AND subject = $3"), device,
			e.FromUnixMs, string(e.Subject)).Scan(&e.ToUnixMs)
		if errors.Is(err, pgx.ErrNoRows) {
			err = storage.ErrNotAssigned
		}
		return err
	}
	var known bool
	err := conn.QueryRow(ctx, q.of(`SELECT EXISTS (SELECT FROM SCHEMA.devices WHERE device = $1)
		OR NOT $2 AND EXISTS (SELECT FROM SCHEMA.assignments WHERE device = $1)
		OR EXISTS (SELECT FROM SCHEMA.readings WHERE device = $1)
		OR EXISTS (SELECT FROM SCHEMA.erasing WHERE device = $1)`), device, e.OfValues()).Scan(&known)
	if err == nil && !known {
		err = storage.ErrNotFound
	}
	return err
}

// erase removes what e says, which find completes: all but the last chunk of readings while groups
// are stored, and the rest, with the rows of the device and of assignments, while none is. These
// rows stay until record has returned, so that repeating an erasure that was not recorded finds
// them. r is the row of the erasure. If ctx ends, one that was taken over is left.
func (s *remover) erase(ctx context.Context, e *storage.Erasure, r *erasing,
	record func(storage.Erasure) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.calls.RUnlock()
	if e.Signs&^s.sql.reading.Load().signs != 0 { // another server may have defined one
		if err := (dictionary{s.database}).renew(context.Background()); err != nil {
			return err
		}
	}
	name, begun := e.Device.String(), false
	nextMs, _ := rangeOf(e) // with ofSome: what is before it is done
	unfinished := func(err error) error {
		if begun && err != nil {
			return fmt.Errorf("%w: %w", storage.ErrUnfinished, err)
		}
		return err
	}
	var missing error
	for {
		if err := ctx.Err(); err != nil {
			return unfinished(err)
		}
		var deleted, sealed, afterMs int64
		var stale bool
		var lost error
		t := s.try()
		err := t.run(func(conn *pgx.Conn) (err error) {
			deleted, sealed, stale, lost = 0, 0, false, nil
			if missing = findErased(conn, s.sql, e); errors.Is(missing, storage.ErrNotFound) ||
				errors.Is(missing, storage.ErrNotAssigned) {
				return nil
			} else if missing != nil {
				return missing
			}
			fromMs, toMs := rangeOf(e)
			err = pgx.BeginTxFunc(context.Background(), conn, r.options(), func(tx pgx.Tx) error {
				if err = s.partitions.hold(tx); err != nil { // before its row of erasing, as in removeErased
					return err
				}
				// Scans that see that some are gone, and others not, must not look complete: TestConformance/remove/during_scans.
				if err = r.renew(tx, s.sql, e); err == nil {
					if ofSome(e) {
						deleted, afterMs, err = removeSomeValues(tx, s.sql, e, nextMs, toMs)
					} else {
						deleted, sealed, err = s.sql.removeSome(tx, name, fromMs, toMs, math.MaxInt64)
					}
				}
				if err == nil && e.Subject != "" {
					err = s.sql.ownsRange(tx, e)
				}
				return err
			})
			if isLost(err) {
				lost = err
			}
			if stale = errors.Is(err, errStale); stale || lost != nil {
				return nil // the outcome is known
			}
			return err
		})
		if errors.Is(lost, errEnded) {
			return unfinished(record(*e))
		}
		if lost != nil {
			return r.result(lost)
		}
		begun = begun || deleted+sealed > 0 || t.unknown
		if stale {
			continue
		}
		if err != nil {
			return unfinished(err)
		}
		e.Readings += deleted + sealed
		if missing == nil {
			r.renewed()
		}
		if missing != nil && !begun && r.at.IsZero() && (s.memory == nil || !errors.Is(missing, storage.ErrNotFound)) {
			return missing
		}
		_, toMs := rangeOf(e)
		if nextMs = afterMs; missing != nil || !ofSome(e) && deleted < chunkReadings || ofSome(e) && nextMs > toMs {
			break
		}
	}
	// A device that is not there is erased, too: another server may bring it back when it repairs the database.
	absent := missing != nil && !begun
	if begun = !absent; begun {
		if err := record(*e); err != nil {
			return unfinished(err)
		}
	}
	rest, err := s.finishErasure(e, r)
	if isLost(err) {
		return r.result(err)
	}
	if err != nil {
		return unfinished(err)
	}
	e.Readings += rest
	switch begun = true; {
	case absent && rest == 0:
		return missing
	case absent: // it came back meanwhile
		return unfinished(record(*e))
	}
	return nil
}

// ownsRange returns errStale unless the assignment of an erasure is still there, with its end. If it is, it stays so
// until tx ends: what tx has removed was no other's.
func (q *statements) ownsRange(tx pgx.Tx, e *storage.Erasure) error {
	tag, err := tx.Exec(context.Background(),
		q.of("SELECT FROM SCHEMA.assignments WHERE device = $1 AND from_ms = $2 AND subject = $3 AND to_ms = $4 FOR SHARE"),
		e.Device.String(), e.FromUnixMs, string(e.Subject), e.ToUnixMs)
	if err == nil && tag.RowsAffected() == 0 {
		err = errStale
	}
	return err
}

// removeSome removes readings of a device from one time to another, inclusive, that were received until a time: whole
// segments, and a chunk of rows. It returns the numbers of both.
func (q *statements) removeSome(tx pgx.Tx, device string, fromMs, toMs, untilMs int64) (deleted,
	sealed int64, err error) {
	if sealed, err = q.removeSegments(tx, device, fromMs, toMs, untilMs); err != nil {
		return 0, 0, err
	}
	tag, err := tx.Exec(context.Background(), q.of(`DELETE FROM SCHEMA.readings WHERE device = $1 AND time_ms = ANY(ARRAY(
		SELECT time_ms FROM SCHEMA.readings WHERE device = $1 AND time_ms >= $3 AND time_ms <= $4 AND received_ms <= $5 ORDER BY time_ms LIMIT $2)) AND received_ms <= $5`),
		device, chunkReadings, fromMs, toMs, untilMs)
	return tag.RowsAffected(), sealed, err
}

// finishErasure removes the rest of what e says, and returns its number of readings.
func (s *remover) finishErasure(e *storage.Erasure, r *erasing) (rest int64, err error) {
	t := s.try()
	k, err := s.marks.take(t)
	if err != nil {
		return 0, err
	}
	defer s.marks.release(k)
	var generation int64
	c := changeOf(e)
	if !r.at.IsZero() { // what repairs put back, it does not remove
		c.AtMs = min(c.AtMs, r.left.UnixMilli())
	}
	var lost error
	err = t.run(func(conn *pgx.Conn) (err error) {
		k = s.marks.attempt(k)
		r.inserted = r.inserted && !t.unknown // an attempt may have been committed, with the end of the row
		rest, _, generation, err = s.forgetDevices(conn, []string{e.Device.String()}, &lastErasure{e, r, &c}, k)
		if lost = nil; isLost(err) {
			lost = err
			return nil // the outcome is known
		}
		if err != nil {
			return err
		}
		return changelog{s.database}.keepUp(conn, generation)
	})
	if lost != nil {
		return 0, lost
	}
	if err == nil {
		changelog{s.database}.made(&c)
		s.marks.acknowledge(k, generation)
	}
	return rest, err
}

// rangeOf returns the first and the last time of the readings that e removes.
func rangeOf(e *storage.Erasure) (firstMs, lastMs int64) {
	if e.Subject == "" && !e.OfValues() {
		return 0, math.MaxInt64
	}
	return e.FromUnixMs, e.ToUnixMs - 1
}

// A lastErasure is what the last transaction of an erasure needs.
type lastErasure struct {
	*storage.Erasure
	row    *erasing
	change *change
}

// forgetDevices deletes the rows of devices that have no readings, while no group is being stored.
// If erased is not nil, it deletes what that says before, inserts its change, and sets the mark k. It returns the
// numbers of readings and of devices, and the generation.
func (s *remover) forgetDevices(conn *pgx.Conn, names []string, erased *lastErasure, k mark) (readings, devices,
	generation int64, err error) {
	ctx := context.Background()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := s.sql.meetSealer(tx); err != nil { // before other locks, as in groups
			return err
		}
		// Waits for the groups that are being stored, and keeps others out until the commit: those
		// will see the new generation. ONLY, so as not to wait for a vacuum of a partition.
		err := s.sql.lock(tx, "SCHEMA.readings IN SHARE ROW EXCLUSIVE MODE")
		if err == nil {
			err = s.sees(ctx, tx, conn.PgConn())
		}
		begun, gone := false, false
		var worn []storage.Assignment
		if err == nil && erased != nil {
			if err = erased.row.hold(tx, s.sql); err == nil { // erasing is locked before assignments
				worn, err = s.subjects.lockAssignments(tx, &erased.Device)
			}
			if err == nil { // one may have been made meanwhile
				err = erased.row.hold(tx, s.sql)
			}
			if err == nil {
				begun, err = endErasing(tx, s.sql, erased.Erasure)
			}
			if err == nil {
				readings, gone, err = s.removeErased(tx, erased.Erasure)
			}
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.sql.of("SELECT FROM SCHEMA.state FOR UPDATE")); err != nil {
			return err
		}
		if devices, err = s.deleteEmpty(tx, names); err != nil {
			return err
		}
		if erased == nil {
			generation, err = changelog{s.database}.nextGeneration(tx)
			return err
		}
		c := erased.change
		if erased.Subject != "" { // its end may have been set again
			c.FromMs, c.ToMs = rangeOf(erased.Erasure)
		}
		if gone { // a repair must not erase what was stored since
			c.Kind, c.Subject = erasedAbsent, erased.Subject
		}
		if c.before, _, err = s.sql.queryMarks(ctx, tx, ""); err != nil {
			return err
		}
		if err = (changelog{s.database}).insertChange(tx, *c); err != nil {
			return err
		}
		// Nothing was there, and nobody has been told of it, unless an earlier attempt has removed it, with the event.
		absent := !begun && readings == 0 && erased.Readings == 0 && devices == 0 && len(worn) == 0 && !erased.OfValues()
		if !gone && !absent {
			if err = s.events().addErased(tx, erased.Erasure, worn); err != nil {
				return err
			}
		}
		generation, err = s.marks.set(tx, s.sql, k)
		return err
	})
	return readings, devices, generation, err
}

// deleteEmpty deletes the rows of devices that have no readings. No group is being stored, and tx is the only one that
// changes the number of devices.
func (s *remover) deleteEmpty(tx pgx.Tx, names []string) (devices int64, err error) {
	ctx := context.Background()
	tag, err := tx.Exec(ctx, s.sql.of(`DELETE FROM SCHEMA.devices AS d WHERE device = ANY($1)
		AND NOT EXISTS (SELECT FROM SCHEMA.readings AS r WHERE r.device = d.device) AND NOT EXISTS (SELECT FROM SCHEMA.segments AS s WHERE s.device = d.device)`), names)
	if err == nil {
		devices = tag.RowsAffected()
		_, err = tx.Exec(ctx, s.sql.of("UPDATE SCHEMA.state SET devices = devices - $1"), devices)
	}
	return devices, err
}

// lock locks tables. It bounds the time for which tx waits: if somebody else's transaction takes
// longer, all groups would wait for tx too.
func (q *statements) lock(tx pgx.Tx, what string) error {
	_, err := tx.Exec(context.Background(), q.of("SET LOCAL lock_timeout = '1s'; LOCK TABLE ONLY "+what))
	return err
}

// removeErased deletes the readings and the assignments of an erasure, and returns the number of readings. If another
// erasure has removed the assignment, it is gone: since then, the readings of its time are those of others.
func (s *remover) removeErased(tx pgx.Tx, e *storage.Erasure) (readings int64, gone bool, err error) {
	ctx, name := context.Background(), e.Device.String()
	if e.OfValues() {
		readings, err = removeRange(tx, s.sql, e)
		return readings, false, err
	}
	sql, args := "DELETE FROM SCHEMA.assignments WHERE device = $1", []any{name}
	if e.Subject != "" {
		// The end may have been set again.
		all, err := s.subjects.lockAssignments(tx, &e.Device)
		i := slices.IndexFunc(all, func(a storage.Assignment) bool {
			return a.FromUnixMs == e.FromUnixMs &&
				a.Subject == e.Subject
		})
		if err != nil || i < 0 {
			return 0, true, err
		}
		e.ToUnixMs = all[i].ToUnixMs
		sql, args = sql+" AND from_ms = $2 AND subject = $3", append(args, e.FromUnixMs, e.Subject)
	}
	if _, err := tx.Exec(ctx, s.sql.of(sql), args...); err != nil {
		return 0, false, err
	}
	readings, err = removeRange(tx, s.sql, e)
	return readings, false, err
}

// removeRange deletes the readings of an erasure, or values of them.
func removeRange(tx pgx.Tx, q *statements, e *storage.Erasure) (readings int64, err error) {
	ctx, name := context.Background(), e.Device.String()
	fromMs, toMs := rangeOf(e)
	if ofSome(e) {
		count := func(_, _ int64) { readings++ }
		v := valuesRemoval{Erasure: e, q: q, untilMs: math.MaxInt64, removed: count}
		err = v.remove(tx, fromMs, toMs)
		return readings, err
	}
	sealed, err := q.removeSegments(tx, name, fromMs, toMs, math.MaxInt64)
	if err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, q.of("DELETE FROM SCHEMA.readings WHERE device = $1 AND time_ms >= $2 AND time_ms <= $3"),
		name, fromMs, toMs)
	return sealed + tag.RowsAffected(), err
}

// Expire implements [storage.Remover]. A partition of which all readings are due, and are not
// more than it may remove, is dropped.
func (s *remover) Expire(ctx context.Context, beforeUnixMs, atMost int64) (x storage.Expiry, err error) {
	if err = ctx.Err(); err == nil {
		if err = s.enter(); err == nil {
			defer s.calls.RUnlock()
			err = s.expire(ctx, beforeUnixMs, atMost, &x)
			s.counters.expiredReadings.Add(x.Readings)
			s.counters.expiredDevices.Add(x.Devices)
		}
	}
	if err != nil {
		return x, fmt.Errorf("remove readings before %d: %w", beforeUnixMs, err)
	}
	return x, nil
}

func (s *remover) expire(ctx context.Context, beforeUnixMs, atMost int64, x *storage.Expiry) error {
	var touched []string
	announced := false // the event of this expiry is there
	err := s.dropPartitions(ctx, beforeUnixMs, atMost, x, &touched, &announced)
	for after, more := "", true; err == nil && more; {
		if err = ctx.Err(); err != nil {
			break
		}
		if x.More = x.Readings >= atMost; x.More {
			break
		}
		var some expired
		t := s.try()
		err = t.run(func(conn *pgx.Conn) error {
			return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) (err error) {
				if err = s.sees(context.Background(), tx, conn.PgConn()); err != nil {
					return err
				}
				some, err = s.expireSome(tx, after, beforeUnixMs, atMost-x.Readings, announced)
				return err
			})
		})
		t.noteUnknown()
		if err == nil && some.unannounced {
			err, announced = s.announceExpiry(beforeUnixMs), true
			continue
		}
		if err == nil {
			x.Readings += some.readings
			touched = append(touched, some.devices...)
			after, more = some.after, some.more
		}
	}
	if x.Readings > 0 {
		err = errors.Join(err, s.recordRemoval(beforeUnixMs))
	}
	slices.Sort(touched)
	touched = slices.Compact(touched)
	if s.unswept.Swap(false) {
		err = errors.Join(err, s.forgetAllEmpty(ctx, x))
	} else if len(touched) > 0 {
		err = errors.Join(err, s.forgetEmpty(ctx, touched, x))
	} else {
		return err
	}
	if err != nil {
		s.unswept.Store(true)
	}
	return err
}

// removalsEveryMs is the least difference of the bounds of two changes that record removals of old readings, in ms:
// each makes all servers register their devices again. A repair puts back what lies between a recorded bound and the
// one of the last run, which the next run removes again.
const removalsEveryMs = 24 * 60 * 60 * 1000

// recordRemoval records that old readings were removed, so that repairs do not put them back.
func (s *remover) recordRemoval(beforeUnixMs int64) error {
	untilMs := beforeUnixMs/removalsEveryMs*removalsEveryMs - 1
	if untilMs <= (changelog{s.database}).removedUntil() {
		return nil
	}
	return changelog{s.database}.record(newChange(removedOld, vitals.Name{}, 0, untilMs))
}

// noteUnknown notes that devices may have lost readings without their names being known.
func (t *try) noteUnknown() {
	if t.unknown {
		t.s.unswept.Store(true)
	}
}

// sweptDevices is the number of devices of which one transaction forgets those without readings, so
// that it ends long before Options.Timeout, and does not block others for long.
const sweptDevices = 5000

// forgetAllEmpty is forgetEmpty for all devices.
func (s *remover) forgetAllEmpty(ctx context.Context, x *storage.Expiry) error {
	for after := ""; ; {
		var page []string
		if err := s.try().run(func(conn *pgx.Conn) error {
			rows, err := conn.Query(context.Background(),
				s.sql.of("SELECT device FROM SCHEMA.devices WHERE device > $1 ORDER BY device LIMIT $2"), after, sweptDevices)
			if err == nil {
				page, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		}); err != nil || len(page) == 0 {
			return err
		}
		if err := s.forgetEmpty(ctx, page, x); err != nil {
			return err
		}
		after = page[len(page)-1]
	}
}

// forgetEmpty forgets those of the devices that have no readings left. It stops when ctx ends.
// LATERAL, because a join of many devices would read all readings.
func (s *remover) forgetEmpty(ctx context.Context, devices []string, x *storage.Expiry) error {
	for chunk := range slices.Chunk(devices, sweptDevices) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.try().run(func(conn *pgx.Conn) error {
			rows, err := conn.Query(context.Background(), s.sql.of(`SELECT d.device FROM SCHEMA.devices AS d
				LEFT JOIN LATERAL (SELECT true AS found FROM SCHEMA.readings AS r WHERE r.device = d.device LIMIT 1) AS r ON true
				WHERE r.found IS NULL AND d.device = ANY($1)`), chunk)
			if err != nil {
				return err
			}
			empty, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil || len(empty) == 0 {
				return err
			}
			_, forgotten, _, err := s.forgetDevices(conn, empty, nil, mark{})
			if err == nil {
				x.Devices += forgotten
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// dropPartitions drops the oldest partitions whose readings are all due.
func (s *remover) dropPartitions(ctx context.Context, beforeUnixMs, atMost int64, x *storage.Expiry, touched *[]string,
	announced *bool) error {
	var numbers []int64
	if err := s.try().run(func(conn *pgx.Conn) (err error) {
		numbers, err = s.partitions.list(conn)
		return err
	}); err != nil {
		return err
	}
	for _, n := range numbers {
		if endOf(n) > beforeUnixMs {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var readings int64
		var devices []string
		t := s.try()
		drop := func(conn *pgx.Conn) (err error) {
			readings, devices, err = s.partitions.drop(conn, n, atMost-x.Readings, *announced)
			if errors.Is(err, errUnannounced) {
				return nil // the outcome is known
			}
			return err
		}
		err := t.run(drop)
		if err == nil && readings > 0 && !*announced {
			if err = s.announceExpiry(beforeUnixMs); err == nil {
				*announced = true
				t.noteUnknown()
				t = s.try() // announceExpiry had its own time
				err = t.run(drop)
			}
		}
		t.noteUnknown()
		if err != nil {
			return err
		}
		x.Readings += readings
		*touched = append(*touched, devices...)
	}
	return nil
}
