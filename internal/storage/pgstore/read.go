package pgstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A reader reads records. Its queries are repeated when a connection breaks.
type reader struct{ *database }

// Latest implements [storage.Store].
func (s *reader) Latest(ctx context.Context, device vitals.Name) (storage.Device, error) {
	var found []storage.Device
	err := s.reading(ctx, func(ctx context.Context) (err error) {
		q := s.sql.reading.Load()
		found, err = s.summaries(ctx, q, q.device, device.String())
		return err
	})
	if err == nil && (len(found) == 0 || found[0].NewestUnixMs < 0) {
		err = storage.ErrNotFound
	}
	if err != nil {
		return storage.Device{}, fmt.Errorf("read latest of %s: %w", device, err)
	}
	return found[0], nil
}

// errNoAnswer means that a query did not end in time. It does not wrap the error of a context,
// because the caller's has not ended.
var errNoAnswer = errors.New("PostgreSQL does not answer")

// reading runs a query of a few pages, as readingAll does. It ends when Options.Timeout is over: a
// primary that is frozen or cut off must not keep the connections.
func (s *reader) reading(ctx context.Context, query func(context.Context) error) error {
	return s.readingAll(ctx, func(caller context.Context) error {
		ctx, cancel := context.WithTimeout(caller, s.opt.Timeout)
		defer cancel()
		err := query(ctx)
		if err != nil && ctx.Err() != nil && caller.Err() == nil {
			return fmt.Errorf("%w: %v", errNoAnswer, hide(err))
		}
		return err
	})
}

// readingAll runs a query, unless the store is closed or ctx has ended. It runs it again if the
// connection breaks.
func (s *reader) readingAll(ctx context.Context, query func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.calls.RUnlock()
	pause, renewed := firstPause, false
	for deadline := time.Now().Add(s.opt.Timeout); ; pause = min(2*pause, maxPause) {
		err := query(ctx)
		if errors.Is(err, errUnknownSign) && !renewed { // another node has defined it
			if err = (dictionary{s.database}).renew(ctx); err == nil {
				renewed = true
				continue
			}
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCorrupt), errors.Is(err, storage.ErrRemoved), fateOf(err) == rejected,
			time.Now().After(deadline):
			return hide(err)
		case sqlState(err) == lockNotAvailable:
			if err := s.locked(ctx); errors.Is(err, storage.ErrUnavailable) {
				return err
			}
		}
		select { // the connection was broken, or the primary is another server now
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// locked returns storage.ErrUnavailable if somebody other than a server has locked a table, or waits for the lock.
// Without a partition, its readings would look absent. Servers lock tables only briefly.
func (s *reader) locked(ctx context.Context) error {
	var tables *string
	err := s.read.QueryRow(ctx,
		`SELECT string_agg(DISTINCT c.relname, ', ') FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
		JOIN pg_stat_activity AS a ON a.pid = l.pid WHERE l.mode = 'AccessExclusiveLock' AND c.relkind IN ('r', 'p')
		AND c.relnamespace = to_regnamespace($1) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND a.application_name IS DISTINCT FROM $2`, s.opt.Schema, applicationName).Scan(&tables)
	if err == nil && tables != nil {
		err = fmt.Errorf("%w: another session has locked %s", storage.ErrUnavailable, *tables)
	}
	return err
}

// A search is for the latest values of signs of some devices.
type search struct {
	at      []int32 // which device it is of the page
	devices []string
	signs   []int32
	fromMs  []int64 // none is before it
	least   int64   // of fromMs: PostgreSQL plans nothing for the partitions before it
}

func (w *search) add(at int32, device string, sign int32, fromMs int64) {
	if len(w.at) == 0 || fromMs < w.least {
		w.least = fromMs
	}
	w.at, w.devices, w.signs, w.fromMs = append(w.at, at), append(w.devices, device), append(w.signs, sign),
		append(w.fromMs, fromMs)
}

// summaries returns the devices that a query of q finds. Those without readings have a NewestUnixMs
// of -1.
func (s *reader) summaries(ctx context.Context, q *readStatements, sql string, args ...any) (all []storage.Device,
	err error) {
	err = pgx.BeginTxFunc(ctx, s.read, pgx.TxOptions{BeginQuery: s.sql.begin}, func(tx pgx.Tx) error { // one snapshot
		all = nil
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var w search
		var name string
		var present int32
		var hints pgtype.FlatArray[*int64]
		if _, err := pgx.ForEachRow(rows, []any{&name, &present, &hints}, func() error {
			device, err := vitals.ParseName(name)
			switch {
			case err != nil:
				return fmt.Errorf("%w: name of a device", storage.ErrCorrupt)
			case uint32(present)&^q.signs != 0:
				return errUnknownSign
			}
			for i, sg := range inBits(q.signs) {
				if present&(1<<sg) == 0 {
					continue
				}
				fromMs := int64(0)
				if hints[i] != nil {
					fromMs = *hints[i]
				}
				w.add(int32(len(all)), name, int32(sg), fromMs)
			}
			all = append(all, storage.Device{Name: device, NewestUnixMs: -1})
			return nil
		}); err != nil {
			return err
		}
		for len(w.at) > 0 {
			if err := w.run(ctx, tx, q, all); err != nil {
				return err
			}
			// A hint is the time of a reading with the sign, so the latest one is not before it. If there is none from there on,
			// that reading was removed, and all are searched.
			var rest search
			for i, at := range w.at {
				if sg := vitals.Sign(w.signs[i]); w.fromMs[i] > 0 && !all[at].Latest[sg].Known {
					rest.add(at, w.devices[i], w.signs[i], 0)
				}
			}
			w = rest
		}
		return nil
	})
	return all, err
}

// run searches, and sets what it finds in all. PostgreSQL plans the statement for its parameters each time.
func (w *search) run(ctx context.Context, tx pgx.Tx, q *readStatements, all []storage.Device) error {
	places := make([]int32, len(w.at))
	for i := range places {
		places[i] = int32(i)
	}
	rows, err := tx.Query(ctx, q.latest, pgx.QueryExecModeCacheDescribe, places, w.devices, w.signs, w.fromMs, w.least)
	if err != nil {
		return err
	}
	var place, value int32
	var timeMs int64
	var offset *int16
	_, err = pgx.ForEachRow(rows, []any{&place, &timeMs, &value, &offset}, func() error {
		l := storage.Latest{TimeUnixMs: timeMs, Value: vitals.Value(value), Known: true}
		if offset != nil {
			var err error
			if l.UTCOffset, err = makeOffset(*offset); err != nil {
				return err
			}
		}
		d := &all[w.at[place]]
		d.Latest[w.signs[place]], d.NewestUnixMs = l, max(d.NewestUnixMs, timeMs)
		return nil
	})
	return err
}

// Devices implements [storage.Store].
func (s *reader) Devices(ctx context.Context, after vitals.Name, dst []storage.Device) (n int, err error) {
	first := after
	err = s.reading(ctx, func(ctx context.Context) error {
		n, after = 0, first
		for n < len(dst) {
			want := len(dst) - n
			q := s.sql.reading.Load()
			page, err := s.summaries(ctx, q, q.devices, after.String(), want)
			if err != nil {
				return err
			}
			for _, d := range page {
				if after = d.Name; d.NewestUnixMs >= 0 {
					dst[n] = d
					n++
				}
			}
			if len(page) < want {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("list devices: %w", err)
	}
	return n, nil
}

// WalkDevices calls visit with the summaries of all devices, some at a time, in the order of
// their names. visit must not retain the slice. A device that is added or removed during the call
// may be missing.
func (s *reader) WalkDevices(ctx context.Context, visit func(some []storage.Device)) error {
	page := make([]storage.Device, 500)
	for after := (vitals.Name{}); ; {
		n, err := s.Devices(ctx, after, page)
		if err != nil {
			return err
		}
		visit(page[:n])
		if n < len(page) {
			return nil
		}
		after = page[n-1].Name
	}
}

// Scan implements [storage.Store].
func (s *reader) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (n int, err error) {
	err = s.reading(ctx, func(ctx context.Context) error {
		if len(dst) == 0 || r.FromUnixMs >= r.ToUnixMs {
			return nil
		}
		for more := 1; ; more *= 4 {
			var whole bool
			if n, whole, err = s.scan(ctx, r, dst, more); whole || err != nil {
				return err
			}
		}
	})
	if err != nil {
		return 0, fmt.Errorf("scan %s: %w", r.Device, err)
	}
	return n, nil
}

// scan fills dst with records from rows and from segments, which together have more times as many readings. It reports
// whether these were enough: they may not be if times of segments overlap.
func (s *reader) scan(ctx context.Context, r storage.Range, dst []storage.Record, more int) (n int,
	whole bool, err error) {
	return s.scanIn(ctx, s.read, true, r, dst, more)
}

// A sender sends statements together: a connection, a pool, or a transaction.
type sender interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}

// scanIn is scan with a connection. If alone is not set, it is in a transaction, which has the table.
func (s *reader) scanIn(ctx context.Context, conn sender, alone bool, r storage.Range, dst []storage.Record,
	more int) (n int, whole bool, err error) {
	most := more * (16 + len(dst)/64) // segments
	q := s.sql.reading.Load()
	sql, segments, boundMs := q.scan, q.segments, max(r.FromUnixMs, 0)-maxSpanMs
	if r.Descending {
		sql, segments, boundMs = q.scanDown, q.segmentsDown, min(r.ToUnixMs, math.MaxInt64-maxSpanMs)+maxSpanMs
	}
	var b pgx.Batch // one transaction, and so one snapshot: the sealer moves records
	if alone {
		b.Queue("BEGIN")
		b.Queue(s.sql.share)
	}
	b.Queue(q.shown, r.Device.String(), r.FromUnixMs, r.ToUnixMs)
	b.Queue(segments, r.Device.String(), r.FromUnixMs, r.ToUnixMs, most, boundMs, more*len(dst))
	b.Queue(sql, r.Device.String(), r.FromUnixMs, r.ToUnixMs, len(dst))
	if alone {
		b.Queue("COMMIT")
	}
	results := conn.SendBatch(ctx, &b)
	defer func() {
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}()
	var erasing bool
	var signs int32
	for i := 0; alone && i < 2; i++ {
		if _, err = results.Exec(); err != nil {
			return 0, false, err
		}
	}
	// A consumer of changes gets an event when the erasure is complete.
	if err = results.QueryRow().Scan(&erasing, &signs); err != nil || erasing && alone {
		return 0, false, cmp.Or(err, storage.ErrRemoved)
	}
	if uint32(signs)&^q.signs != 0 {
		return 0, false, errUnknownSign
	}
	m := merger{r: r, signs: q.signs}
	if err = m.readSegments(results, most); err != nil {
		return 0, false, err
	}
	if n, err = m.merge(results, dst); err != nil {
		return 0, false, err
	}
	return n, n == len(dst) || !m.bounded, nil
}

// decodeRecord decodes the values of recordColumns of some signs in the binary format. The record shares the
// gateway of the one before, if it is the same.
func decodeRecord(v [][]byte, signs uint32, before *vitals.Name) (r storage.Record, err error) {
	fixed := min(len(recordSizes), len(v))
	if err := checkSizes(v[:fixed], recordSizes); err != nil {
		return r, err
	}
	r.TimeUnixMs, r.ReceivedUnixMs, r.Shared = decodeInt64(v[0]), decodeInt64(v[1]), v[3][0] != 0
	for _, b := range v[fixed:] {
		switch {
		case signs == 0 || b != nil && len(b) != 4:
			return r, errTypes
		case b != nil:
			r.Values.Set(vitals.Sign(bits.TrailingZeros32(signs)), vitals.Value(binary.BigEndian.Uint32(b)))
		}
		signs &= signs - 1
	}
	if signs != 0 {
		return r, errTypes
	}
	if v[2] != nil {
		if r.UTCOffset, err = makeOffset(decodeInt16(v[2])); err != nil {
			return r, err
		}
	}
	if v[5] != nil {
		r.ChangedUnixMs = r.ReceivedUnixMs + decodeInt64(v[5])
	}
	r.Gateway, err = decodeGateway(v[4], before)
	return r, err
}

// decodeGateway returns the gateway of a row. It is before if that has the same name.
func decodeGateway(text []byte, before *vitals.Name) (*vitals.Name, error) {
	switch {
	case text == nil:
		return nil, nil
	case before != nil && before.String() == string(text):
		return before, nil
	}
	name, err := vitals.ParseName(text)
	if err != nil {
		return nil, fmt.Errorf("%w: name of a gateway", storage.ErrCorrupt)
	}
	return &name, nil
}

// makeOffset returns the offset from UTC of a row.
func makeOffset(minutes int16) (vitals.UTCOffset, error) {
	if minutes < vitals.MinUTCOffsetMinutes || minutes > vitals.MaxUTCOffsetMinutes {
		return 0, fmt.Errorf("%w: offset from UTC", storage.ErrCorrupt)
	}
	return vitals.MakeUTCOffset(int(minutes)), nil
}

// NewestUnixMs returns the time of the newest reading of each device, in any order.
func (s *reader) NewestUnixMs(ctx context.Context) ([]int64, error) {
	return s.numbers(ctx, "read newest times", s.sql.of(`SELECT n.time_ms FROM SCHEMA.devices AS d CROSS JOIN LATERAL
		(SELECT r.time_ms FROM SCHEMA.readings AS r WHERE r.device = d.device ORDER BY r.time_ms DESC LIMIT 1) AS n`))
}

// EstimateReadings returns PostgreSQL's estimate of the number of stored readings.
func (s *reader) EstimateReadings(ctx context.Context) (int64, error) {
	return only(s.numbers(ctx, "estimate readings", s.sql.of(`SELECT (coalesce(sum(greatest(c.reltuples, 0)), 0)
			+ (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'SCHEMA.segments'::regclass) * coalesce((SELECT avg(n) FROM (SELECT n FROM SCHEMA.segments LIMIT 1000) AS some), 0))::bigint
		FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'SCHEMA.readings'::regclass`)))
}

// CountReadings counts the stored readings. It reads all of the table.
func (s *reader) CountReadings(ctx context.Context) (int64, error) {
	return only(s.numbers(ctx, "count readings",
		s.sql.of("SELECT (SELECT count(*) FROM SCHEMA.readings) + (SELECT coalesce(sum(n), 0) FROM SCHEMA.segments)")))
}

// numbers runs a query for numbers, which may take long.
func (s *reader) numbers(ctx context.Context, what, sql string, args ...any) (all []int64, err error) {
	err = s.readingAll(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.read, pgx.TxOptions{BeginQuery: s.sql.begin}, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sql, args...)
			if err != nil {
				return err
			}
			all, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

// only returns the single number of a query.
func only(all []int64, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return all[0], nil
}
