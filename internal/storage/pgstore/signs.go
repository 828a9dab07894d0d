package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// errUnknownSign means that a reading has a sign that this node does not know.
var errUnknownSign = fmt.Errorf("%w: a reading has a sign that the table of signs lacks", storage.ErrCorrupt)

// Signs implements [storage.Store].
func (s *database) Signs() *vitals.Signs { return s.signs }

// openSigns reads the definitions of signs, and writes those of the options. Nodes that start at once
// wait for each other, so that no two signs get the same number.
func (s *database) openSigns(ctx context.Context, conn *pgx.Conn) error {
	if len(s.opt.Signs) == 0 {
		return s.readSigns(ctx, conn)
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.sql.of("LOCK TABLE SCHEMA.signs IN SHARE ROW EXCLUSIVE MODE")); err != nil {
			return err
		}
		if err := s.readSigns(ctx, tx); err != nil {
			return err
		}
		if err := s.signs.Define(s.opt.Signs); err != nil {
			return err
		}
		return s.writeSigns(ctx, tx, false)
	})
}

// readSigns adds the signs that the database has to the table.
func (s *database) readSigns(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, s.sql.of("SELECT definition FROM SCHEMA.signs ORDER BY number"))
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	return storage.RestoreSigns(s.signs, []byte("["+strings.Join(all, ",")+"]"))
}

// renewSigns is readSigns for a node that has met a sign that it does not know.
func (s *database) renewSigns(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	return s.readSigns(ctx, s.read)
}

// writeSigns writes the definitions that are not retired and differ from those in the database, and if retired is set, those that are
// retired and that it lacks.
func (s *database) writeSigns(ctx context.Context, tx pgx.Tx, retired bool) error {
	text, err := storage.EncodeSigns(s.signs)
	if err != nil || text == nil {
		return err
	}
	var definitions []jsontext.Value
	if err := json.Unmarshal(text, &definitions); err != nil {
		return err
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
		if _, err := tx.Exec(ctx, s.sql.of(`INSERT INTO SCHEMA.signs AS s VALUES ($1, $2)
			ON CONFLICT (number) DO UPDATE SET definition = excluded.definition WHERE s.definition <> excluded.definition AND NOT $3`), int16(sg), string(definition), d.Retired); err != nil {
			return err
		}
	}
	return nil
}
