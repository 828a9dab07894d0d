package pgstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A horizon is the time before which readings may be in segments, as far as this server knows. state.sealed_ms has it.
// A transaction that stores readings looks those before it up in segments, and its last statement fails if the horizon
// has been raised above one that it has not looked up.
type horizon struct{ atomic.Int64 }

// note notes a horizon that the database had: it is never lowered.
func (h *horizon) note(ms int64) {
	for {
		old := h.Load()
		if ms <= old || h.CompareAndSwap(old, ms) {
			return
		}
	}
}

// A sealer moves old readings from rows to segments. Of all servers, one does so at a time.
//
// A transaction moves some readings of some devices. It holds a lock exclusively that all others hold shared which read
// or change segments, or rows before the horizon. So a reading is in one place whenever nobody moves it, and readers,
// which have one snapshot for both, find it in one.
//
// It leaves each device's last reading with each sign in rows, of those that it finds: the latest values are in rows.
type sealer struct {
	*database
	partitions *partitions
}

// A dueRow is a row that may be sealed.
type dueRow struct {
	storage.Record
	changed int64
	at      pgtype.TID // where it is in its partition
	table   uint32     // the partition
}

func (r *dueRow) delayMs() int64 { return r.ReceivedUnixMs - r.TimeUnixMs }

// Sizes of the sealer's transactions, which others that change old readings wait for.
const (
	sealDevices = 32
	sealRows    = 1000 // of a device
)

// sealWait is how long a reading waits for enough others at most.
const sealWait = 7 * 24 * time.Hour

// run seals readings from time to time.
func (s sealer) run(ctx context.Context) {
	tick := time.NewTicker(min(s.opt.SealEvery, time.Minute))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		beforeMs := began.Add(-s.opt.SealAfter).UnixMilli()
		// A clock that was ahead may have left a later time there.
		if passedMs := s.counters.passedMs.Load(); passedMs <= began.UnixMilli() &&
			beforeMs < passedMs+s.opt.SealEvery.Milliseconds() {
			continue
		}
		n, err := s.seal(ctx, beforeMs)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.opt.Log.Warn("sealing readings failed; it is tried again in a minute", "error", hide(err), "readings", n)
		case n > 0:
			s.opt.Log.Info("readings sealed", "readings", n, "before", time.UnixMilli(beforeMs).UTC(), "took", time.Since(began))
		}
	}
}

// errPublished means that a consumer of logical decoding would see readings deleted that are sealed.
var errPublished = errors.New(
	"a publication has the deletes of readings, and sealing deletes rows: ALTER PUBLICATION … SET (publish = 'insert, " +
		"update'), or add the table segments to it, if consumers read that")

// seal seals what was measured before a time, and returns the number of readings. It returns 0 if another server does
// so. If a transaction is rolled back, because another one holds the lock for long, it seals the other devices before
// it returns the error.
func (s sealer) seal(ctx context.Context, beforeMs int64) (sealed int64, err error) {
	conn, err := s.write.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	var free bool
	key := lockKey("sealer", s.opt.Schema)
	// If this server freezes between two transactions, another one seals.
	if err := conn.QueryRow(ctx,
		"SELECT CASE WHEN pg_try_advisory_lock($1) THEN set_config('idle_session_timeout', '20s', false) <> '' "+
			"ELSE false END", key).Scan(&free); err != nil || !free {
		return 0, err
	}
	reset := fmt.Sprintf("SELECT pg_advisory_unlock(%d); SET idle_session_timeout = 0", key)
	defer func() {
		if _, resetErr := conn.Exec(context.Background(), reset); resetErr != nil {
			_ = conn.Conn().Close(context.Background())
		}
	}()
	compressed, err := s.compress(ctx, conn)
	if err != nil {
		return 0, err
	}
	if compressed {
		reset += "; RESET wal_compression"
	}
	// The next readings need them, even if none can be sealed.
	created := s.create(conn.Conn())
	defer func() { err = errors.Join(err, created) }()
	if err := s.published(ctx, conn); err != nil {
		return 0, err
	}
	if beforeMs, err = s.raise(ctx, conn, beforeMs); err != nil {
		return 0, err
	}
	var failed error
	renewed := false
	for after := ""; ; {
		var page []string
		rows, err := conn.Query(ctx, s.sql.of("SELECT device FROM SCHEMA.devices WHERE device > $1 ORDER BY device LIMIT $2"),
			after, sealDevices)
		if err == nil {
			page, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		switch {
		case err != nil:
			return sealed, err
		case len(page) == 0 && failed == nil:
			return sealed, errors.Join(s.passed(ctx, conn, beforeMs), s.retire(ctx, conn.Conn(), beforeMs))
		case len(page) == 0:
			return sealed, failed
		}
		after = page[len(page)-1]
		for from := make([]int64, len(page)); len(page) > 0; {
			var n int64
			var left []string
			var leftMs []int64
			n, left, leftMs, err = s.sealDevices(ctx, conn, page, from, beforeMs)
			switch {
			case errors.Is(err, errUnknownSign) && !renewed: // another server has defined it since
				if renewed, err = true, (dictionary{s.database}).renew(ctx); err != nil {
					return sealed, err
				}
				continue
			case err != nil && fateOf(err) != rolledBack:
				return sealed, err
			case err != nil:
				failed = err
			}
			page, from = left, leftMs
			s.counters.sealed.Add(n)
			sealed += n
		}
	}
}

// compress makes PostgreSQL compress the pages that the session writes to its log, and reports whether it does. After a
// checkpoint, the first reading of a page that is sealed writes the whole page. It asks for the right first: an error
// would be in PostgreSQL's log again and again.
func (s sealer) compress(ctx context.Context, conn *pgxpool.Conn) (compressed bool, err error) {
	var off, allowed bool
	var methods []string // nil before PostgreSQL 15, which has one, and no right to set it
	err = conn.QueryRow(ctx,
		"SELECT setting = 'off', enumvals, current_setting('is_superuser') = 'on' FROM pg_settings WHERE name = "+
			"'wal_compression'").Scan(&off, &methods, &allowed)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !off {
		return false, nil
	}
	if err == nil && !allowed && methods != nil {
		err = conn.QueryRow(ctx, "SELECT has_parameter_privilege('wal_compression', 'SET')").Scan(&allowed)
	}
	if err != nil {
		return false, err
	}
	if !allowed {
		s.uncompressed.Do(func() {
			s.opt.Log.Info(
				"sealing writes whole pages to PostgreSQL's log, uncompressed: set wal_compression, or GRANT SET ON PARAMETER " +
					"wal_compression")
		})
		return false, nil
	}
	method := "on"
	if slices.Contains(methods, "lz4") {
		method = "lz4"
	}
	_, err = conn.Exec(ctx, "SET wal_compression = "+method)
	return err == nil, err
}

// published returns errPublished, with names, if there are such publications.
func (s sealer) published(ctx context.Context, conn *pgxpool.Conn) error {
	var names *string
	if err := conn.QueryRow(ctx,
		`SELECT string_agg(pubname, ', ' ORDER BY pubname) FROM pg_publication AS p WHERE pubdelete
		AND EXISTS (SELECT FROM pg_publication_tables AS t WHERE t.pubname = p.pubname AND schemaname = $1 AND tablename ~ $2)
		AND NOT EXISTS (SELECT FROM pg_publication_tables AS t WHERE t.pubname = p.pubname AND schemaname = $1 AND tablename = 'segments')`,
		s.opt.Schema, "^readings(_default)?$|^"+partitionPrefix+"[0-9]+$").Scan(&names); err != nil {
		return err
	}
	if names != nil {
		return fmt.Errorf("%w: %s", errPublished, *names)
	}
	return nil
}

// create creates the partitions of the next readings, while hardly anybody needs them.
func (s sealer) create(conn *pgx.Conn) (err error) {
	if s.opt.SealAfter == 0 {
		return nil
	}
	for n, i := partitionOf(time.Now().UnixMilli()), int64(0); err == nil && i < 2; i++ {
		err = s.partitions.create(conn, n+i)
	}
	return err
}

// retire drops the partitions that were emptied.
func (s sealer) retire(ctx context.Context, conn *pgx.Conn, beforeMs int64) error {
	if s.opt.SealAfter == 0 {
		return nil
	}
	return s.partitions.retire(ctx, conn, beforeMs)
}

// passed notes that all devices were looked through.
func (s sealer) passed(ctx context.Context, conn *pgxpool.Conn, beforeMs int64) error {
	if _, err := conn.Exec(ctx, s.sql.of("UPDATE SCHEMA.state SET passed_ms = $1"), beforeMs); err != nil {
		return err
	}
	s.counters.passedMs.Store(beforeMs)
	return nil
}

// raise raises the horizon, and returns it, or beforeMs if that is earlier: no group that is being stored has readings
// before it afterwards that were not looked up. It is never later than the clock of the database: what is before it
// costs a look-up for good.
func (s sealer) raise(ctx context.Context, conn *pgxpool.Conn, beforeMs int64) (int64, error) {
	var ms int64
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// What it changes is replicated with the first group that depends on it.
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = off"); err != nil {
			return err
		}
		if err := s.sql.lock(tx, "SCHEMA.readings IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		err := tx.QueryRow(ctx,
			s.sql.of(
				`UPDATE SCHEMA.state SET sealed_ms = greatest(sealed_ms, least($1, (extract(epoch FROM now()) * 1000)::bigint))
			RETURNING sealed_ms`), beforeMs).Scan(&ms)
		if err == nil {
			s.horizon.note(ms)
		}
		return err
	}); err != nil {
		return 0, err
	}
	return min(ms, beforeMs), nil
}

// sealDevices runs a transaction that seals readings of some devices, of each from a time on. It returns their number,
// and the devices that may have more, and from when on: the index still has the rows that were deleted, and passing
// over them takes longer than all the rest.
func (s sealer) sealDevices(ctx context.Context, conn *pgxpool.Conn, devices []string, fromMs []int64,
	beforeMs int64) (sealed int64, left []string, leftMs []int64, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// If this server freezes in the middle, late readings and erasures wait for seconds.
		if _, err := tx.Exec(ctx,
			fmt.Sprintf(
				`SET LOCAL synchronous_commit = off; SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL tcp_user_timeout = '10s';
			SET LOCAL lock_timeout = '1s'; SELECT pg_advisory_xact_lock(%d)`, lockKey("seal", s.opt.Schema))); err != nil {
			return err
		}
		due := make(map[string][]dueRow, len(devices))
		if err := s.due(ctx, tx, devices, fromMs, beforeMs, due); err != nil {
			return err
		}
		var all segments
		places := map[uint32][]pgtype.TID{} // of moved rows, by partition
		moved := map[string][]storage.Record{}
		for _, device := range devices {
			rows := due[device]
			parts, restMs := s.parts(rows, beforeMs)
			for _, part := range parts {
				all.add(device, part)
				for i := range part {
					places[part[i].table] = append(places[part[i].table], part[i].at)
					moved[device] = append(moved[device], part[i].Record)
				}
				sealed += int64(len(part))
			}
			if len(rows) == sealRows && len(parts) > 0 {
				left, leftMs = append(left, device), append(leftMs, restMs)
			}
		}
		if sealed == 0 {
			return nil
		}
		if err := all.insert(ctx, tx, s.sql); err != nil {
			return err
		}
		if err := s.verify(ctx, tx, &all, moved); err != nil {
			return err
		}
		return s.delete(ctx, tx, places)
	})
	if err != nil {
		return 0, nil, nil, err
	}
	return sealed, left, leftMs, nil
}

// delete deletes the rows at some places of partitions, which nobody else changes meanwhile.
//
// It finds rows by where they are and not by their keys, which would be a look-up in the index for each.
func (s sealer) delete(ctx context.Context, tx pgx.Tx, places map[uint32][]pgtype.TID) error {
	for partition, at := range places {
		var table string
		if err := tx.QueryRow(ctx, "SELECT $1::oid::regclass::text", partition).Scan(&table); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "DELETE FROM "+table+" WHERE ctid = ANY($1)", at)
		if err != nil {
			return err
		}
		if n := tag.RowsAffected(); n != int64(len(at)) {
			return fmt.Errorf("%w: %d rows were sealed, and %d deleted", storage.ErrCorrupt, len(at), n)
		}
	}
	return nil
}

// ownNumber is the number of a row r, or, if that is one of another cluster from which it was copied, one before all
// others: a segment has the greatest of its readings, and those that this cluster has stored would not be found.
var ownNumber = fmt.Sprintf(
	"CASE WHEN r.changed < pg_snapshot_xmax(pg_current_snapshot())::text::bigint THEN r.changed ELSE %d END",
	firstTransaction)

// due reads the first rows of each device, from a time on, that may be sealed. What has expired stays, until an expiry
// has removed it: a segment has the number of its latest reading, so consumers would get it together with one that has
// arrived since.
func (s sealer) due(ctx context.Context, tx pgx.Tx, devices []string, fromMs []int64, beforeMs int64,
	due map[string][]dueRow) error {
	q := s.sql.reading.Load()
	expired, err := s.events().expired(ctx, tx)
	if err != nil {
		return err
	}
	keptMs := int64(math.MinInt64)
	for _, x := range expired {
		keptMs = max(keptMs, x.beforeUnixMs)
	}
	rows, err := tx.Query(ctx,
		s.sql.of(
			`SELECT d.device, v.signs, `+ownNumber+`, r.at, r.tab, `+q.record+` FROM unnest($1::text[], $4::bigint[]) AS d(device, from_ms) JOIN SCHEMA.devices AS v USING (device)
		CROSS JOIN LATERAL (SELECT *, ctid AS at, tableoid AS tab FROM SCHEMA.readings AS r WHERE r.device = d.device AND r.time_ms >= greatest(d.from_ms, $5) AND r.time_ms < $2 ORDER BY r.time_ms LIMIT $3) AS r`),
		pgx.QueryResultFormats{pgx.BinaryFormatCode}, devices, beforeMs, sealRows, fromMs, keptMs)
	if err != nil {
		return err
	}
	defer rows.Close()
	var gateway *vitals.Name
	for rows.Next() {
		v := rows.RawValues()
		if err := checkSizes(v[:min(5, len(v))], []int{text, 4, 8, 6, 4}); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(v[1])&^q.signs != 0 {
			return errUnknownSign
		}
		r := dueRow{changed: decodeInt64(v[2]), at: pgtype.TID{BlockNumber: binary.BigEndian.Uint32(v[3]),
			OffsetNumber: binary.BigEndian.Uint16(v[3][4:]), Valid: true}, table: binary.BigEndian.Uint32(v[4])}
		if r.Record, err = decodeRecord(v[5:], q.signs, gateway); err != nil {
			return err
		}
		gateway = r.Gateway
		due[string(v[0])] = append(due[string(v[0])], r)
	}
	return rows.Err()
}

// parts divides rows of a device into those of segments, without the last one with each sign. It returns the time of
// the first one that it leaves.
func (s sealer) parts(rows []dueRow, beforeMs int64) (all [][]dueRow, restMs int64) {
	type kind struct {
		signs     uint32
		gateway   string
		offset    vitals.UTCOffset
		shared    bool
		partition int64
		completed int64 // the high bits of completedMs: a column of segments has the others
	}
	kinds := map[kind][]dueRow{}
	restMs = math.MaxInt64
	seen := uint32(0)
	latest := make([]bool, len(rows))
	for i, r := range slices.Backward(rows) {
		latest[i] = r.Values.Present()&^seen != 0
		seen |= r.Values.Present()
	}
	flush := func(k kind) {
		part := kinds[k]
		kinds[k] = nil
		if len(part) >= s.opt.SealAtLeast || len(part) > 0 && part[0].TimeUnixMs < beforeMs-sealWait.Milliseconds() {
			all = append(all, part)
		} else if len(part) > 0 {
			restMs = min(restMs, part[0].TimeUnixMs)
		}
	}
	for i, r := range rows {
		if latest[i] {
			restMs = min(restMs, r.TimeUnixMs)
			continue
		}
		k := kind{r.Values.Present(), "", r.UTCOffset, r.Shared, partitionOf(r.TimeUnixMs), completedMs(&r.Record) >> 31}
		if r.Gateway != nil {
			k.gateway = r.Gateway.String()
		}
		if part := kinds[k]; len(part) > 0 && !fits(part, &r) {
			flush(k)
		}
		kinds[k] = append(kinds[k], r)
	}
	for k := range kinds {
		flush(k)
	}
	return all, restMs
}

// fits reports whether a row may follow others in a segment.
func fits(part []dueRow, r *dueRow) bool {
	const most = 1 << 30 // so that the range of delays is below 1 << 31
	delay := r.delayMs() - part[0].delayMs()
	return len(part) < maxSegment && r.TimeUnixMs-part[0].TimeUnixMs < maxSpanMs && -most < delay && delay < most
}

// verify reads segments back, and returns an error unless they have the readings that were moved.
func (s sealer) verify(ctx context.Context, tx pgx.Tx, all *segments, moved map[string][]storage.Record) error {
	q := s.sql.reading.Load()
	rows, err := tx.Query(ctx,
		s.sql.of("SELECT s.device, "+q.segment+` FROM unnest($1::text[], $2::bigint[]) AS k(device, last_ms)
		JOIN SCHEMA.segments AS s ON s.device = k.device AND s.last_ms = k.last_ms`),
		pgx.QueryResultFormats{pgx.BinaryFormatCode}, all.devices, all.lastMs)
	if err != nil {
		return err
	}
	defer rows.Close()
	read := map[string][]storage.Record{}
	for rows.Next() {
		v := rows.RawValues()
		g, err := decodeSegment(v[1:], q.signs, nil)
		if err != nil {
			return err
		}
		device := string(v[0])
		from := len(read[device])
		read[device] = slices.Grow(read[device], g.n)[:from+g.n]
		for i := range g.n {
			g.record(i, &read[device][from+i])
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	byTime := func(a, b storage.Record) int { return cmp.Compare(a.TimeUnixMs, b.TimeUnixMs) }
	for device, want := range moved {
		got := read[device]
		slices.SortFunc(got, byTime)
		slices.SortFunc(want, byTime)
		if !slices.EqualFunc(got, want, sameRecord) {
			return fmt.Errorf("%w: a segment differs from its rows", storage.ErrCorrupt)
		}
	}
	return nil
}

// sameRecord compares all but the addresses of gateways.
func sameRecord(a, b storage.Record) bool {
	if (a.Gateway == nil) != (b.Gateway == nil) || a.Gateway != nil && *a.Gateway != *b.Gateway {
		return false
	}
	a.Gateway, b.Gateway = nil, nil
	return a == b
}
