package pgstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// errUnknownSign means that a reading has a sign that this node does not know.
var errUnknownSign = fmt.Errorf("%w: a reading has a sign that the table of signs lacks", storage.ErrCorrupt)

// Signs implements [storage.Store].
func (s *database) Signs() *vitals.Signs { return s.signs }

// A dictionary has the definitions of signs in the database, and the columns that these have.
type dictionary struct{ *database }

// open reads the definitions of signs, and writes those of the options. Nodes that start at once
// wait for each other, so that no two signs get the same number.
func (s dictionary) open(ctx context.Context, conn *pgx.Conn) error {
	if len(s.opt.Signs) > 0 {
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := s.lock(ctx, tx); err != nil {
				return err
			}
			if err := s.signs.Define(s.opt.Signs); err != nil {
				return err
			}
			defined, err := s.write(ctx, tx, false)
			if err == nil {
				err = s.events().add(tx, defined...)
			}
			return err
		}); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(s.opt.Timeout); ; {
		err := s.complete(ctx, conn)
		if state := sqlState(err); state != lockNotAvailable && state != deadlock {
			return err
		} else if time.Now().After(deadline) {
			s.opt.Log.Warn(
				"readings with some signs are rejected until the tables get columns for them: another session keeps a lock on a "+
					"table for long", "signs", s.sql.each(inBits(s.lacking()), "NAME", " "))
			return s.read(ctx, conn)
		}
		select {
		case <-time.After(maxPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lock keeps others from defining signs until tx ends, and reads those that are defined.
func (s dictionary) lock(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, s.sql.of("LOCK TABLE SCHEMA.signs IN SHARE ROW EXCLUSIVE MODE")); err != nil {
		return err
	}
	return s.read(ctx, tx)
}

// read adds the signs that the database has to the table, and notes which have columns.
func (s dictionary) read(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, s.sql.of("SELECT definition FROM SCHEMA.signs ORDER BY number"))
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	if err := storage.RestoreSigns(s.signs, []byte("["+strings.Join(all, ",")+"]")); err != nil {
		return err
	}
	have, err := s.columns(ctx, q)
	if err == nil {
		s.note(have)
	}
	return err
}

// columns returns the signs of which readings has columns, in their order.
func (s dictionary) columns(ctx context.Context, q querier) (have []vitals.Sign, err error) {
	rows, err := q.Query(ctx,
		"SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped "+
			"ORDER BY attnum", s.opt.Schema+".readings")
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		if sg, ok := s.signs.Named(name); ok {
			have = append(have, sg)
		}
	}
	return have, err
}

// note makes statements name the signs that have columns. They are never removed.
func (s dictionary) note(have []vitals.Sign) {
	signs := uint32(0)
	for _, sg := range have {
		signs |= 1 << sg
	}
	for {
		old := s.sql.reading.Load()
		if old != nil && signs&^old.signs == 0 {
			return
		}
		if old != nil {
			signs |= old.signs
		}
		s.sql.reading.CompareAndSwap(old, s.sql.newReading(signs))
	}
}

// lacking returns the bits of the signs that have no columns yet.
func (s *database) lacking() uint32 {
	if q := s.sql.reading.Load(); q != nil {
		return s.signs.Known() &^ q.signs
	}
	return s.signs.Known()
}

// complete adds the columns that the tables lack.
func (s dictionary) complete(ctx context.Context, conn beginner) error {
	if err := s.read(ctx, conn); err != nil || s.lacking() == 0 {
		return err
	}
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := s.lock(ctx, tx); err != nil {
			return err
		}
		return s.add(ctx, tx)
	}); err != nil {
		return err
	}
	return s.read(ctx, conn)
}

// add adds columns for the signs that have none. Nobody else defines signs until tx ends. Groups and queries would have
// to wait for a lock that is not free soon, so it gives up then.
func (s dictionary) add(ctx context.Context, tx pgx.Tx) error {
	have, err := s.columns(ctx, tx)
	if err != nil {
		return err
	}
	var missing []vitals.Sign
	for sg := range s.signs.All() {
		if !slices.Contains(have, sg) {
			missing = append(missing, sg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = tx.Exec(ctx,
		"SET LOCAL lock_timeout = '500ms';"+s.sql.columnsFor(missing)+s.sql.viewsOf(append(have, missing...)))
	return err
}

// columnsEvery is how often a server tries again to add columns that its signs lack.
const columnsEvery = 5 * time.Second

// retry is complete for a server that runs.
func (s dictionary) retry(ctx context.Context) {
	if s.lacking() == 0 {
		return
	}
	err := s.database.write.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return s.complete(ctx, conn) })
	if err == nil {
		s.opt.Log.Info("readings with all signs are stored: the tables have columns for them")
	}
}

// renew is read for a node that has met a sign that it does not know.
func (s dictionary) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	return s.read(ctx, s.database.read)
}

// write writes the definitions that are not retired and differ from those in the database, and if retired is set, those
// that are retired and that it lacks. It returns the events of those that it has written.
func (s dictionary) write(ctx context.Context, tx pgx.Tx, retired bool) (events []storage.Change, err error) {
	text, err := storage.EncodeSigns(s.signs)
	if err != nil || text == nil {
		return nil, err
	}
	var definitions []jsontext.Value
	if err := json.Unmarshal(text, &definitions); err != nil {
		return nil, err
	}
	for sg, d := range s.signs.All() {
		if !d.Own() {
			continue
		}
		definition := definitions[0]
		definitions = definitions[1:]
		if d.Retired && !retired {
			continue
		}
		tag, err := tx.Exec(ctx, s.sql.of(`INSERT INTO SCHEMA.signs AS s VALUES ($1, $2)
			ON CONFLICT (number) DO UPDATE SET definition = excluded.definition WHERE s.definition <> excluded.definition AND NOT $3`), int16(sg), string(definition), d.Retired)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() > 0 {
			events = append(events, storage.Change{Kind: storage.ChangeSign, Signs: 1 << sg})
		}
	}
	return events, nil
}
