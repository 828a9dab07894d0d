package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// expiredDevices is the largest number of devices of which a transaction removes readings.
const expiredDevices = 50

// An expired is what a transaction of an expiry has removed.
type expired struct {
	readings int64
	devices  []string
	after    string // the next transaction begins after this device
	more     bool   // there may be one

	unannounced bool // the event comes first: nothing was removed
}

// expireSome removes what is due of the devices after one, as far as one transaction goes. If announced is not set, it
// only looks whether anything is.
func (s *remover) expireSome(tx pgx.Tx, after string, beforeUnixMs, atMost int64, announced bool) (expired, error) {
	if err := s.sql.meetSealer(tx); err != nil {
		return expired{}, err
	}
	due, err := s.sql.dueDevices(tx, after, beforeUnixMs)
	if err != nil || len(due) == 0 {
		return expired{after: after}, err
	}
	if !announced {
		return expired{after: after, more: true, unannounced: true}, nil
	}
	p := planExpiry(due, after, atMost)
	readings, err := s.sql.removeDue(tx, &p, beforeUnixMs)
	return expired{readings: readings, devices: p.devices, after: p.after, more: p.more}, err
}

// A dueDevice is a device with readings that are due.
type dueDevice struct {
	name string
	rows int64 // that are due, at most chunkReadings + 1

	// Segments with readings that are due, in the order of time: their last times, and how many readings they have,
	// and how many of these are due.
	lastUnixMs    []int64
	readings, due []int32
}

// dueDevices returns at most expiredDevices of the devices after one, in their order.
func (q *statements) dueDevices(tx pgx.Tx, after string, beforeUnixMs int64) ([]dueDevice, error) {
	rows, err := tx.Query(context.Background(), q.of(`SELECT v.device, r.n, s.last_ms, s.n, s.due FROM SCHEMA.devices AS v
		CROSS JOIN LATERAL (SELECT count(*) AS n FROM
			(SELECT FROM SCHEMA.readings AS r WHERE r.device = v.device AND r.time_ms < $2 LIMIT $4) AS r) AS r
		CROSS JOIN LATERAL (SELECT coalesce(array_agg(s.last_ms ORDER BY s.first_ms, s.last_ms), '{}') AS last_ms,
			coalesce(array_agg(s.n ORDER BY s.first_ms, s.last_ms), '{}') AS n,
			coalesce(array_agg(CASE WHEN s.last_ms < $2 THEN s.n ELSE
				(SELECT count(*)::integer FROM (SELECT s.back || ''::bytea AS back OFFSET 0) AS b
					CROSS JOIN generate_series(0, s.n - 1) AS i WHERE s.last_ms - SCHEMA.number_at(b.back, i) < $2) END
				ORDER BY s.first_ms, s.last_ms), '{}') AS due
			FROM SCHEMA.segments AS s WHERE s.device = v.device AND s.first_ms < $2) AS s
		WHERE v.device > $1 AND (r.n > 0 OR s.n <> '{}') ORDER BY v.device LIMIT $3`),
		after, beforeUnixMs, expiredDevices, chunkReadings+1)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d dueDevice, err error) {
		return d, row.Scan(&d.name, &d.rows, &d.lastUnixMs, &d.readings, &d.due)
	})
}

// Segments are named by their devices and last times, and by their numbers of readings, which another removal changes.
type segmentNames struct {
	devices       []string
	lastUnixMs    []int64
	readings, due []int32
}

func (n *segmentNames) add(d *dueDevice, i int) {
	n.devices, n.lastUnixMs = append(n.devices, d.name), append(n.lastUnixMs, d.lastUnixMs[i])
	n.readings, n.due = append(n.readings, d.readings[i]), append(n.due, d.due[i])
}

// An expiryPlan is what one transaction removes: everything that is due of some devices, or a part of what is due of
// one that has more than fits.
type expiryPlan struct {
	devices []string // with rows that are removed, at most rows of each
	rows    int64
	whole   segmentNames // are deleted
	cut     segmentNames // lose their first readings
	unseal  segmentNames // become rows, of which the first are removed
	after   string
	more    bool
}

// planExpiry plans a transaction that removes at most atMost of the readings of due, which is not empty. after is the
// device before these.
func planExpiry(due []dueDevice, after string, atMost int64) expiryPlan {
	p := expiryPlan{rows: chunkReadings, after: after, more: len(due) == expiredDevices}
	readings, rows := int64(0), int64(0)
	for i := range due {
		d := &due[i]
		all := d.rows
		for _, n := range d.due {
			all += int64(n)
		}
		if readings += all; readings > atMost || rows+d.rows > chunkReadings {
			p.more = true
			if len(p.devices) == 0 {
				p.unsealSome(d, atMost)
			}
			break
		}
		rows += d.rows
		p.devices, p.after = append(p.devices, d.name), d.name
		for i := range d.due {
			if d.due[i] == d.readings[i] {
				p.whole.add(d, i)
			} else {
				p.cut.add(d, i)
			}
		}
	}
	return p
}

// unsealSome plans the removal of the first readings of a device that has more than fits.
func (p *expiryPlan) unsealSome(d *dueDevice, atMost int64) {
	p.devices, p.rows = []string{d.name}, min(chunkReadings, atMost)
	unsealed := int64(0)
	for i := 0; i < len(d.due) && unsealed < p.rows; i++ {
		unsealed += int64(d.due[i])
		p.unseal.add(d, i)
	}
}

// removeDue executes a plan. It returns the number of readings that it has removed, which is less than planned if
// another server has removed some since.
func (q *statements) removeDue(tx pgx.Tx, p *expiryPlan, beforeUnixMs int64) (readings int64, err error) {
	ctx := context.Background()
	const those = `USING unnest($1::text[], $2::bigint[], $3::integer[]) AS k(device, last_ms, n)
		WHERE s.device = k.device AND s.last_ms = k.last_ms AND s.n = k.n`
	var inWhole, inCut int64
	if err := tx.QueryRow(ctx, q.of("WITH gone AS (DELETE FROM SCHEMA.segments AS s "+those+` RETURNING s.n)
		SELECT coalesce(sum(n), 0) FROM gone`), p.whole.devices, p.whole.lastUnixMs,
		p.whole.readings).Scan(&inWhole); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, q.of("SELECT SCHEMA.cut_segments($1, $2, $3, $4)"),
		p.cut.devices, p.cut.lastUnixMs, p.cut.readings, p.cut.due).Scan(&inCut); err != nil {
		return 0, err
	}
	if len(p.unseal.devices) > 0 {
		if _, err := tx.Exec(ctx, q.of(unsealing(those)), p.unseal.devices, p.unseal.lastUnixMs,
			p.unseal.readings); err != nil {
			return 0, err
		}
	}
	// Rows after the beginning of a segment are not the first ones. There is such a segment if it was not needed, or if
	// another server removes readings of the device at the same time, and has removed what the plan has.
	tag, err := tx.Exec(ctx, q.of(`DELETE FROM SCHEMA.readings AS r USING unnest($1::text[]) AS k(device)
		CROSS JOIN LATERAL
			(SELECT least(min(s.first_ms), $2) AS ms FROM SCHEMA.segments AS s WHERE s.device = k.device) AS until
		CROSS JOIN LATERAL (SELECT r.time_ms FROM SCHEMA.readings AS r
			WHERE r.device = k.device AND r.time_ms < until.ms ORDER BY r.time_ms LIMIT $3) AS due
		WHERE r.device = k.device AND r.time_ms = due.time_ms`), p.devices, beforeUnixMs, p.rows)
	return inWhole + inCut + tag.RowsAffected(), err
}
