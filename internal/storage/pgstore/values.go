package pgstore

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How values are erased
//
// An erasure of everything that a device measured from one time to another removes whole segments, and rows, as other
// erasures do. One of some signs, or of one gateway, turns segments into rows, some at a time, and changes these; the
// sealer makes segments of what is left. The last transaction does the same with what was stored since, while no group
// is stored.

// EraseValues implements [storage.Remover]. Bytes stay as after [Store.Erase].
func (s *remover) EraseValues(e storage.Erasure) (storage.Erasure, error) {
	return s.EraseValuesRecorded(e, func(storage.Erasure) error { return nil })
}

// EraseValuesRecorded is [Store.EraseValues] for a caller that keeps a record, as [Store.EraseRecorded] is for one of
// devices.
func (s *remover) EraseValuesRecorded(e storage.Erasure, record func(storage.Erasure) error) (storage.Erasure, error) {
	err := e.Validate()
	if err == nil {
		e.Readings = 0
		err = s.erase(context.Background(), &e, &erasing{id: newID()}, record)
	}
	if err != nil {
		return e, fmt.Errorf("erase values of device %s: %w", e.Device, err)
	}
	return e, nil
}

// ofSome reports whether e leaves values of its time.
func ofSome(e *storage.Erasure) bool { return e.OfValues() && (e.Signs != 0 || !e.Gateway.IsZero()) }

// A valuesRemoval removes values of rows.
type valuesRemoval struct {
	*storage.Erasure
	q       *statements
	untilMs int64   // of what was received until then
	but     []int64 // times of readings that stay

	removed func(timeMs, receivedMs int64) // is called with each reading that has lost values, and when it was received
}

// remove removes values of a device from one time to another, inclusive, of signs that this server knows. All readings
// of that time that may have some are rows afterwards.
func (v *valuesRemoval) remove(tx pgx.Tx, fromMs, toMs int64) error {
	q := v.q
	some := inBits(v.Signs & q.reading.Load().signs)
	if v.Signs != 0 && len(some) == 0 {
		return nil // no reading has them
	}
	if err := v.unseal(tx, some, fromMs, toMs); err != nil {
		return err
	}
	where := ` WHERE r.device = $1 AND r.time_ms >= $2 AND r.time_ms <= $3 AND r.received_ms <= $4
		AND r.time_ms <> ALL($5)`
	args := []any{v.Device.String(), fromMs, toMs, v.untilMs, append([]int64{}, v.but...)}
	if !v.Gateway.IsZero() {
		where, args = where+" AND r.gateway = $6", append(args, v.Gateway.String())
		if !v.Shared {
			where += " AND NOT r.shared"
		}
	}
	if v.Signs == 0 {
		return v.run(tx, q.of("DELETE FROM SCHEMA.readings AS r"+where), args)
	}
	where += " AND (" + q.each(some, "r.NAME IS NOT NULL", " OR ") + ")"
	// Two statements follow. They change the same rows, and no others that are stored in between; and rows are locked in
	// their order, because servers that lock them in different orders deadlock.
	rows, err := tx.Query(context.Background(),
		q.of("SELECT r.time_ms FROM SCHEMA.readings AS r"+where+" ORDER BY r.time_ms FOR UPDATE"), args...)
	if err != nil {
		return err
	}
	times, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(times) == 0 {
		return err
	}
	args = append(args, times)
	where += fmt.Sprintf(" AND r.time_ms = ANY($%d)", len(args))
	// Another server may have defined signs that this one does not know.
	rest := ` AND jsonb_strip_nulls(to_jsonb(r) - '{device,time_ms,received_ms,changed,completed_ms,utc_offset,` +
		`shared,gateway,` +
		strings.ReplaceAll(q.each(some, "NAME", ","), `"`, "") + "}'::text[]) = '{}'"
	if err := v.run(tx, q.of("DELETE FROM SCHEMA.readings AS r"+where+rest), args); err != nil {
		return err
	}
	return v.run(tx, q.of("UPDATE SCHEMA.readings AS r SET "+q.each(some, "NAME = NULL", ", ")+where), args)
}

// unseal is [statements.unsealRange] for the segments of which v may remove values: the readings of a segment have the
// same signs and gateway. If there are such values, also in rows, it does the same with the last other segment of each
// sign that begins in the range or before. signs are those of v, nil if they are all.
func (v *valuesRemoval) unseal(tx pgx.Tx, signs []vitals.Sign, fromMs, toMs int64) error {
	q := v.q
	if err := q.meetSealer(tx); err != nil {
		return err
	}
	const selected = `x.device = $1 AND x.first_ms <= $3 AND x.last_ms >= $2 AND ($4::integer = 0 OR x.signs & $4 <> 0)
		AND ($5 = '' OR x.gateway = $5 AND (NOT x.shared OR $6::boolean))`
	row := `r.device = $1 AND r.time_ms >= $2 AND r.time_ms <= $3 AND ($5 = '' OR r.gateway = $5 AND (NOT r.shared OR $6))`
	if signs != nil {
		row += " AND (" + q.each(signs, "r.NAME IS NOT NULL", " OR ") + ")"
	}
	of := strings.ReplaceAll(selected, "x.", "s.")
	_, err := tx.Exec(context.Background(), q.of(unsealing(`WHERE s.device = $1 AND (`+of+`
		OR s.last_ms IN (SELECT (SELECT max(last_ms) FROM SCHEMA.segments AS x WHERE x.device = $1 AND x.first_ms <= $3
				AND x.signs & (1 << number) <> 0 AND (`+selected+`) IS NOT TRUE) FROM generate_series(0, 31) AS number)
			AND (EXISTS (SELECT FROM SCHEMA.segments AS x WHERE `+selected+`) OR EXISTS (SELECT FROM SCHEMA.readings `+
		`AS r WHERE `+row+`)))`)),
		v.Device.String(), fromMs, toMs, int32(v.Signs), v.Gateway.String(), v.Shared)
	return err
}

// run runs a statement that changes rows.
func (v *valuesRemoval) run(tx pgx.Tx, sql string, args []any) error {
	received := "r.received_ms"
	if v.OfValues() { // the part with the values may have come later
		received += " + coalesce(r.completed_ms, 0)"
	}
	rows, err := tx.Query(context.Background(), sql+" RETURNING r.time_ms, "+received, args...)
	if err != nil {
		return err
	}
	var timeMs, receivedMs int64
	_, err = pgx.ForEachRow(rows, []any{&timeMs, &receivedMs}, func() error {
		v.removed(timeMs, receivedMs)
		return nil
	})
	return err
}

// removeSomeValues removes values of the first readings from a time on. It returns the time of those that follow.
func removeSomeValues(tx pgx.Tx, q *statements, e *storage.Erasure, fromMs, toMs int64) (n, nextMs int64, err error) {
	var endMs int64
	if err = tx.QueryRow(context.Background(), q.of(`SELECT least($3,
		(SELECT last_ms FROM SCHEMA.segments WHERE device = $1 AND last_ms >= $2 ORDER BY last_ms OFFSET 2 LIMIT 1),
		(SELECT time_ms FROM SCHEMA.readings WHERE device = $1 AND time_ms >= $2 ORDER BY time_ms OFFSET $4 LIMIT 1))`),
		e.Device.String(), fromMs, toMs, chunkReadings).Scan(&endMs); err != nil {
		return 0, fromMs, err
	}
	v := valuesRemoval{Erasure: e, q: q, untilMs: math.MaxInt64, removed: func(_, _ int64) { n++ }}
	err = v.remove(tx, fromMs, endMs)
	return n, endMs + 1, err
}
