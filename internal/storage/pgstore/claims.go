package pgstore

import (
	"context"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Claims
//
// Readings with claims are settled in the lane of units: the assignments of their devices are read before, the claims
// are settled as if nobody else changed any, and what they change is written in the transaction of the readings,
// which is rolled back if another one has changed them since. A transaction locks, in this order, rows of readings,
// the advisory locks of devices by their keys, and rows of assignments. Erasures and repairs do so, too.

// readClaims reads the assignments of the devices about which a lane has claims.
func readClaims(w *work, q querier) (err error) {
	w.assigned = nil
	var names []string
	for i := range w.items {
		if e := w.items[i].e; e.Claim != nil {
			names = append(names, e.Reading.Device.String())
		}
	}
	if names == nil {
		return nil
	}
	names = slices.Compact(names) // items are sorted by device
	w.assigned, err = w.s.assigned(q, names, "")
	return err
}

// beginClaims makes the assignments what they were when they were read: the readings may be settled again.
func beginClaims(w *work) {
	w.wearers = nil
	if w.assigned == nil {
		return
	}
	w.wearers = make(map[vitals.Name]*storage.Wearers, len(w.assigned))
	for i := range w.items {
		if device := w.items[i].e.Reading.Device; w.items[i].e.Claim != nil && w.wearers[device] == nil {
			w.wearers[device] = storage.NewWearers(w.assigned[device])
		}
	}
}

// assigned returns the assignments of devices, locked if lock says so.
func (s *writer) assigned(q querier, names []string, lock string) (map[vitals.Name][]storage.Assignment, error) {
	list, err := (&subjects{&reader{s.database}}).queryAssignments(context.Background(), q,
		assignmentsOfDevices+lock, names)
	all := make(map[vitals.Name][]storage.Assignment, len(names))
	for _, a := range list {
		all[a.Device] = append(all[a.Device], a)
	}
	return all, err
}

// writeClaims writes what the accepted items' claims have changed. It returns errStale if another transaction has
// changed the same.
func writeClaims(w *work, q querier) error {
	var put, named, gone []storage.Assignment
	var events []storage.Change
	var names []string
	var keys []int64
	for device, x := range w.wearers {
		changed := false
		for now, before := range x.Changes() {
			switch {
			case now.Device.IsZero():
				gone = append(gone, before)
			case now.ToUnixMs == before.ToUnixMs:
				named = append(named, now)
			default:
				put, changed = append(put, now), true
				if e, ok := storage.AssignmentEvent(&now, &before); ok {
					events = append(events, e)
				}
			}
		}
		if changed {
			names, keys = append(names, device.String()), append(keys, (&subjects{&reader{w.s.database}}).deviceLock(&device))
		}
	}
	if len(put) > 0 {
		slices.Sort(keys)
		if err := run(q, "SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key",
			slices.Compact(keys)); err != nil {
			return err
		}
		// Who only names a subject holds no advisory lock.
		all, err := w.s.assigned(q, names, " FOR UPDATE")
		if err != nil {
			return err
		}
		for _, a := range put {
			if !slices.Equal(all[a.Device], w.wearers[a.Device].Read()) {
				return errStale
			}
		}
		if err := w.s.sql.writeAssignments(q, put, gone); err != nil {
			return err
		}
	}
	if len(named) == 0 {
		return w.s.events().add(q, events...)
	}
	slices.SortFunc(named, func(a, b storage.Assignment) int { x, y := a.Key(), b.Key(); return x.Compare(&y) })
	var n int
	err := q.QueryRow(context.Background(),
		w.s.sql.of(`WITH named AS (UPDATE SCHEMA.assignments AS a SET named_ms = greatest(a.named_ms, k.named_ms)
		FROM `+assignmentArrays+` WHERE a.device = k.device AND a.from_ms = k.from_ms AND a.to_ms = k.to_ms AND a.subject = k.subject AND a.made_by = k.made_by RETURNING 1)
		SELECT count(*) FROM named`), arraysOf(named)...).Scan(&n)
	if err == nil && n != len(named) {
		err = errStale
	}
	if err == nil {
		err = w.s.events().add(q, events...)
	}
	return err
}

// assignmentArrays has the assignments in parameters of arraysOf.
const assignmentArrays = "unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::smallint[], $6::bigint[], " +
	"$7::bigint[]) AS k(device, from_ms, to_ms, subject, made_by, named_ms, changed_ms)"

func arraysOf(all []storage.Assignment) []any {
	var devices, subjects []string
	var from, to, named, changed []int64
	var by []int16
	for i := range all {
		a := &all[i]
		devices, subjects, by = append(devices, a.Device.String()), append(subjects, string(a.Subject)),
			append(by, int16(a.By))
		from, to = append(from, a.FromUnixMs), append(to, a.ToUnixMs)
		named, changed = append(named, a.NamedUnixMs), append(changed, a.ChangedUnixMs)
	}
	return []any{devices, from, to, subjects, by, named, changed}
}

// putAssignments inserts assignments, or sets all of those with their devices and beginnings.
func (q *statements) putAssignments(tx querier, all []storage.Assignment) error {
	return run(tx,
		q.of("INSERT INTO SCHEMA.assignments (device, from_ms, to_ms, subject, made_by, named_ms, changed_ms, changed) "+
			"SELECT k.*, "+transaction+" FROM "+assignmentArrays+`
		ON CONFLICT (device, from_ms) DO UPDATE SET to_ms = excluded.to_ms, subject = excluded.subject, made_by = excluded.made_by, named_ms = excluded.named_ms,
			changed = excluded.changed, changed_ms = excluded.changed_ms`), arraysOf(all)...)
}

// writeAssignments puts assignments, and removes others, or those that they replace.
func (q *statements) writeAssignments(tx querier, put, gone []storage.Assignment) error {
	if len(gone) > 0 {
		if err := run(tx, q.of("DELETE FROM SCHEMA.assignments AS a USING "+assignmentArrays+
			" WHERE a.device = k.device AND a.from_ms = k.from_ms"), arraysOf(gone)...); err != nil {
			return err
		}
	}
	return q.putAssignments(tx, put)
}

// putIn puts an assignment that all of its device admit, and returns the events.
func putIn(q *statements, tx querier, all []storage.Assignment, a storage.Assignment) (events []storage.Change,
	err error) {
	w := storage.NewWearers(all)
	w.Put(a)
	var put, gone []storage.Assignment
	for now, before := range w.Changes() {
		if now.Device.IsZero() {
			gone = append(gone, before)
		} else {
			put = append(put, now)
			if e, ok := storage.AssignmentEvent(&now, &before); ok {
				events = append(events, e)
			}
		}
	}
	return events, q.writeAssignments(tx, put, gone)
}

// run runs a statement and ignores its rows.
func run(q querier, sql string, args ...any) error {
	rows, err := q.Query(context.Background(), sql, args...)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// changedBy returns entries of the memory with the assignments that the last transaction of w has made or ended; times
// at which a subject was named are not remembered, nor spans of nobody. retried means that an earlier attempt may have
// changed them.
func changedBy(w *work, retried bool) (all []history.Entry) {
	for _, x := range w.wearers {
		remember := func(a storage.Assignment) {
			var e history.Entry
			rememberAssignment(&e, &a, x.Read())
			all = append(all, e)
		}
		for now, before := range x.Changes() {
			if now.Subject != "" && now.ToUnixMs != before.ToUnixMs {
				remember(now)
			}
		}
		for _, a := range x.Read() {
			if retried && a.By == storage.ByHL7 && a.Subject != "" && slices.ContainsFunc(w.items, func(it item) bool {
				r := it.e.Reading
				return it.e.Claim != nil && r.Device == a.Device && (a.Covers(r.TimeUnixMs) || a.ToUnixMs == r.TimeUnixMs)
			}) {
				remember(a)
			}
		}
	}
	return all
}
