package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// partitions creates and drops the partitions of readings: one for each 30 days, as far as they are needed, and the
// default one.
type partitions struct {
	*database
	known sync.Map // the numbers of those that this node knows

	crowded sync.Once // warns of many partitions

	apartUntil atomic.Int64 // Unix ms; until then, a statement reads one partition: see find

	mu   sync.Mutex
	shut map[int64]time.Time // guarded by mu; until when readings of partitions that cannot be written are rejected

	createWithin string // the time that PostgreSQL may take to create a partition, as its setting statement_timeout has it

	failed sync.Map // the times until which partitions that could not be created are not tried again, by number
}

// A closedError means that a partition cannot be written: somebody has locked its table, or detached it. Nothing was
// written.
type closedError struct {
	partition int64
	err       error
}

func (e *closedError) Error() string { return e.err.Error() }
func (e *closedError) Unwrap() error { return e.err }

// closedFor is how long readings of a partition that cannot be written are rejected before the next one is tried;
// maxClosed is the number of partitions for which that is remembered.
const (
	closedFor = time.Minute
	maxClosed = 1000
)

// close notes that a partition cannot be written.
func (s *partitions) close(n int64, err error) error {
	s.known.Delete(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.shut[n]) {
		for k := range s.shut {
			if len(s.shut) < maxClosed {
				break
			}
			delete(s.shut, k)
		}
		s.shut[n] = now.Add(closedFor)
		s.opt.Log.Error("readings of a time cannot be stored, and are rejected for a minute", "from", showTime(n*partitionMs),
			"to", showTime(endOf(n)), "error", hide(err))
	}
	return &closedError{n, err}
}

// closed returns the partitions of which readings are rejected, nil if there are none.
func (s *partitions) closed() (all map[int64]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, until := range s.shut {
		if all == nil {
			all = map[int64]bool{}
		}
		if time.Now().After(until) {
			delete(s.shut, n)
		} else {
			all[n] = true
		}
	}
	return all
}

// partitionMs is the width of a partition of readings: 30 days.
const partitionMs = 30 * 24 * 60 * 60 * 1000

// partitionPrefix and a partition's number are the name of its table.
const partitionPrefix = "readings_p"

// partitionOf returns the number of the partition that a time belongs to.
func partitionOf(timeUnixMs int64) int64 { return timeUnixMs / partitionMs }

// endOf returns the exclusive upper bound of a partition.
func endOf(partition int64) int64 {
	if partition >= math.MaxInt64/partitionMs {
		return math.MaxInt64
	}
	return (partition + 1) * partitionMs
}

// ensure creates the partitions that the readings of w need, except those that are known. Another server may drop one
// before it is used: then the default partition gets the readings.
func (s *partitions) ensure(conn *pgx.Conn, w *work, known *sync.Map) error {
	last := int64(-1)
	for i := range w.chains {
		n := partitionOf(w.items[w.chains[i].from].e.Reading.TimeUnixMs)
		if n == last {
			continue
		}
		last = n
		if _, ok := known.Load(n); ok {
			continue
		}
		if err := s.create(conn, n); err != nil {
			return err
		}
		if known.Store(n, true); known == &s.known && s.opt.SealAfter == 0 {
			if err := s.warn(conn); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyPartitions is the number of partitions from which on a server warns: each costs a query for latest values time,
// and a connection memory.
const manyPartitions = 60

// warn logs once that there are many partitions.
func (s *partitions) warn(conn *pgx.Conn) error {
	all, err := s.list(conn)
	if len(all) >= manyPartitions {
		s.crowded.Do(func() {
			s.opt.Log.Warn(
				"readings have many partitions of 30 days, which makes queries slow: --seal-after drops those that it has emptied",
				"partitions", len(all))
		})
	}
	return err
}

// own reports whether a partition is created for readings that need it. Those of other times are stored in the default
// partition, if readings are sealed: there are few of them, or they are sealed soon. The partition before and after
// those of the readings that are not old enough are among them, as clocks differ.
func (s *partitions) own(n int64) bool {
	now := time.Now()
	return s.opt.SealAfter == 0 || n >= partitionOf(now.Add(-s.opt.SealAfter).UnixMilli())-1 &&
		n <= partitionOf(now.UnixMilli())+1
}

// hold keeps others from dropping partitions, from removing devices and from raising the horizon until tx ends.
func (s *partitions) hold(tx pgx.Tx) error {
	if err := s.sql.meetSealer(tx); err != nil { // before other locks, as in removals
		return err
	}
	return s.sql.lock(tx, "SCHEMA.readings IN ROW EXCLUSIVE MODE")
}

// create creates a partition unless there is one, or its readings are those of the default partition, and returns a
// closedError if it cannot be written. It does not wait for statements that read or write other partitions, and not for
// others that create partitions if there is one. The default partition, which PostgreSQL locks and reads, gets the
// readings if that is in use for long, takes long to read or has some of these times already. Then it is not tried
// again for a while, as others wait meanwhile. There is no transaction.
func (s *partitions) create(conn *pgx.Conn, partition int64) error {
	end := fmt.Sprint(endOf(partition))
	if endOf(partition) == math.MaxInt64 {
		end = "MAXVALUE"
	}
	until, _ := s.failed.Load(partition)
	after, _ := until.(time.Time)
	own := s.own(partition) && time.Now().After(after)
	results, err := conn.PgConn().Exec(context.Background(), s.sql.of(strings.NewReplacer(
		"KEY_", fmt.Sprint(s.lockKey), "TABLE_", fmt.Sprint("SCHEMA.", partitionPrefix, partition), "FIRST",
		fmt.Sprint(partition*partitionMs), "END_", end, "WAIT_", lockTimeout, "WITHIN", s.createWithin, "OWN_",
		fmt.Sprint(own),
	).Replace(`DO $$ BEGIN
	IF OWN_ AND to_regclass('TABLE_') IS NULL THEN
		LOCK TABLE ONLY SCHEMA.readings IN ROW EXCLUSIVE MODE; -- first, as in hold: others that hold it wait for this session
		PERFORM pg_advisory_xact_lock(KEY_);
	END IF;
END $$;
SET LOCAL statement_timeout = 'WITHIN';
DO $$ BEGIN
	IF OWN_ AND to_regclass('TABLE_') IS NULL THEN
		BEGIN
			PERFORM set_config('lock_timeout', '250ms', true);
			CREATE TABLE TABLE_ (LIKE SCHEMA.readings INCLUDING ALL);
			ALTER TABLE SCHEMA.readings ATTACH PARTITION TABLE_ FOR VALUES FROM (FIRST) TO (END_);
		EXCEPTION
			WHEN duplicate_table THEN -- by another session, which this one waited for: to_regclass may be of the time before
			WHEN check_violation OR lock_not_available OR query_canceled THEN
		END;
		PERFORM set_config('lock_timeout', 'WAIT_', true);
	END IF;
END $$;
SET LOCAL statement_timeout = 0;
DO $$ DECLARE stored_in text := 'TABLE_'; BEGIN
	IF to_regclass('TABLE_') IS NULL THEN
		stored_in := 'SCHEMA.readings_default';
	END IF;
	BEGIN
		PERFORM set_config('lock_timeout', '250ms', true);
		EXECUTE 'LOCK TABLE ONLY ' || stored_in || ' IN ROW EXCLUSIVE MODE';
	EXCEPTION
		WHEN lock_not_available THEN RAISE EXCEPTION 'another session has locked %', stored_in USING ERRCODE = '55006';
		WHEN undefined_table THEN -- it was dropped meanwhile
	END;
	PERFORM set_config('lock_timeout', 'WAIT_', true);
	IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = to_regclass('TABLE_') AND NOT EXISTS (
		SELECT FROM pg_inherits WHERE inhrelid = c.oid AND inhparent = to_regclass('SCHEMA.readings') AND NOT inhdetachpending)) THEN
		RAISE EXCEPTION 'TABLE_ exists, and is not attached to SCHEMA.readings' USING ERRCODE = '55000';
	END IF;
END $$;
SELECT to_regclass('TABLE_') IS NULL`))).ReadAll()
	if err == nil && own && string(results[len(results)-1].Rows[0][0]) == "t" {
		s.failed.Store(partition, time.Now().Add(closedFor))
	}
	switch state := sqlState(err); {
	case state == noTable || state == noSchema:
	// such as a missing privilege, or a partition that overlaps
	case state == inUse, state == notPrepared, len(state) == 5 && strings.HasPrefix(state, "42"):
		return s.close(partition, err)
	}
	return err
}

// attached is the expression of a number that changes with the set of partitions, also if one is detached and attached
// again.
const attached = "(SELECT hashtextextended(coalesce(string_agg(inhrelid || ' ' || xmin, ',' ORDER BY inhrelid), ''), " +
	"0) FROM pg_inherits WHERE inhparent = to_regclass('SCHEMA.readings'))"

// seenPartitions is the key of a connection's custom data for that number when the connection was made.
const seenPartitions = "pulsegate partitions"

// errUnseen means that a connection is older than a partition, or was made before one was dropped.
var errUnseen = errors.New("the connection may not see all partitions")

// sees returns errUnseen if the connection c, which conn uses, may not see all partitions. Then both pools replace
// their connections.
//
// ATTACH PARTITION does not block those who read or write other partitions. A backend of PostgreSQL 15 that is building
// its list of partitions at that moment may process the message that the list has changed before it caches the old one,
// and then uses that until partitions change again. Backends that start later are not affected. So connections in use
// are checked every second, and the last transaction of a removal checks its own while nothing can be attached. A
// connection that stores readings gets the error noPartition.
func (s *database) sees(ctx context.Context, conn querier, c *pgconn.PgConn) error {
	var now int64
	err := conn.QueryRow(ctx, s.sql.of("SELECT "+attached), pgx.QueryExecModeExec).Scan(&now)
	if err == nil && c.CustomData()[seenPartitions] != now {
		s.write.Reset()
		s.read.Reset()
		err = errUnseen
	}
	return err
}

// list returns the numbers of the partitions, in order.
func (s *partitions) list(conn *pgx.Conn) ([]int64, error) {
	rows, err := conn.Query(context.Background(),
		strings.ReplaceAll(`SELECT substr(c.relname, 1 + length('PREFIX'))::bigint AS number FROM pg_inherits AS i
		JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = $1::regclass AND c.relname ~ '^PREFIX[0-9]{1,18}$' ORDER BY number`, "PREFIX", partitionPrefix), s.opt.Schema+".readings")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// errUnannounced rolls back an expiry whose event is not there yet.
var errUnannounced = errors.New("the event of the expiry comes first")

// drop drops a partition with at most atMost readings, and returns their number and
// devices. If it has any, and they were not announced, it returns errUnannounced. It leaves a partition alone that is
// in use for long.
func (s *partitions) drop(conn *pgx.Conn, n, atMost int64, announced bool) (readings int64,
	devices []string, err error) {
	ctx := context.Background()
	table := fmt.Sprintf("%s.%s%d", s.opt.Schema, partitionPrefix, n)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// A segment of it could not be turned into rows again.
		if err := s.sql.meetSealer(tx); err != nil {
			return err
		}
		var sealed bool
		if err := tx.QueryRow(ctx, s.sql.of(`SELECT EXISTS (SELECT FROM SCHEMA.devices AS d CROSS JOIN LATERAL
			(SELECT FROM SCHEMA.segments AS s WHERE s.device = d.device AND s.first_ms < $1 LIMIT 1) AS s)`),
			endOf(n)).Scan(&sealed); err != nil {
			return err
		}
		if sealed {
			return errKept
		}
		if err := s.sql.lock(tx, "SCHEMA.readings, "+table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM (SELECT FROM %s LIMIT $1) AS r", table),
			max(atMost, 0)+1).Scan(&readings); err != nil {
			return err
		}
		switch {
		case readings > atMost:
			return errKept
		case readings > 0 && !announced:
			return errUnannounced
		}
		rows, err := tx.Query(ctx, "SELECT DISTINCT device FROM "+table)
		if err != nil {
			return err
		}
		if devices, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DROP TABLE "+table)
		return err
	})
	// another node has dropped it
	if state := sqlState(err); state == lockNotAvailable || state == noTable || errors.Is(err, errKept) {
		return 0, nil, nil
	}
	if errors.Is(err, errUnannounced) {
		return readings, nil, err
	}
	s.known.Delete(n)
	return readings, devices, err
}

// movedReadings is the largest number of readings that are left when a partition is emptied. Whoever needs the table
// waits while they move.
const movedReadings = 20_000

// defaultBytes is the size from which on the default partition is emptied to give space back, as after an import:
// vacuum keeps the pages of indexes.
const defaultBytes = 16 << 20

// retire drops the partitions whose readings, before a time, were sealed, and shrinks the default one. It leaves those
// that are in use, and gives up if the table is in use for long.
func (s *partitions) retire(ctx context.Context, conn *pgx.Conn, beforeMs int64) error {
	all, err := s.list(conn)
	if err != nil {
		return err
	}
	for _, n := range all {
		if s.own(n) || endOf(n) > beforeMs {
			continue
		}
		table := fmt.Sprint(s.opt.Schema, ".", partitionPrefix, n)
		if given, err := s.empty(ctx, conn, table, "DROP TABLE "+table); given || err != nil {
			return err
		}
		s.known.Delete(n)
	}
	var bytes int64
	table := s.opt.Schema + ".readings_default"
	if err := conn.QueryRow(ctx, "SELECT pg_total_relation_size($1::text::regclass)", table).Scan(&bytes); err != nil ||
		bytes < defaultBytes {
		return err
	}
	_, err = s.empty(ctx, conn, table, "TRUNCATE "+table)
	return err
}

// empty empties a partition by a statement, unless it has many readings, it is in use, or that takes long, and stores
// them again. It reports whether it has given up because the table is in use.
//
// Everybody waits while it has its locks, so it does not wait for standbys. After a failover to one that lacks the
// commit, the partition is as it was.
func (s *partitions) empty(ctx context.Context, conn *pgx.Conn, table, statement string) (givenUp bool, err error) {
	few := func(q querier) error {
		var left int
		err := q.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+table+" LIMIT $1) AS r", movedReadings+1).Scan(&left)
		if err == nil && left > movedReadings {
			err = errKept
		}
		return err
	}
	if err = few(conn); err == nil {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off; SET LOCAL idle_in_transaction_session_timeout = '10s';
				SET LOCAL tcp_user_timeout = '10s'`); err != nil {
				return err
			}
			if err := s.sql.meetSealer(tx); err != nil { // before other locks, as in groups
				return err
			}
			// A vacuum, or a change of the partition, is met before others have to wait for this transaction.
			if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+table+" IN SHARE UPDATE EXCLUSIVE MODE NOWAIT"); err != nil {
				return err
			}
			givenUp = true
			if _, err := tx.Exec(ctx,
				s.sql.of("SET LOCAL lock_timeout = '300ms'; LOCK TABLE ONLY SCHEMA.readings IN ACCESS EXCLUSIVE MODE")); err !=
				nil {
				return err
			}
			givenUp = false
			if _, err := tx.Exec(ctx,
				"LOCK TABLE ONLY "+table+" IN ACCESS EXCLUSIVE MODE; SET LOCAL statement_timeout = '500ms'"); err != nil {
				return err
			}
			if err := few(tx); err != nil {
				return err
			}
			// Consumers of logical decoding see a delete and an insert of what moves.
			_, err := tx.Exec(ctx,
				s.sql.of(strings.NewReplacer("TABLE_", table, "EMPTY_", statement).
					Replace(`DO $$ DECLARE kept SCHEMA.readings[]; places tid[]; BEGIN
	SELECT array_agg(r::SCHEMA.readings), array_agg(ctid) INTO kept, places FROM TABLE_ AS r;
	DELETE FROM TABLE_ WHERE ctid = ANY(places);
	EMPTY_;
	INSERT INTO SCHEMA.readings SELECT k.* FROM unnest(kept) AS k;
END $$`)))
			return err
		})
	}
	switch state := sqlState(err); {
	case state == lockNotAvailable || state == deadlock || state == canceled && ctx.Err() == nil:
		return givenUp, nil
	case errors.Is(err, errKept) || state == noTable: // retention has dropped it
		return false, nil
	}
	return false, err
}

// errKept rolls back what drop has begun.
var errKept = errors.New("the partition has more readings, or segments")
