package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How an erasure is finished that its server has left
//
// The first transaction of an erasure inserts a row of the table erasing, which says what is erased; each that follows
// sets the row's time, and the last one deletes the row. If the time is a minute old, the server that began was ended
// or could not go on, and another one, or the same after a restart, takes the erasure over, as if it was asked for
// again. Each transaction of a server that has taken it over, the last one too, needs the row with the time that the
// one before has set. So of several such servers one goes on, and one that was frozen meanwhile removes nothing more:
// nobody has asked it to, and what is stored when the erasure is finished is new. A server that was frozen in its own
// erasure, too: it goes on only while its row is there and not left.
//
// What was stored after the last transaction of the server that began was acknowledged when nobody erased. An erasure
// is not taken over if there is any of it in its times, and is left as it is if that arrives meanwhile: [newer] looks
// for it in each transaction, in the snapshot by which the transaction removes. A client must ask for the erasure
// again. So it must for values of some signs or of a gateway: those stay as rows, and to look for what is newer among
// many of them would hold up readings.

// hiddenFor is how long scans fail after the last transaction of an erasure that is not finished. Then it is left.
const hiddenFor = "1 minute"

// finishEvery is how often a server looks for erasures that others have left.
const finishEvery = 15 * time.Second

// maxTaken bounds the erasures that are taken over in one look.
const maxTaken = 100

// An erasing is a row of the table erasing.
type erasing struct {
	id int64

	// at is the row's time if the erasure was taken over, otherwise zero. left is what it was before.
	at, left time.Time

	next time.Time // what a transaction sets that is not known to be committed

	inserted bool // by this server, which has not taken it over
}

// newer is a condition of a row x of erasing: something in its times, or an assignment that it removes, was written
// after the server that began did, and by none that has taken it over.
const newer = `(x.since = 0 OR EXISTS (SELECT FROM SCHEMA.readings AS r WHERE r.device = x.device AND r.time_ms >= x.from_ms
		AND r.time_ms <= x.to_ms AND r.changed > x.since AND r.changed <> ALL(x.own))
	OR EXISTS (SELECT FROM SCHEMA.segments AS s WHERE s.device = x.device AND s.last_ms >= x.from_ms
		AND s.first_ms <= x.to_ms AND s.changed > x.since AND s.changed <> ALL(x.own))
	OR EXISTS (SELECT FROM SCHEMA.assignments AS a WHERE a.device = x.device AND a.changed > x.since
		AND (x.to_ms = 9223372036854775807 OR x.subject <> '' AND a.from_ms = x.from_ms)))`

// options are those of the transactions that remove a part. One of an erasure that was taken over removes by the
// snapshot in which it has found nothing newer.
func (r *erasing) options() (o pgx.TxOptions) {
	if !r.at.IsZero() {
		o.IsoLevel = pgx.RepeatableRead
	}
	return o
}

var (
	// errTaken means that another server has taken over an erasure, or may have, or that nobody may take it over.
	errTaken = errors.New("the erasure is not this server's to finish")
	// errEnded means that a server's own erasure has ended, by another one of the same or of more.
	errEnded = errors.New("the erasure has ended")
)

// renew sets the time of the row of e, in its place among the locks: see the package comment. The first time, it
// inserts the row if the erasure was not taken over. It returns errTaken if it is another server's now, and errEnded.
func (r *erasing) renew(tx pgx.Tx, q *statements, e *storage.Erasure) error {
	fromMs, toMs := rangeOf(e)
	if r.inserted {
		tag, err := tx.Exec(context.Background(), q.of(`UPDATE SCHEMA.erasing SET to_ms = $2, at = clock_timestamp(),
			since = `+transaction+" WHERE "+kept), r.id, toMs)
		if err == nil && tag.RowsAffected() == 0 {
			err = r.lost(tx, q)
		}
		return err
	}
	if r.at.IsZero() {
		return run(tx, q.of(`INSERT INTO SCHEMA.erasing VALUES ($1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(),
				`+transaction+`, '{}')
			ON CONFLICT (id) DO UPDATE SET to_ms = excluded.to_ms, at = excluded.at, since = excluded.since`), r.id,
			e.Device.String(), fromMs, toMs, string(e.Subject), int32(e.Signs), e.Gateway.String(), e.Shared)
	}
	err := tx.QueryRow(context.Background(), q.of(`UPDATE SCHEMA.erasing AS x SET at = clock_timestamp(),
		own = x.own || `+transaction+" WHERE id = $1 AND at = $2 AND NOT "+newer+" RETURNING at"), r.id, r.at).Scan(&r.next)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errTaken
	}
	return err
}

// lost returns why a server cannot go on with its own erasure: its row is left, or gone.
func (r *erasing) lost(tx pgx.Tx, q *statements) error {
	var left bool
	err := tx.QueryRow(context.Background(), q.of("SELECT EXISTS (SELECT FROM SCHEMA.erasing WHERE id = $1)"),
		r.id).Scan(&left)
	switch {
	case err != nil:
		return err
	case left:
		return errTaken
	}
	return errEnded
}

// isLost reports whether an error is errTaken or errEnded. Nothing was written then.
func isLost(err error) bool { return errors.Is(err, errTaken) || errors.Is(err, errEnded) }

// result returns the result of an erasure with which a server could not go on.
func (r *erasing) result(lost error) error {
	switch {
	case errors.Is(lost, errEnded):
		return nil
	case r.at.IsZero():
		return fmt.Errorf("%w: %w", storage.ErrUnfinished, lost)
	}
	return lost
}

// kept is a condition of the row of a server's own erasure: nobody could have taken it over.
const kept = "id = $1 AND at > clock_timestamp() - interval '" + hiddenFor + "'"

// renewed notes that the transaction of renew is committed.
func (r *erasing) renewed() {
	if r.inserted = r.at.IsZero(); !r.inserted {
		r.at = r.next
	}
}

// hold returns errTaken if another server may have gone on with the erasure, or if it was taken over and something is
// newer, and errEnded.
func (r *erasing) hold(tx pgx.Tx, q *statements) error {
	where, args := kept, []any{r.id}
	switch {
	case !r.at.IsZero():
		where, args = "id = $1 AND at = $2 AND NOT "+newer, append(args, r.at)
	case !r.inserted:
		return nil
	}
	tag, err := tx.Exec(context.Background(), q.of("SELECT FROM SCHEMA.erasing AS x WHERE "+where+" FOR UPDATE"), args...)
	if err == nil && tag.RowsAffected() == 0 {
		if err = errTaken; r.inserted {
			err = r.lost(tx, q)
		}
	}
	return err
}

// endErasing deletes the rows of erasing of what e erases, and reports whether there was one.
func endErasing(tx pgx.Tx, q *statements, e *storage.Erasure) (begun bool, err error) {
	sql, args := "DELETE FROM SCHEMA.erasing WHERE device = $1", []any{e.Device.String()}
	switch fromMs, toMs := rangeOf(e); {
	case e.OfValues():
		sql += " AND subject = '' AND from_ms = $2 AND to_ms = $3 AND signs = $4 AND gateway = $5 AND shared = $6"
		args = append(args, fromMs, toMs, int32(e.Signs), e.Gateway.String(), e.Shared)
	case e.Subject != "":
		sql, args = sql+" AND from_ms = $2 AND subject = $3", append(args, fromMs, string(e.Subject))
	default: // with the device, nothing is left of its other erasures
	}
	tag, err := tx.Exec(context.Background(), q.of(sql), args...)
	return tag.RowsAffected() > 0, err
}

// endErasing deletes the rows of erasing of an erasure that a repair repeats. Some changes do not keep the subject.
func (c *change) endErasing(tx pgx.Tx, q *statements) error {
	if c.Kind == erasedAssignment {
		return run(tx,
			q.of("DELETE FROM SCHEMA.erasing WHERE device = $1 AND from_ms = $2 AND subject <> '' AND $3 IN ('', subject)"),
			c.Device.String(), c.FromMs, string(c.Subject))
	}
	e := &storage.Erasure{Device: c.Device}
	if c.Kind == erasedValues {
		e = c.erasure()
	}
	_, err := endErasing(tx, q, e)
	return err
}

// FinishErasures makes the store finish erasures that have begun and are left, by this server before a restart or by
// another one, until it is closed. It calls record as [Store.EraseRecorded] does. It must be called once at most.
func (s *Store) FinishErasures(record func(storage.Erasure) error) {
	s.watched.Go(func() {
		l := &leftovers{remover: s.remover, record: record}
		tick := time.NewTicker(finishEvery)
		defer tick.Stop()
		for {
			if err := l.finish(s.watching); err != nil && s.watching.Err() == nil {
				s.opt.Log.Warn("erasures that were begun are not finished; it is tried again", "error", hide(err))
			}
			select {
			case <-tick.C:
			case <-s.watching.Done():
				return
			}
		}
	})
}

// A leftErasure is one that its server has left.
type leftErasure struct {
	storage.Erasure
	row   erasing
	newer bool // it must not be taken over
}

// leftovers finishes what servers have left.
type leftovers struct {
	*remover
	record func(storage.Erasure) error

	notTaken []int64 // rows of those that must not be taken over; the log has told of them
}

// maxNotTaken bounds leftovers.notTaken. Of more, the log tells again and again.
const maxNotTaken = 1000

// finish finishes the erasures that are left now, and returns the errors of those that it could not finish.
func (s *leftovers) finish(ctx context.Context) error {
	if s.Ready() != nil {
		return nil // what a database lacks is put back first
	}
	left, failed := s.look(ctx)
	for i := range left {
		if ctx.Err() != nil {
			break
		}
		e, row := &left[i].Erasure, &left[i].row
		if left[i].newer || ofSome(e) {
			if len(s.notTaken) < maxNotTaken {
				s.notTaken = append(s.notTaken, row.id)
			}
			s.opt.Log.Warn("an erasure that was begun is not finished: repeat the request",
				"stored_since", left[i].newer, "some_values", ofSome(e))
			continue
		}
		began := time.Now()
		err := s.erase(ctx, e, row, s.record)
		switch {
		case err == nil:
			s.opt.Log.Info("an erasure that was begun is finished", "readings", e.Readings, "took", time.Since(began))
		case errors.Is(err, errTaken), errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrNotAssigned):
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// look returns the first erasures that are left. An error may be that of some.
func (s *leftovers) look(ctx context.Context) (all []leftErasure, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	// A number of another cluster, from which the database was copied, says nothing about what is newer.
	if _, err := s.write.Exec(ctx, s.sql.of(`UPDATE SCHEMA.erasing SET since = 0
		WHERE since >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint`)); err != nil {
		return nil, err
	}
	rows, err := s.read.Query(ctx, s.sql.of(`SELECT id, at, device, from_ms, to_ms, subject, signs, gateway, shared, `+
		newer+` AS newer FROM SCHEMA.erasing AS x
		WHERE at < now() - interval '`+hiddenFor+`' AND id <> ALL($2::bigint[]) ORDER BY newer, at LIMIT $1`), maxTaken,
		append([]int64{}, s.notTaken...))
	if err != nil {
		return nil, err
	}
	var l leftErasure
	var device, gateway, subject string
	var toMs int64
	var signs int32
	var failed error
	_, err = pgx.ForEachRow(rows, []any{&l.row.id, &l.row.at, &device, &l.FromUnixMs, &toMs, &subject, &signs, &gateway,
		&l.Shared, &l.newer}, func() error {
		found := l
		found.row.left = found.row.at
		found.Subject, found.Signs = storage.Subject(subject), uint32(signs)
		if toMs != math.MaxInt64 { // otherwise everything of the device
			found.ToUnixMs = toMs + 1
		}
		for name, text := range map[*vitals.Name]string{&found.Device: device, &found.Gateway: gateway} {
			if text == "" {
				continue
			}
			parsed, err := vitals.ParseName(text)
			if err != nil {
				failed = fmt.Errorf("%w: name of a device or of a gateway in an unfinished erasure", storage.ErrCorrupt)
				return nil
			}
			*name = parsed
		}
		all = append(all, found)
		return nil
	})
	return all, errors.Join(err, failed)
}
