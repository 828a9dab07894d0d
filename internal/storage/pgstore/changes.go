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
	"github.com/pulsegate/pulsegate/internal/storage/pgstore/history"
	"github.com/pulsegate/pulsegate/vitals"
)

// A changelog reads and writes the table of changes.
type changelog struct{ *database }

// A change is a removal, or an accepted restore, which every server remembers. A row of the table of changes
// has it.
type change struct {
	history.Change

	open   bool    // it was made of an erasedAbsent, and nobody knows when the assignment ended
	before numbers // the marks that the database had when this server made it; nil: another one has made it

	// Of an erasedValues of a gateway, by time of readings: see decide.
	selected, kept map[int64]bool
	unknown        bool // it is undecided, and not repeated
}

// Kinds of changes.
const (
	erasedDevice int16 = 1 + iota
	erasedAssignment
	removedOld
	acceptedRestore
	erasedAbsent // assignments that were not there: of a subject; with a device, the one of that device from FromMs on
	endedAbsent  // an assignment that was not there: from FromMs until ToMs
	erasedValues // of Signs and Gateway; see storage.Erasure
)

// changesKeptFor is how long a change is remembered, at least. The last ones are kept in any case: servers compare the
// last change that they know.
const (
	changesKeptFor = 7 * 24 * time.Hour
	changesKept    = 16
)

func newChange(kind int16, device vitals.Name, fromMs, toMs int64) change {
	return change{Change: history.Change{ID: newID(), Kind: kind, Device: device, FromMs: fromMs, ToMs: toMs,
		AtMs: time.Now().UnixMilli()}}
}

// newID returns a random id of a change or a loss.
func newID() int64 { return 1 + rand.Int64N(math.MaxInt64) }

// changeOf returns the change of an erasure.
func changeOf(e *storage.Erasure) change {
	fromMs, toMs := rangeOf(e)
	if e.Subject != "" {
		return newChange(erasedAssignment, e.Device, fromMs, toMs)
	}
	if e.OfValues() {
		c := newChange(erasedValues, e.Device, fromMs, toMs)
		c.Signs, c.Gateway, c.Shared = e.Signs, e.Gateway, e.Shared
		return c
	}
	return newChange(erasedDevice, e.Device, fromMs, toMs)
}

// record records a change that removes nothing by itself. A group or a step of a repair is before it, or knows it.
func (s changelog) record(c change) error {
	t := s.try()
	k, err := s.marks.take(t)
	if err != nil {
		return err
	}
	defer s.marks.release(k)
	var generation int64
	err = t.run(func(conn *pgx.Conn) error {
		k = s.marks.attempt(k)
		if err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) (err error) {
			if err = s.sql.meetSealer(tx); err == nil {
				err = s.sql.lock(tx, "SCHEMA.readings IN SHARE ROW EXCLUSIVE MODE")
			}
			if err == nil {
				err = s.insertChange(tx, c)
			}
			if err == nil {
				generation, err = s.marks.set(tx, s.sql, k)
			}
			return err
		}); err != nil {
			return err
		}
		return s.keepUp(conn, generation)
	})
	if err == nil {
		s.marks.acknowledge(k, generation)
	}
	return err
}

// recordAbsent records that an assignment, or all of a subject, was to be erased or ended and was not there: another
// server may bring it back when it repairs the database. It does nothing if servers do not remember.
func (s changelog) recordAbsent(kind int16, a *storage.Assignment) error {
	if s.memory == nil {
		return nil
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.calls.RUnlock()
	c := newChange(kind, a.Device, a.FromUnixMs, a.ToUnixMs)
	c.Subject = a.Subject
	return s.record(c)
}

// insertChange increments the generation and inserts c. An earlier attempt of the same transaction may have inserted
// it.
func (s changelog) insertChange(tx pgx.Tx, c change) error {
	generation, err := s.nextGeneration(tx)
	if err != nil {
		return err
	}
	if c.Since == 0 {
		c.Since = generation
	}
	if err := s.tidy(tx, time.Now()); err != nil {
		return err
	}
	_, err = tx.Exec(context.Background(),
		s.sql.of(`INSERT INTO SCHEMA.changes VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, since = excluded.since`),
		c.ID, generation, c.Since, c.Kind, c.Device.String(), c.FromMs, c.ToMs, c.AtMs, string(c.Subject),
		int32(c.Signs), c.Gateway.String(), c.Shared)
	return err
}

// tidy removes old changes.
func (s changelog) tidy(tx pgx.Tx, now time.Time) error {
	_, err := tx.Exec(context.Background(), s.sql.of("DELETE FROM SCHEMA.changes WHERE at_ms < "+earlierMs+` - $2
		AND generation < (SELECT generation FROM SCHEMA.changes ORDER BY generation DESC OFFSET $3 LIMIT 1)`),
		now.UnixMilli(), changesKeptFor.Milliseconds(), changesKept-1)
	return err
}

// nextGeneration raises the generation above all that this server knows, by a random number: two histories of the
// database do not have the same generations.
func (s changelog) nextGeneration(tx pgx.Tx) (generation int64, err error) {
	_, known, _ := s.marks.known()
	err = tx.QueryRow(context.Background(),
		s.sql.of("UPDATE SCHEMA.state SET generation = greatest(generation, $1) + $2 RETURNING generation"), known,
		1+rand.Int64N(1<<20)).Scan(&generation)
	return generation, err
}

// learn reads the changes that this server does not know, and the horizon.
func (s changelog) learn(ctx context.Context, q querier) error {
	last := s.marks.last()
	all, generation, nowMs, err := s.queryChanges(ctx, q, last.Generation, last.ID)
	if err == nil {
		if s.marks.learn(all, generation, nowMs); len(all) > 0 {
			keeper(s).keepChanges()
		}
	}
	return err
}

// queryChanges returns the changes after one of a generation, or all if the database does not have that one there,
// the generation of the database, and the time: see earlierMs. It notes the horizon.
func (s changelog) queryChanges(ctx context.Context, q querier, after, id int64) (all []change, generation,
	nowMs int64, err error) {
	rows, err := q.Query(ctx,
		s.sql.of(
			"SELECT m.generation, m.sealed_ms, "+earlierMs+`, c.id, c.generation, c.since, c.kind, c.device, c.from_ms, c.to_ms, c.at_ms, c.subject,
		c.signs, c.gateway, c.shared FROM SCHEMA.state AS m
		LEFT JOIN SCHEMA.changes AS c ON c.generation > $2 OR NOT EXISTS (SELECT FROM SCHEMA.changes WHERE id = $3 AND generation = $2)
		ORDER BY c.generation`), time.Now().UnixMilli(), after, id)
	if err != nil {
		return nil, 0, 0, err
	}
	var sealedMs int64
	var row struct {
		id, generation, since, fromMs, toMs, atMs *int64
		kind                                      *int16
		device, subject, gateway                  *string
		signs                                     *int32
		shared                                    *bool
	}
	_, err = pgx.ForEachRow(rows, []any{&generation, &sealedMs, &nowMs, &row.id, &row.generation, &row.since, &row.kind,
		&row.device, &row.fromMs, &row.toMs, &row.atMs, &row.subject,
		&row.signs, &row.gateway, &row.shared}, func() error {
		if row.id == nil {
			return nil // there is none
		}
		c := change{Change: history.Change{ID: *row.id, Generation: *row.generation, Since: *row.since, Kind: *row.kind,
			FromMs: *row.fromMs, ToMs: *row.toMs, AtMs: *row.atMs, Subject: storage.Subject(*row.subject)}}
		c.Signs, c.Shared = uint32(*row.signs), *row.shared
		for name, text := range map[*vitals.Name]string{&c.Device: *row.device, &c.Gateway: *row.gateway} {
			if text == "" {
				continue
			}
			if *name, err = vitals.ParseName(text); err != nil {
				return fmt.Errorf("%w: name of an erased device, or of a gateway", storage.ErrCorrupt)
			}
		}
		all = append(all, c)
		return nil
	})
	s.horizon.note(sealedMs)
	return all, generation, nowMs, err
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

// all returns the changes that this server knows, in their order.
func (s changelog) all() []change {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	return slices.Clone(s.marks.changes)
}

// made notes that this server has made a change, which it has learned.
func (s changelog) made(c *change) {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	if i := slices.IndexFunc(s.marks.changes, func(k change) bool { return k.ID == c.ID }); i >= 0 {
		s.marks.changes[i].before = c.before
	}
}

// removedUntil returns until which time old readings were removed, as far as changes say.
func (s changelog) removedUntil() (unixMs int64) {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	for _, c := range s.marks.changes {
		if c.Kind == removedOld {
			unixMs = max(unixMs, c.ToMs)
		}
	}
	return unixMs
}

// again notes repeated erasures for the next takeRepeated.
func (s changelog) again(repeated []change) {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	s.marks.repeated = append(s.marks.repeated, repeated...)
}

// takeRepeated returns the repeated erasures that this server has learned since the last call.
func (s changelog) takeRepeated() []change {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	all := s.marks.repeated
	s.marks.repeated = nil
	return all
}

// learn adds changes in their order, and returns those that this server did not know. The others get the generation
// that they have in the database now.
func (m *marks) learn(all []change, generation, nowMs int64) (learned []change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range all {
		if i := slices.IndexFunc(m.changes, func(k change) bool { return k.ID == c.ID }); i >= 0 {
			c.Epoch, c.Learned, c.before = m.changes[i].Epoch, m.changes[i].Learned, m.changes[i].before
			m.changes = slices.Delete(m.changes, i, i+1)
		} else {
			c.Epoch, c.Learned = m.epoch, c.Generation
			learned = append(learned, c)
			if c.Generation != c.Since && c.Device != (vitals.Name{}) {
				m.repeated = append(m.repeated, c)
			}
		}
		m.changes = append(m.changes, c)
	}
	for len(m.changes) > changesKept && m.changes[0].AtMs < nowMs-changesKeptFor.Milliseconds() {
		m.changes = m.changes[1:]
	}
	m.upTo = max(m.upTo, generation)
	m.generation = max(m.generation, generation)
	return learned
}
