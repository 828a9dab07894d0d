package pgstore

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A changelog reads and writes the table of changes.
type changelog struct{ *database }

// A change is a removal, or an accepted restore, which every server remembers. A row of the table of changes
// has it.
type change struct {
	id         int64
	generation int64 // of the database after the transaction that inserted the row
	since      int64 // the same, in the history in which the change was made
	kind       changeKind
	device     vitals.Name // of an erasure
	fromMs     int64       // first and last time of the readings that it removes
	toMs       int64
	atMs       int64 // when it was made, by the clock of the server that made it

	epoch int64 // in which this server learned it
}

type changeKind int16

const (
	erasedDevice changeKind = 1 + iota
	erasedAssignment
	removedOld
	acceptedRestore
)

// changesKeptFor is how long a change is remembered, at least. The last ones are kept in any case: servers compare the
// last change that they know.
const (
	changesKeptFor = 7 * 24 * time.Hour
	changesKept    = 16
)

func newChange(kind changeKind, device vitals.Name, fromMs, toMs int64) change {
	return change{id: 1 + rand.Int64N(math.MaxInt64), kind: kind, device: device, fromMs: fromMs, toMs: toMs, atMs: time.Now().UnixMilli()}
}

// changeOf returns the change of an erasure.
func changeOf(e *storage.Erasure) change {
	fromMs, toMs := rangeOf(e)
	if e.Subject != "" {
		return newChange(erasedAssignment, e.Device, fromMs, toMs)
	}
	return newChange(erasedDevice, e.Device, fromMs, toMs)
}

// insertChange increments the generation and inserts c. An earlier attempt of the same transaction may have inserted it.
func (s changelog) insertChange(tx pgx.Tx, c change) error {
	generation, err := s.nextGeneration(tx)
	if err != nil {
		return err
	}
	if c.since == 0 {
		c.since = generation
	}
	ctx := context.Background()
	if _, err := tx.Exec(ctx, s.sql.of(`DELETE FROM SCHEMA.changes WHERE at_ms < $1
		AND generation < (SELECT generation FROM SCHEMA.changes ORDER BY generation DESC OFFSET $2 LIMIT 1)`), time.Now().Add(-changesKeptFor).UnixMilli(), changesKept-1); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.sql.of(`INSERT INTO SCHEMA.changes VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, since = excluded.since`),
		c.id, generation, c.since, int16(c.kind), c.device.String(), c.fromMs, c.toMs, c.atMs)
	return err
}

// nextGeneration raises the generation above all that this server knows, by a random number: two histories of the
// database do not have the same generations.
func (s changelog) nextGeneration(tx pgx.Tx) (generation int64, err error) {
	_, known, _ := s.marks.known()
	err = tx.QueryRow(context.Background(), s.sql.of("UPDATE SCHEMA.meta SET generation = greatest(generation, $1) + $2 RETURNING generation"), known, 1+rand.Int64N(1<<20)).Scan(&generation)
	return generation, err
}

// learn reads the changes that this server does not know.
func (s changelog) learn(ctx context.Context, q querier) error {
	last := s.marks.last()
	all, generation, err := s.queryChanges(ctx, q, last.generation, last.id)
	if err == nil {
		s.marks.learn(all, generation)
	}
	return err
}

// queryChanges returns the changes after one of a generation, or all if the database does not have that one there, and
// the generation of the database.
func (s changelog) queryChanges(ctx context.Context, q querier, generation, id int64) (all []change, now int64, err error) {
	rows, err := q.Query(ctx, s.sql.of(`SELECT m.generation, c.id, c.generation, c.since, c.kind, c.device, c.from_ms, c.to_ms, c.at_ms FROM SCHEMA.meta AS m
		LEFT JOIN SCHEMA.changes AS c ON c.generation > $1 OR NOT EXISTS (SELECT FROM SCHEMA.changes WHERE id = $2 AND generation = $1)
		ORDER BY c.generation`), generation, id)
	if err != nil {
		return nil, 0, err
	}
	var row struct {
		id, generation, since, fromMs, toMs, atMs *int64
		kind                                      *changeKind
		device                                    *string
	}
	_, err = pgx.ForEachRow(rows, []any{&now, &row.id, &row.generation, &row.since, &row.kind, &row.device, &row.fromMs, &row.toMs, &row.atMs}, func() error {
		if row.id == nil {
			return nil // there is none
		}
		c := change{id: *row.id, generation: *row.generation, since: *row.since, kind: *row.kind, fromMs: *row.fromMs, toMs: *row.toMs, atMs: *row.atMs}
		if *row.device != "" {
			if c.device, err = vitals.ParseName(*row.device); err != nil {
				return fmt.Errorf("%w: name of an erased device", storage.ErrCorrupt)
			}
		}
		all = append(all, c)
		return nil
	})
	return all, now, err
}

// keepUp learns what changed before a generation that a transaction of conn has read. The transaction must not be
// answered after an error.
func (s changelog) keepUp(conn *pgx.Conn, generation int64) error {
	if generation <= s.marks.learned() {
		return nil
	}
	if err := s.learn(context.Background(), conn); err != nil {
		return fmt.Errorf("read changes: %s", hide(err)) // the transaction is committed, so the text only
	}
	return nil
}

// last returns the last change that this server knows.
func (m *marks) last() change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lastLocked()
}

func (m *marks) lastLocked() change {
	if len(m.changes) == 0 {
		return change{}
	}
	return m.changes[len(m.changes)-1]
}

// learned returns the generation up to which this server knows the changes.
func (m *marks) learned() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.upTo
}

// learn adds changes in their order. Those that it knows get the generation that they have in the database now.
func (m *marks) learn(all []change, generation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range all {
		c.epoch = m.epoch
		if i := slices.IndexFunc(m.changes, func(k change) bool { return k.id == c.id }); i >= 0 {
			c.epoch = m.changes[i].epoch
			m.changes = slices.Delete(m.changes, i, i+1)
		}
		m.changes = append(m.changes, c)
	}
	before := time.Now().Add(-changesKeptFor).UnixMilli()
	for len(m.changes) > changesKept && m.changes[0].atMs < before {
		m.changes = m.changes[1:]
	}
	m.upTo = max(m.upTo, generation)
	m.generation = max(m.generation, generation)
}
