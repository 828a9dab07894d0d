package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A record is a stored record, with its device.
type record struct {
	storage.Record
	device vitals.Name
}

// find reads and locks the records of the chains that need them, in the order of the keys, after what x has. The
// statement would wait for any partition that somebody has locked. After one that did, statements read one partition,
// which their plan names, for a minute.
func (w *work) find(x *exchange, conn *pgconn.PgConn, needs func(chain) bool) error {
	w.found = slices.Grow(w.found[:0], len(w.chains))
	row := func(v [][]byte) error {
		var r record
		err := r.decode(v, w.sql.signs)
		w.found = append(w.found, r)
		return err
	}
	p := w.s.partitions
	apart := time.Now().UnixMilli() <= p.apartUntil.Load()
	if !apart {
		if fillFinder(w, needs); w.finder.rows() > 0 {
			x.add(w.sql.find, w.finder.encode(findTypes[:]), nil, row)
		}
	}
	if err := x.run(conn); err != nil {
		// not what x had before
		if !apart && w.finder.rows() > 0 && x.done == len(x.steps)-1 && sqlState(err) == lockNotAvailable {
			p.apartUntil.Store(time.Now().Add(closedFor).UnixMilli())
		}
		return err
	}
	if apart {
		if err := w.findApart(conn, needs, row); err != nil {
			return err
		}
	}
	for i := range w.found {
		r := &w.found[i]
		if n, ok := slices.BinarySearchFunc(w.chains, r, func(c chain, r *record) int {
			return compareKeys(w.items[c.from].e.Reading, &r.device, r.TimeUnixMs)
		}); ok {
			have := r.Record
			w.chains[n].have = &have
		}
	}
	return nil
}

// findApart is find with a statement for each partition.
func (w *work) findApart(conn *pgconn.PgConn, needs func(chain) bool, row func([][]byte) error) error {
	var partitions []int64
	for i := range w.chains {
		if c := w.chains[i]; needs(c) {
			partitions = append(partitions, partitionOf(w.reading(&c).TimeUnixMs))
		}
	}
	slices.Sort(partitions)
	var x exchange
	for _, n := range slices.Compact(partitions) {
		firstMs, lastMs := fillFinder(w, func(c chain) bool { return needs(c) && partitionOf(w.reading(&c).TimeUnixMs) == n })
		x.batch.ExecParams(fmt.Sprintf(w.sql.findIn, firstMs, lastMs), w.finder.encode(findTypes[:]), nil, binaryFormat,
			binaryFormat)
		x.steps = append(x.steps, step{row: row})
	}
	return x.run(conn)
}

// fillFinder puts the keys of some chains into the parameters of find, and returns the first and the last time of them.
func fillFinder(w *work, needs func(chain) bool) (firstMs, lastMs int64) {
	w.finder.reset(len(findTypes))
	firstMs = math.MaxInt64
	for _, c := range w.chains {
		if needs(c) {
			r := w.items[c.from].e.Reading
			firstMs, lastMs = min(firstMs, r.TimeUnixMs), max(lastMs, r.TimeUnixMs)
			w.finder.arrays[0].name(&r.Device)
			w.finder.arrays[1].int64(r.TimeUnixMs)
		}
	}
	return firstMs, lastMs
}

// damaged reports whether err says that something stored cannot be decoded, by this server or in PostgreSQL.
func damaged(err error) bool {
	state := sqlState(err)
	return errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, errUnknownSign) || strings.HasPrefix(state, "22") ||
		state == dataCorrupted
}

// leaveOutUnreadable rejects the readings of w whose row, or a segment that may have them, cannot be decoded: one must
// not hold up the others. It returns err, which says that there are some, if it finds none.
func (s *writer) leaveOutUnreadable(t *try, w *work, err error) error {
	unreadable := map[*storage.Entry]bool{}
	if err := t.run(func(conn *pgx.Conn) error {
		clear(unreadable)
		for i := range w.chains {
			c := &w.chains[i]
			err := s.readOne(conn, w.reading(c))
			if err != nil && !damaged(err) {
				return err
			}
			for _, it := range w.items[c.from:c.to] {
				if err != nil {
					unreadable[it.e] = true
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	w.returnGuards()
	if len(unreadable) == 0 {
		return t.fail(hide(err))
	}
	s.opt.Log.Error("stored readings cannot be decoded, and others of their times are rejected", "rejected",
		len(unreadable), "error", hide(err))
	w.start(s.admit(w.part, func(e *storage.Entry) storage.Outcome {
		if unreadable[e] {
			return storage.Unreadable
		}
		return 0
	}))
	return nil
}

// readOne decodes what may be stored of the device and time of a reading.
func (s *writer) readOne(conn *pgx.Conn, r *vitals.Reading) error {
	q, device := s.sql.reading.Load(), r.Device.String()
	decode := func(from, where string, one func([][]byte) error) error {
		rows, err := conn.Query(context.Background(), s.sql.of("SELECT "+from+" WHERE device = $1 AND "+where),
			pgx.QueryResultFormats{pgx.BinaryFormatCode}, device, r.TimeUnixMs)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := one(rows.RawValues()); err != nil && !errors.Is(err, errUnknownSign) {
				return err
			}
		}
		return rows.Err()
	}
	if err := decode(q.record+" FROM SCHEMA.readings AS r", "time_ms = $2", func(v [][]byte) error {
		_, err := decodeRecord(v, q.signs, nil)
		return err
	}); err != nil {
		return err
	}
	return decode(q.segment+" FROM SCHEMA.segments AS s", "first_ms <= $2 AND last_ms >= $2", func(v [][]byte) error {
		_, err := decodeSegment(v, q.signs, nil)
		return err
	})
}

func (r *record) decode(v [][]byte, signs uint32) (err error) {
	if len(v) == 0 {
		return errTypes
	}
	if r.device, err = vitals.ParseName(v[0]); err != nil {
		return fmt.Errorf("%w: name of a device", storage.ErrCorrupt)
	}
	r.Record, err = decodeRecord(v[1:], signs, nil)
	return err
}
