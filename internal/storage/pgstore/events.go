package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// Kinds of events. Others are those of [storage.Change].
const (
	eventGap  int16 = iota // something was not recorded, or put back: positions from before it are not known
	eventMark              // nothing; what is left of an event whose content was erased
)

// An eventTable is the table of what consumers of changes are told, besides readings.
type eventTable struct{ *database }

// events returns the table of events.
func (s *database) events() eventTable { return eventTable{s} }

// key returns the key of the advisory lock of those who add events.
func (s eventTable) key() int64 { return lockKey("events", s.opt.Schema) }

// add adds events to a transaction. It must be the last that locks anything in it, but for the mark: until the
// commit no other transaction adds events, so that numbers follow the order of commits. A server that keeps none adds
// a gap in their place.
func (s eventTable) add(tx querier, events ...storage.Change) error {
	if len(events) == 0 || s.opt.Move == MoveTo { // nobody reads changes before Publish, which adds a gap
		return nil
	}
	if s.opt.ChangesKeep <= 0 {
		return s.addGap(tx)
	}
	if err := run(tx, "SELECT pg_advisory_xact_lock($1)", s.key()); err != nil {
		return err
	}
	return s.insert(tx, events)
}

// addGap is add for a gap. Nobody reads earlier events any more. They may be about what is erased, so a server that
// keeps none, and adds a gap in place of each, removes their content at once, and others do so in tidy.
func (s eventTable) addGap(tx querier) error {
	if err := run(tx, "SELECT pg_advisory_xact_lock($1)", s.key()); err != nil {
		return err
	}
	if s.opt.ChangesKeep <= 0 {
		if err := s.removeContent(tx, "device <> ''"); err != nil {
			return err
		}
	}
	return s.insert(tx, []storage.Change{{Kind: storage.ChangeKind(eventGap)}})
}

// removeContent removes the content of events.
func (s eventTable) removeContent(tx querier, which string, args ...any) error {
	return run(tx, s.sql.of(fmt.Sprintf(`UPDATE SCHEMA.events SET kind = %d, device = '', subjects = '',
		from_ms = 0, to_ms = 0, signs = 0, remains = false WHERE `, eventMark)+which), args...)
}

// insert inserts events. The transaction has the lock.
func (s eventTable) insert(tx querier, events []storage.Change) error {
	var kinds []int16
	var devices, subjects []string
	var from, to, signs []int64
	var left []bool
	for i := range events {
		e := &events[i]
		all := e.Subjects
		if e.Subject != "" {
			all = []storage.Subject{e.Subject}
		}
		kinds, devices = append(kinds, int16(e.Kind)), append(devices, e.Device.String())
		subjects, left = append(subjects, joinSubjects(all)), append(left, e.Left)
		from, to, signs = append(from, e.FromUnixMs), append(to, e.ToUnixMs), append(signs, int64(e.Signs))
	}
	return run(tx, s.sql.of(`INSERT INTO SCHEMA.events (number, kind, at_ms, changed, seen,
			device, subjects, from_ms, to_ms, signs, remains)
		SELECT (SELECT max(number) FROM SCHEMA.events) + k.i, k.kind, $1::bigint, `+transaction+`,
			pg_current_snapshot()::text, k.device, k.subjects, k.from_ms, k.to_ms, k.signs, k.remains
		FROM unnest($2::smallint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[])
			WITH ORDINALITY AS k(kind, device, subjects, from_ms, to_ms, signs, remains, i)`),
		time.Now().UnixMilli(), kinds, devices, subjects, from, to, signs, left)
}

func joinSubjects(all []storage.Subject) string {
	var b strings.Builder
	for i, s := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(s))
	}
	return b.String()
}

// eventColumns are those that each reads.
const eventColumns = "number, kind, device, subjects, from_ms, to_ms, signs, remains"

// each calls visit with the events that a query finds.
func (s eventTable) each(ctx context.Context, q querier, visit func(*storage.Change), where string,
	args ...any) error {
	rows, err := q.Query(ctx, s.sql.of("SELECT "+eventColumns+" FROM SCHEMA.events "+where), args...)
	if err != nil {
		return err
	}
	var number, signs int64
	var kind int16
	var device, subjects string
	var from, to int64
	var left bool
	_, err = pgx.ForEachRow(rows, []any{&number, &kind, &device, &subjects, &from, &to, &signs, &left}, func() error {
		e := storage.Change{Number: uint64(number), Kind: storage.ChangeKind(kind), FromUnixMs: from, ToUnixMs: to}
		e.Signs, e.Left = uint32(signs), left
		if device != "" {
			var err error
			if e.Device, err = vitals.ParseName(device); err != nil {
				return fmt.Errorf("%w: device of an event", storage.ErrCorrupt)
			}
		}
		if subjects != "" {
			for text := range strings.SplitSeq(subjects, ",") {
				e.Subjects = append(e.Subjects, storage.Subject(text))
			}
		}
		if e.Kind == storage.ChangeAssigned || e.Kind == storage.ChangeUnassigned {
			if len(e.Subjects) != 1 {
				return fmt.Errorf("%w: subject of an event", storage.ErrCorrupt)
			}
			e.Subject, e.Subjects = e.Subjects[0], nil
		}
		visit(&e)
		return nil
	})
	return err
}

// addErased adds the event of an erasure, and removes the content of earlier ones that it makes pointless. all are the
// assignments of the device before it. The event of an erased device also names the subjects whose assignments have
// ended: who has not seen the end learns it from this event.
func (s eventTable) addErased(tx querier, erased *storage.Erasure, all []storage.Assignment) error {
	x := storage.ErasedEvent(erased, all)
	if s.opt.ChangesKeep <= 0 || s.opt.Move == MoveTo || erased.OfValues() {
		return s.add(tx, x)
	}
	if err := run(tx, "SELECT pg_advisory_xact_lock($1)", s.key()); err != nil {
		return err
	}
	var pointless []int64
	err := s.each(context.Background(), tx, func(old *storage.Change) {
		switch old.Kind {
		case storage.ChangeErased:
			if !coversErased(erased, old) {
				return
			}
			for _, subject := range old.Subjects {
				x.Subjects = addSubject(x.Subjects, subject)
			}
		case storage.ChangeAssigned:
			// What began before an erased assignment was another one.
			within := x.FromUnixMs <= old.FromUnixMs && old.FromUnixMs < x.ToUnixMs
			if erased.Subject != "" && (old.Subject != erased.Subject || !within) {
				return
			}
			if erased.Subject == "" {
				x.Subjects = addSubject(x.Subjects, old.Subject)
			}
		case storage.ChangeUnassigned:
			if erased.Subject != "" { // what ended beyond it has still ended
				return
			}
			x.Subjects = addSubject(x.Subjects, old.Subject)
		}
		pointless = append(pointless, int64(old.Number))
	}, "WHERE device = $1 AND kind > 1 ORDER BY number", erased.Device.String())
	if err == nil && len(pointless) > 0 {
		err = s.removeContent(tx, "number = ANY($1)", pointless)
	}
	if err != nil {
		return err
	}
	return s.insert(tx, []storage.Change{x})
}

func addSubject(all []storage.Subject, s storage.Subject) []storage.Subject {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// coversErased reports whether an erasure of a device or an assignment also erases what the event of an earlier erasure
// says: its times, and signs. That of an assignment keeps one that names another subject.
func coversErased(erased *storage.Erasure, old *storage.Change) bool {
	if old.FromUnixMs == 0 && old.ToUnixMs == storage.OpenEnd && old.Signs == 0 {
		return false
	}
	if erased.Subject == "" {
		return true
	}
	others := slices.ContainsFunc(old.Subjects, func(s storage.Subject) bool { return s != erased.Subject })
	return !others && len(old.Subjects) > 0 && erased.FromUnixMs <= old.FromUnixMs && old.ToUnixMs <= erased.ToUnixMs
}

// announceExpiry adds the event of an expiry: what was stored before it, and measured before a time, has expired.
// No group is being stored meanwhile.
func (s *remover) announceExpiry(beforeUnixMs int64) error {
	return s.try().run(func(conn *pgx.Conn) error {
		return pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			err := s.sql.meetSealer(tx)
			if err == nil {
				err = s.sql.lock(tx, "SCHEMA.readings IN SHARE ROW EXCLUSIVE MODE")
			}
			if err == nil {
				err = s.events().add(tx, storage.Change{Kind: storage.ChangeExpired, ToUnixMs: beforeUnixMs})
			}
			return err
		})
	})
}

// mostExpiries bounds the expiries that are looked at. Each one removes what the ones before have left.
const mostExpiries = 64

// expired returns what has expired.
func (s eventTable) expired(ctx context.Context, q querier) (all []expiredBefore, err error) {
	rows, err := q.Query(ctx, s.sql.of(`SELECT to_ms, changed, at_ms FROM SCHEMA.events WHERE kind = 5
		ORDER BY number DESC LIMIT $1`), mostExpiries)
	if err != nil {
		return nil, err
	}
	all = []expiredBefore{}
	var x expiredBefore
	_, err = pgx.ForEachRow(rows, []any{&x.beforeUnixMs, &x.transaction, &x.atUnixMs}, func() error {
		if !slices.ContainsFunc(all, func(later expiredBefore) bool { return later.beforeUnixMs >= x.beforeUnixMs }) {
			all = append(all, x)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b expiredBefore) int { return int(a.transaction - b.transaction) })
	return all, err
}

// tidiedEvents is how many events a statement removes.
const tidiedEvents = 10000

// markEvery is how often an event marks the time, if there are none: see feed.PositionAt.
const markEvery = time.Hour

// tidy removes events that are older than Options.ChangesKeep, and marks the time. The last one of them stays
// without its content: positions of until the next one name it. A command leaves that to servers.
func (s eventTable) tidy(ctx context.Context) error {
	if s.opt.Existing || s.opt.Move != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	// In parts, as there may be very many before a gap. Readings that an expiry has left are recognized by its event.
	for {
		tag, err := s.read.Exec(ctx, s.sql.of(fmt.Sprintf(`DELETE FROM SCHEMA.events
			WHERE number = ANY(ARRAY(SELECT number FROM SCHEMA.events WHERE number < (SELECT max(number) FROM SCHEMA.events WHERE kind = %d) AND kind <> %d ORDER BY number LIMIT $1))`,
			eventGap, storage.ChangeExpired)), tidiedEvents)
		if err != nil {
			return err
		}
		if tag.RowsAffected() < tidiedEvents {
			break
		}
	}
	now := time.Now()
	return pgx.BeginTxFunc(ctx, s.read, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", s.key()); err != nil {
			return err
		}
		old := "at_ms < " + earlierMs + " - $2::bigint"
		args := []any{now.UnixMilli(), s.opt.ChangesKeep.Milliseconds()}
		_, err := tx.Exec(ctx, s.sql.of(`DELETE FROM SCHEMA.events
			WHERE number < (SELECT max(number) FROM SCHEMA.events WHERE `+old+")"), args...)
		if err != nil {
			return err
		}
		err = s.removeContent(tx, s.sql.of("device <> '' AND number = (SELECT min(number) FROM SCHEMA.events) AND "+old),
			args...)
		if err != nil || s.opt.ChangesKeep <= 0 {
			return err
		}
		var latestMs int64
		err = tx.QueryRow(ctx, s.sql.of("SELECT max(at_ms) FROM SCHEMA.events")).Scan(&latestMs)
		if err != nil || now.UnixMilli() < latestMs+markEvery.Milliseconds() {
			return err
		}
		return s.insert(tx, []storage.Change{{Kind: storage.ChangeKind(eventMark)}})
	})
}

// adopt adds a gap if there are events that were copied from another cluster and have numbers that this one has not
// reached: its own transactions have smaller ones.
func (s eventTable) adopt(ctx context.Context, conn *pgx.Conn) error {
	const copied = "changed >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
	var exist bool
	err := conn.QueryRow(ctx, s.sql.of("SELECT EXISTS (SELECT FROM SCHEMA.events WHERE "+copied+")")).Scan(&exist)
	if err != nil || !exist {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := s.addGap(tx); err != nil {
			return err
		}
		// After the numbers of copied readings: see ownNumber.
		_, err := tx.Exec(ctx, s.sql.of("UPDATE SCHEMA.events SET changed = $1, seen = $2 WHERE "+copied+
			" AND changed <> "+transaction), firstTransaction+1, fmt.Sprintf("%d:%[1]d:", firstTransaction))
		return err
	})
}
