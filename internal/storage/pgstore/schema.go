package pgstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// schemaVersion is the version of schema.
const schemaVersion = 1

// schema creates the tables but for the columns of signs, which [statements.columnsFor] adds. SCHEMA stands for the
// schema's name. A released one is never changed.
const schema = `
-- readings has also a column for each sign, named like its field, an integer in units of the sign's last decimal; NULL: absent.
CREATE TABLE SCHEMA.readings (
	device      text COLLATE "C" NOT NULL,
	time_ms     bigint NOT NULL,    -- when it was measured, Unix ms
	received_ms bigint NOT NULL,    -- when the first part of it arrived, Unix ms
	changed     bigint NOT NULL,    -- pg_current_xact_id() of the transaction that wrote it last; xid8 has no BRIN
	completed_ms bigint,            -- from received_ms until the last part of it arrived; NULL: none did later
	utc_offset  smallint,           -- of the time, in minutes; NULL: unknown
	shared      boolean NOT NULL,   -- a gateway other than the one named has completed it
	gateway     text COLLATE "C",   -- NULL: none
	PRIMARY KEY (device, time_ms)
) PARTITION BY RANGE (time_ms);
CREATE INDEX ON SCHEMA.readings USING brin (changed);

-- readings_default has the readings of times for which there is no partition. A row of a time whose partition is detached is refused.
CREATE TABLE SCHEMA.readings_default PARTITION OF SCHEMA.readings DEFAULT;
CREATE FUNCTION SCHEMA.refuse_detached() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF to_regclass('SCHEMA.PREFIX' || NEW.time_ms / WIDTH) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '23514', MESSAGE = 'the partition of a reading is detached';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER refuse_detached BEFORE INSERT ON SCHEMA.readings_default FOR EACH ROW EXECUTE FUNCTION SCHEMA.refuse_detached();

-- segments has readings of a device that were moved from readings: see docs/adr/0027-sealing.md. Those of a segment have the same signs, gateway, offset
-- and shared, and about the same completed_ms. The bytea columns, back, delays, completed and one for each sign, named like its field, have a number for each, in the order of their times: number_at
-- returns it. That of a sign is NULL if none has the sign.
CREATE TABLE SCHEMA.segments (
	device     text COLLATE "C" NOT NULL,
	last_ms    bigint NOT NULL,   -- time of the last reading
	first_ms   bigint NOT NULL,
	changed    bigint NOT NULL,   -- the greatest of its readings
	delay_ms   bigint NOT NULL,   -- shortest time between measurement and arrival; may be negative
	completed_ms bigint,          -- the shortest completed_ms of a reading, 0 if that is NULL; NULL: none has one
	n          integer NOT NULL,  -- number of readings
	signs      integer NOT NULL,  -- bits of their signs
	utc_offset smallint,
	shared     boolean NOT NULL,
	gateway    text COLLATE "C",
	back       bytea NOT NULL,    -- last_ms - time_ms
	delays     bytea NOT NULL,    -- received_ms - time_ms - delay_ms
	completed  bytea,             -- completed_ms of readings - completed_ms
	PRIMARY KEY (device, last_ms)
) WITH (toast_tuple_target = 512);
CREATE INDEX ON SCHEMA.segments (device, first_ms);
CREATE INDEX ON SCHEMA.segments USING brin (changed);

-- devices has also a column for each sign, named like its field with _ms at the end: the time of a reading with it; there may be later ones. NULL: not known.
CREATE TABLE SCHEMA.devices (
	device text COLLATE "C" PRIMARY KEY,
	signs  integer NOT NULL -- bits of the signs that it may have readings of
) WITH (fillfactor = 80);

CREATE TABLE SCHEMA.state (
	version    integer NOT NULL,
	devices    bigint NOT NULL,           -- number of rows in devices
	generation bigint NOT NULL,           -- incremented whenever rows of devices are deleted
	sealed_ms  bigint NOT NULL DEFAULT 0, -- all readings of segments are before it
	passed_ms  bigint NOT NULL DEFAULT 0  -- all devices have been looked through for readings before it
) WITH (fillfactor = 10);
INSERT INTO SCHEMA.state VALUES (1, 0, 1);

-- signs has the definitions of a user's own signs.
CREATE TABLE SCHEMA.signs (
	number     smallint PRIMARY KEY,
	definition text NOT NULL -- JSON
);

CREATE TABLE SCHEMA.assignments (
	device   text COLLATE "C" NOT NULL,
	from_ms  bigint NOT NULL,   -- Unix ms, inclusive
	to_ms    bigint NOT NULL,   -- exclusive; 9223372036854775807: it has not ended
	subject  text COLLATE "C" NOT NULL, -- empty: a span of nobody, see storage.Claim
	made_by  smallint NOT NULL, -- 0: by hand, 1: by HL7
	named_ms bigint NOT NULL,   -- if made by HL7, time of the latest reading that named the subject; otherwise 0
	changed  bigint NOT NULL,   -- as in readings; naming the subject again does not count
	changed_ms bigint NOT NULL, -- when that was, by a server's clock, Unix ms
	PRIMARY KEY (device, from_ms),
	CHECK (from_ms >= 0 AND from_ms < to_ms)
);
CREATE INDEX ON SCHEMA.assignments (subject, device, from_ms);

-- marks has the last transaction of each slot of each server.
CREATE TABLE SCHEMA.marks (
	server bigint NOT NULL,   -- random; each process has another one
	slot   smallint NOT NULL, -- a slot has one transaction at a time
	number bigint NOT NULL,   -- 0: it has had none
	at_ms  bigint NOT NULL,   -- when it was set, by the server's clock, Unix ms
	PRIMARY KEY (server, slot)
) WITH (fillfactor = 10);

-- changes has what servers remember beyond readings and assignments: see docs/adr/0026-repair.md.
CREATE TABLE SCHEMA.changes (
	id         bigint PRIMARY KEY,        -- random
	generation bigint NOT NULL,           -- of state, after the transaction that inserted the row
	since      bigint NOT NULL,           -- the same, where the change was made: a repair inserts the row again
	kind       smallint NOT NULL,         -- 1: a device was erased, 2: an assignment was, 3: old readings were removed, 4: a restore was accepted;
		-- 5: assignments were to be erased, 6: one was to be ended, and were not there; 7: values were erased
	device     text COLLATE "C" NOT NULL, -- of 1, 2 and 7
	from_ms    bigint NOT NULL,           -- first and last time of the removed readings, Unix ms
	to_ms      bigint NOT NULL,
	at_ms      bigint NOT NULL,           -- when, by the server's clock, Unix ms
	subject    text COLLATE "C" NOT NULL DEFAULT '', -- of 5 and 6
	signs      integer NOT NULL DEFAULT 0,          -- of 7: bits of the signs; 0: all
	gateway    text COLLATE "C" NOT NULL DEFAULT '', -- of 7: only readings that name it; empty: all
	shared     boolean NOT NULL DEFAULT false       -- of 7: also those that another gateway has completed
);

-- events has what consumers of changes are told besides readings: see feed.go. Numbers follow the order of commits.
CREATE TABLE SCHEMA.events (
	number   bigint PRIMARY KEY,
	kind     smallint NOT NULL, -- 0: positions from before it are not known, 1: nothing, 2 and more: see events.go
	at_ms    bigint NOT NULL,   -- when, by the server's clock, Unix ms
	changed  bigint NOT NULL,   -- as in readings
	seen     text NOT NULL,     -- pg_current_snapshot() of the transaction
	device   text COLLATE "C" NOT NULL DEFAULT '',
	subjects text NOT NULL DEFAULT '', -- with commas between them
	from_ms  bigint NOT NULL DEFAULT 0,
	to_ms    bigint NOT NULL DEFAULT 0, -- exclusive
	signs    bigint NOT NULL DEFAULT 0, -- bits
	remains  boolean NOT NULL DEFAULT false -- values from other gateways do
);
CREATE INDEX ON SCHEMA.events (device) WHERE device <> '';
CREATE INDEX ON SCHEMA.events (number) WHERE kind = 0;
CREATE INDEX ON SCHEMA.events (number) WHERE kind = 5;
INSERT INTO SCHEMA.events VALUES (1, 0, (extract(epoch FROM now()) * 1000)::bigint, pg_current_xact_id()::text::bigint, pg_current_snapshot()::text);

-- proofs has for each server that has read changes how often it has committed a row after it had read some: cursors name
-- one. changed is that of the row's last update, and so the row's own xmin unless the row was copied from another database.
CREATE TABLE SCHEMA.proofs (
	id      bigint PRIMARY KEY, -- random
	number  bigint NOT NULL,
	at_ms   bigint NOT NULL,    -- by the database's clock, Unix ms
	changed bigint NOT NULL
) WITH (fillfactor = 10);

-- cursor_key has the random key with which cursors are encrypted.
CREATE TABLE SCHEMA.cursor_key (key bytea NOT NULL);
INSERT INTO SCHEMA.cursor_key VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- losses has what was acknowledged and could not be put back.
CREATE TABLE SCHEMA.losses (
	id           bigint PRIMARY KEY, -- random
	from_ms      bigint NOT NULL,    -- when the first of it was acknowledged, at the earliest, Unix ms
	to_ms        bigint NOT NULL,    -- when the last of it was, at the latest
	at_ms        bigint NOT NULL,    -- when it was reported
	confirmed_ms bigint              -- when an operator confirmed it; NULL: nobody has
);

-- erasing has the erasures that have removed some readings, and not all. Scans of these readings fail for a minute after at; then any server
-- may finish the erasure: see erasing.go.
CREATE TABLE SCHEMA.erasing (
	id      bigint PRIMARY KEY, -- random
	device  text COLLATE "C" NOT NULL,
	from_ms bigint NOT NULL, -- first and last time of the readings, Unix ms
	to_ms   bigint NOT NULL, -- 9223372036854775807: the device is erased
	subject text COLLATE "C" NOT NULL, -- of an assignment; otherwise empty
	signs   integer NOT NULL, -- of values, as in changes
	gateway text COLLATE "C" NOT NULL,
	shared  boolean NOT NULL,
	at      timestamptz NOT NULL, -- when some were removed
	since   bigint NOT NULL, -- pg_current_xact_id() of the last transaction of the server that began; 0: unknown
	own     bigint[] NOT NULL -- those of servers that have taken it over
);
CREATE INDEX ON SCHEMA.erasing (device);

-- bucket divides the devices into 1024 parts, for more than one primary.
CREATE FUNCTION SCHEMA.bucket(device text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (get_byte(sha256(convert_to(device, 'UTF8')), 0) << 2) | (get_byte(sha256(convert_to(device, 'UTF8')), 1) >> 6);

-- refuse rolls a transaction back, for a reason with an SQLSTATE of its own: PU001, PU002.
CREATE FUNCTION SCHEMA.refuse(condition text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION USING ERRCODE = condition, MESSAGE = CASE condition
		WHEN 'PU001' THEN 'this database lacks what a Pulsegate server has acknowledged, and is not written to before it is repaired'
		ELSE 'something was removed or sealed since the Pulsegate server looked: it sends the transaction again' END;
END $$;

-- uint32_at returns four bytes from one on. Not STRICT, as number_at is not: PostgreSQL would not inline them.
CREATE FUNCTION SCHEMA.uint32_at(b bytea, i integer) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN (get_byte(b, i)::bigint << 24) | (get_byte(b, i + 1) << 16) | (get_byte(b, i + 2) << 8) | get_byte(b, i + 3);

-- number_at returns a number of a column of segments, which has, big-endian: in one byte, how many bytes each number has, 1, 2 or 4; four bytes of a
-- divisor; four of the least number, plus 2,147,483,648; and for each, how much it is above the least one, divided by the divisor.
CREATE FUNCTION SCHEMA.number_at(b bytea, i integer) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN SCHEMA.uint32_at(b, 5) - 2147483648 + SCHEMA.uint32_at(b, 1) * CASE get_byte(b, 0) WHEN 1 THEN get_byte(b, 9 + i)::bigint
		WHEN 2 THEN ((get_byte(b, 9 + 2 * i) << 8) | get_byte(b, 10 + 2 * i))::bigint ELSE SCHEMA.uint32_at(b, 9 + 4 * i) END;

-- numbers_from returns such a column without its first numbers.
CREATE FUNCTION SCHEMA.numbers_from(b bytea, i integer) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN substring(b FOR 9) || substring(b FROM 10 + i * get_byte(b, 0));
`

// columnsFor returns the statements that add columns for signs to the tables.
func (q *statements) columnsFor(signs []vitals.Sign) string {
	return q.of(q.each(signs, `ALTER TABLE SCHEMA.segments ADD COLUMN NAME bytea;
ALTER TABLE SCHEMA.readings ADD COLUMN NAME integer;
ALTER TABLE SCHEMA.devices ADD COLUMN NAME_MS bigint;
`, "") + `DO $$ DECLARE c text; BEGIN
	FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'SCHEMA.segments'::regclass AND atttypid = 'bytea'::regtype AND attnum > 0 AND NOT attisdropped LOOP
		BEGIN
			EXECUTE format('ALTER TABLE SCHEMA.segments ALTER COLUMN %I SET COMPRESSION lz4', c);
		EXCEPTION WHEN feature_not_supported THEN -- this PostgreSQL was built without it
		END;
	END LOOP;
END $$;
`)
}

// viewsOf returns the statements that define what names the columns of all signs: the view, and functions. signs are in
// the order of the columns. Servers call the functions, and so need not know all signs.
func (q *statements) viewsOf(signs []vitals.Sign) string {
	const timeMs = "s.last_ms - SCHEMA.number_at(b.back, i)"
	const read = "s.NAME || ''::bytea AS NAME" // each is read once
	flat := "(SELECT s.back || ''::bytea AS back, s.delays || ''::bytea AS delays, s.completed || ''::bytea AS " +
		"completed, " + q.each(signs, read, ", ") + " OFFSET 0) AS b"
	return q.of(`
-- all_readings has all readings in the units of the API, one row each; NULL is an absent sign. What is stored with a reading
-- begins at stored_from_ms and ends at stored_to_ms.
CREATE OR REPLACE VIEW SCHEMA.all_readings AS
SELECT device, time_ms, received_ms, utc_offset AS utc_offset_minutes, gateway, time_ms AS stored_from_ms, time_ms AS stored_to_ms,
	` + q.each(signs, "NAME UNIT AS NAME", ", ") + `
FROM SCHEMA.readings
UNION ALL
SELECT s.device, ` + timeMs + ", " + timeMs +
		` + s.delay_ms + SCHEMA.number_at(b.delays, i), s.utc_offset, s.gateway, s.first_ms, s.last_ms,
	` + q.each(signs, "SCHEMA.number_at(b.NAME, i) UNIT", ", ") + `
FROM SCHEMA.segments AS s CROSS JOIN LATERAL ` + flat + ` CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i;

-- readings_between returns those of all_readings from one time to another, Unix ms, exclusive. It reads what is stored with them only.
CREATE OR REPLACE FUNCTION SCHEMA.readings_between(from_ms bigint, to_ms bigint) RETURNS SETOF SCHEMA.all_readings LANGUAGE sql STABLE PARALLEL SAFE ROWS 1000 AS
	'SELECT * FROM SCHEMA.all_readings AS r WHERE r.stored_to_ms >= $1 AND r.stored_from_ms < $2 AND r.time_ms >= $1 AND r.time_ms < $2';

-- rows_of returns the readings of a segment as rows that the transaction has changed: consumers of changes find what moves. What has expired
-- since they were changed they do not get again.
CREATE OR REPLACE FUNCTION SCHEMA.rows_of(segment SCHEMA.segments) RETURNS SETOF SCHEMA.readings LANGUAGE sql STABLE ROWS 500 AS $$
SELECT s.device, ` + timeMs + ", " + timeMs + ` + s.delay_ms + SCHEMA.number_at(b.delays, i),
	CASE WHEN ` + timeMs + ` < x.before_ms THEN ` + fmt.Sprint(firstTransaction) + ` ELSE ` + transaction +
		` END, nullif(s.completed_ms + SCHEMA.number_at(b.completed, i), 0), s.utc_offset, s.shared, s.gateway,
	` + q.each(signs, "SCHEMA.number_at(b.NAME, i)::integer", ", ") + `
FROM (SELECT ($1).* OFFSET 0) AS s CROSS JOIN LATERAL ` + flat + `
	CROSS JOIN LATERAL (SELECT max(e.to_ms) AS before_ms FROM SCHEMA.events AS e WHERE e.kind = 5 AND e.changed > s.changed) AS x
	CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i $$;

-- cut_segments removes the first readings of segments, given by device, last_ms, n and how many, and returns how many there were. It updates the
-- segments: a transaction that waits for one would not find another row in its place. TestCutBesideLate checks it.
CREATE OR REPLACE FUNCTION SCHEMA.cut_segments(text[], bigint[], integer[], integer[]) RETURNS bigint LANGUAGE sql AS $$
WITH gone AS (UPDATE SCHEMA.segments AS s SET n = s.n - k.due, first_ms = s.last_ms - SCHEMA.number_at(s.back, k.due),
		back = SCHEMA.numbers_from(s.back, k.due), delays = SCHEMA.numbers_from(s.delays, k.due),
		completed = SCHEMA.numbers_from(s.completed, k.due), ` + q.each(signs, "NAME = SCHEMA.numbers_from(s.NAME, k.due)",
		", ") + `
	FROM unnest($1, $2, $3, $4) AS k(device, last_ms, n, due) WHERE s.device = k.device AND s.last_ms = k.last_ms AND s.n = k.n RETURNING k.due)
SELECT coalesce(sum(due), 0)::bigint FROM gone $$;
`)
}

// lockKey returns the key of an advisory lock: that for changing a schema, "schema", or that of
// its nodes, "nodes".
func lockKey(what, schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("pulsegate " + what + " " + schema))
	return int64(h.Sum64())
}

// createSchema creates the schema unless it exists. It returns storage.ErrFormat if the schema has
// another version than this program's. Nodes that start at once wait for each other.
func (s *database) createSchema(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", s.lockKey); err != nil {
		return fmt.Errorf("lock schema: %w", hide(err))
	}
	defer func() { _, _ = conn.Exec(context.Background(), "SELECT pg_advisory_unlock($1)", s.lockKey) }()
	version, unreleased, err := s.version(ctx, conn)
	switch {
	case err != nil:
		return fmt.Errorf("read version of schema %s: %w", s.opt.Schema, hide(err))
	case unreleased:
		return fmt.Errorf(
			"%w: schema %s has version %d of before release 0.1.0: export the readings with the pulsegate that wrote it, drop "+
				"the schema, and import them",
			storage.ErrFormat, s.opt.Schema, version)
	case version == schemaVersion:
		return nil
	case version != 0:
		return s.upgrade(version)
	case s.opt.Move == MoveFrom || s.opt.Existing:
		return fmt.Errorf("%w: the database has no schema %s", storage.ErrFormat, s.opt.Schema)
	}
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// IF NOT EXISTS would need the right to create schemas even if this one exists.
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", s.opt.Schema).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			if _, err := tx.Exec(ctx, "CREATE SCHEMA "+s.opt.Schema); err != nil {
				return err
			}
		}
		tables := strings.NewReplacer("PREFIX", partitionPrefix, "WIDTH", fmt.Sprint(partitionMs)).Replace(schema)
		if _, err := tx.Exec(ctx, s.sql.of(tables)); err != nil {
			return err
		}
		return dictionary{s}.add(ctx, tx)
	}); err != nil {
		return fmt.Errorf("create schema %s: %w", s.opt.Schema, hide(err))
	}
	s.opt.Log.Info("schema created", "schema", s.opt.Schema, "version", schemaVersion)
	return nil
}

// upgrade makes the schema of another version this program's. It knows none yet.
func (s *database) upgrade(from int) error {
	return fmt.Errorf("%w: schema %s has version %d, and this program knows version %d: use a newer pulsegate",
		storage.ErrFormat, s.opt.Schema, from, schemaVersion)
}

// version returns the version of the schema; 0 if there is none. Schemas of before release 0.1.0 have a table or a view
// meta, and numbers of their own, or no column own of the
// table erasing.
func (s *database) version(ctx context.Context, conn *pgx.Conn) (version int, unreleased bool, err error) {
	var state, meta, own bool
	if err := conn.QueryRow(ctx,
		`SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL,
		EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($3) AND attname = 'own')`,
		s.opt.Schema+".state", s.opt.Schema+".meta", s.opt.Schema+".erasing").Scan(&state, &meta, &own); err != nil {
		return 0, false, err
	}
	table := "state"
	switch {
	case !state && !meta:
		return 0, false, nil
	case !state:
		table = "meta"
	}
	err = conn.QueryRow(ctx, s.sql.of("SELECT version FROM SCHEMA."+table)).Scan(&version)
	return version, meta || version == schemaVersion && !own, err
}

// statements are the SQL texts of a store.
type statements struct {
	schema string
	signs  *vitals.Signs

	prepared map[string]string // of writing connections, by name; writing has the others

	hold, generation, meet, unseal string // names of prepared ones
	marked                         string
	begin                          string // begins a transaction that reads readings: see docs/adr/0027-sealing.md
	share                          string // locks the table for it

	reading atomic.Pointer[readStatements]
	writing atomic.Pointer[writeStatements]
}

// readStatements name all signs that have columns, as far as this server knows.
type readStatements struct {
	signs uint32

	// columns of a row r of readings that decodeRecord decodes, and of a row s of segments that decodeSegment does
	record, segment string

	device, devices, latest, scan, scanDown, segments, segmentsDown, shown string

	changedIn, copied, changedSegments, copiedSegments, counted string // of changes; see changedVisit
}

// writeStatements name the signs that this server has ever stored: in all its life, there are at most as many of them
// as there are signs.
type writeStatements struct {
	signs    uint32
	prepared map[string]string

	insert, insertNew, complete, find, hint string // names of prepared ones
	findIn                                  string

	settleTypes, hintTypes []uint32 // of the elements of their parameters
}

// of replaces SCHEMA by the schema's name.
func (q *statements) of(sql string) string { return strings.ReplaceAll(sql, "SCHEMA", q.schema) }

// each returns text once for each sign, joined by sep. It replaces NAME and NAME_MS by the quoted names of the sign's
// columns, NUM by its number, and UNIT by what makes the number of a column one in the sign's unit.
func (q *statements) each(signs []vitals.Sign, text, sep string) string {
	var all []string
	for _, sg := range signs {
		d := q.signs.Of(sg)
		unit := [...]string{"::numeric", "* 0.1", "* 0.01", "* 0.001"}[d.Decimals]
		all = append(all, strings.NewReplacer("NAME_MS", `"`+d.Field+`_ms"`, "NAME", `"`+d.Field+`"`, "NUM",
			fmt.Sprint(int(sg)), "UNIT", unit).Replace(text))
	}
	return strings.Join(all, sep)
}

// inBits returns the signs of a bit set in the order of their numbers.
func inBits(signs uint32) (all []vitals.Sign) {
	for ; signs != 0; signs &= signs - 1 {
		all = append(all, vitals.Sign(bits.TrailingZeros32(signs)))
	}
	return all
}

// recordColumns returns the columns of a row r of readings that decodeRecord decodes.
func (q *statements) recordColumns(signs uint32) string {
	return "r.time_ms, r.received_ms, r.utc_offset, r.shared, r.gateway, r.completed_ms" +
		q.each(inBits(signs), ", r.NAME", "")
}

func newStatements(schema string, signs *vitals.Signs) *statements {
	q := &statements{schema: schema, signs: signs, hold: "hold", generation: "generation", meet: "meet", unseal: "unseal"}
	q.prepared = map[string]string{
		q.hold: q.of("LOCK TABLE ONLY SCHEMA.readings IN ROW EXCLUSIVE MODE"),

		// The standbys may be removed from the configuration while a connection is in use. The last column rolls the
		// transaction back if the database has forgotten, and if something was removed, or sealed, since this server looked:
		// the attempt may be one that was given up, and reaches the database late. All parts see the same snapshot, of before
		// the update.
		q.generation: q.of(
			`WITH own AS (INSERT INTO SCHEMA.marks AS k (server, slot, number, at_ms) VALUES ($1::bigint, $2::smallint, ` +
				`$3::bigint, ` + markedMs + `)
	ON CONFLICT (server, slot) DO UPDATE SET number = greatest(k.number, excluded.number), at_ms = excluded.at_ms)
SELECT generation, current_setting('synchronous_standby_names') <> '', CASE WHEN NOT (` + remembered +
				`) THEN SCHEMA.refuse('` + forgotten + `')
	WHEN sealed_ms > $8::bigint OR generation > $9::bigint THEN SCHEMA.refuse('` + outdated +
				`') ELSE 0 END FROM SCHEMA.state`),

		q.meet: fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d)", lockKey("seal", schema)),
		q.unseal: q.of(
			unsealing(
				"USING unnest($1::text[], $2::bigint[]) AS k(device, time_ms) WHERE s.device = k.device AND s.first_ms <= " +
					"k.time_ms AND s.last_ms >= k.time_ms AND s.last_ms < least(k.time_ms, " +
					fmt.Sprint(int64(math.MaxInt64-maxSpanMs)) + ") + " + fmt.Sprint(maxSpanMs))),
	}
	q.share = q.of("LOCK TABLE ONLY SCHEMA.readings IN ACCESS SHARE MODE")
	q.begin = "BEGIN; " + q.share
	q.marked = q.of("SELECT slot, number, at_ms FROM SCHEMA.marks WHERE server = $1::bigint")
	q.writing.Store(q.newWriting(0))
	return q
}

// transaction is the number of the transaction as a value of a column changed.
const transaction = "(SELECT pg_current_xact_id()::text::bigint)"

// seen returns the statements for groups that have some signs.
func (q *statements) seen(signs uint32) *writeStatements {
	for {
		old := q.writing.Load()
		if signs&^old.signs == 0 {
			return old
		}
		q.writing.CompareAndSwap(old, q.newWriting(old.signs|signs))
	}
}

func (q *statements) newWriting(signs uint32) *writeStatements {
	w := &writeStatements{signs: signs, settleTypes: slices.Clone(settleTypes[:]), hintTypes: []uint32{pgtype.TextOID}}
	all := inBits(signs)
	var values, times string
	for range all {
		w.settleTypes, w.hintTypes = append(w.settleTypes, pgtype.Int4OID), append(w.hintTypes, pgtype.Int8OID)
		values += fmt.Sprintf(", $%d::integer[]", len(w.settleTypes))
		times += fmt.Sprintf(", $%d::bigint[]", len(w.hintTypes))
	}
	for i, name := range []*string{&w.insert, &w.insertNew, &w.complete, &w.find, &w.hint} {
		*name = fmt.Sprintf("%s of %x", [...]string{"insert", "insert new", "complete", "find", "hint"}[i], signs)
	}
	columns := q.each(all, ", NAME", "")
	insert :=
		`INSERT INTO SCHEMA.readings (device, time_ms, received_ms, changed, utc_offset, shared, gateway, completed_ms` +
			columns + `)
SELECT device, time_ms, received_ms, ` + transaction + `, utc_offset, shared, gateway, completed_ms` + columns + `
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::boolean[], $6::text[], $7::bigint[]` + values +
			`) AS u(device, time_ms, received_ms, utc_offset, shared, gateway, completed_ms` + columns + `)`
	// LATERAL, and LIMIT, because a join of many keys would read all readings.
	find := `SELECT k.device, ` + q.recordColumns(signs) + `
FROM unnest($1::text[], $2::bigint[]) AS k(device, time_ms)
CROSS JOIN LATERAL (SELECT * FROM SCHEMA.readings AS r WHERE r.device = k.device AND r.time_ms = k.time_ms%s LIMIT 1 FOR UPDATE) AS r`
	w.findIn = q.of(fmt.Sprintf(find, " AND r.time_ms BETWEEN %d AND %d"))
	w.prepared = map[string]string{
		// ON CONFLICT costs another look-up in the index and another record in the log, for each row.
		w.insert:    q.of(insert),
		w.insertNew: q.of(insert + " ON CONFLICT (device, time_ms) DO NOTHING RETURNING device, time_ms"),

		// The records are locked, so there is a conflict. An UPDATE with a join would lock all partitions, and perhaps read
		// them. Signs that this server has never stored stay as they are.
		w.complete: q.of(insert +
			" ON CONFLICT (device, time_ms) DO UPDATE SET changed = excluded.changed, utc_offset = excluded.utc_offset, " +
			"shared = excluded.shared, gateway = excluded.gateway, completed_ms = excluded.completed_ms" +
			q.each(all, ", NAME = excluded.NAME", "")),

		w.find: q.of(fmt.Sprintf(find, "")),
	}
	if signs != 0 {
		// SKIP LOCKED, because these are hints: two nodes need not wait for each other.
		w.prepared[w.hint] =
			q.of(`WITH free AS (SELECT device FROM SCHEMA.devices WHERE device = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
UPDATE SCHEMA.devices AS d SET ` + q.each(all, "NAME_MS = greatest(d.NAME_MS, u.NAME_MS)", ", ") + `
FROM free, unnest($1::text[]` + times + `) AS u(device` + q.each(all, ", NAME_MS", "") + `)
WHERE d.device = free.device AND u.device = free.device`)
	}
	return w
}

func (q *statements) newReading(signs uint32) *readStatements {
	r := &readStatements{signs: signs, record: q.recordColumns(signs)}
	all := inBits(signs)
	r.segment =
		"s.first_ms, s.last_ms, s.n, s.signs, s.gateway, s.utc_offset, s.shared, s.delay_ms, s.back, s.delays, " +
			"s.completed_ms, s.completed" + q.each(all, ", s.NAME", "")
	r.shown =
		q.of(`SELECT EXISTS (SELECT FROM SCHEMA.erasing WHERE device = $1 AND from_ms < $3 AND to_ms >= $2 AND at > now() - interval '` + hiddenFor + `'),
	coalesce((SELECT signs FROM SCHEMA.devices WHERE device = $1), 0)`)

	page := "SELECT device, signs, ARRAY[" + q.each(all, "NAME_MS", ", ") +
		"]::bigint[] FROM SCHEMA.devices WHERE device %s"
	r.device, r.devices = q.of(fmt.Sprintf(page, "= $1")), q.of(fmt.Sprintf(page, "> $1 ORDER BY device LIMIT $2"))
	value := "CASE h.sign" + q.each(all, " WHEN NUM THEN r.NAME", "") + " END"
	r.latest =
		q.of(`SELECT h.at, r.time_ms, r.value, r.utc_offset FROM unnest($1::integer[], $2::text[], $3::integer[], $4::bigint[]) AS h(at, device, sign, from_ms)
CROSS JOIN LATERAL (SELECT r.time_ms, ` + value + ` AS value, r.utc_offset FROM SCHEMA.readings AS r
	WHERE r.device = h.device AND ` + value +
			` IS NOT NULL AND r.time_ms >= h.from_ms AND r.time_ms >= $5 ORDER BY r.time_ms DESC LIMIT 1) AS r`)

	scan := "SELECT " + r.record + ` FROM SCHEMA.readings AS r
WHERE device = $1 AND time_ms >= $2 AND time_ms < $3 ORDER BY time_ms %s LIMIT $4`
	r.scan, r.scanDown = q.of(fmt.Sprintf(scan, "")), q.of(fmt.Sprintf(scan, "DESC"))
	// Values of segments that a page does not need are not read: before is the number of readings of the segments before
	// one, and next_ms where the first of the others starts. The bound of the other end, which follows from maxSpanMs, is
	// for the index.
	segments := "SELECT " + r.segment +
		`, s.next_ms FROM (SELECT s.*, lead(START) OVER w AS next_ms, coalesce(sum(n) FILTER (WHERE WHOLE) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
	FROM (SELECT * FROM SCHEMA.segments WHERE device = $1 AND EDGE $5 AND last_ms >= $2 AND first_ms < $3 ORDER BY ORDERED LIMIT $4) AS s
	WINDOW w AS (ORDER BY ORDERED)) AS s WHERE s.before < $6`
	r.segments = q.of(strings.NewReplacer("START", "first_ms", "WHOLE", "first_ms >= $2", "EDGE", "first_ms >", "ORDERED",
		"first_ms").Replace(segments))
	q.changes(r)
	r.segmentsDown = q.of(strings.NewReplacer("START", "last_ms", "WHOLE", "last_ms < $3", "EDGE", "last_ms <", "ORDERED",
		"last_ms DESC").Replace(segments))
	return r
}

// changes sets the statements of changes. The first columns are what else is needed of a row or a segment.
func (q *statements) changes(r *readStatements) {
	const key = "x.device >= $1 AND x.device < $2 AND (x.device, x.%s) > ($3, $4)"
	const inWindow = "x.changed >= $%d AND x.changed < $%d AND x.changed <> ALL($%d::bigint[])"
	const late = "x.changed = ANY($%d::bigint[])"
	rows := "SELECT x.*, coalesce((SELECT signs FROM SCHEMA.devices AS v WHERE v.device = x.device), 0) AS known FROM " +
		"SCHEMA.readings AS x WHERE " + fmt.Sprintf(key, "time_ms") + " AND "
	read := "SELECT r.device, r.known, r.changed, " + r.record + " FROM r ORDER BY r.device, r.time_ms"
	// Numbers are looked for first: the order must not make PostgreSQL read another index. OR might make it read the
	// table.
	r.changedIn = q.of("WITH r AS MATERIALIZED (" + rows + fmt.Sprintf(inWindow, 5, 6, 7) + " UNION ALL " +
		rows + fmt.Sprintf(late, 8) + ") " + read + " LIMIT $9")
	r.copied = q.of("SELECT r.device, coalesce((SELECT signs FROM SCHEMA.devices AS v WHERE v.device = r.device), 0), " +
		ownNumber + ", " + r.record + " FROM SCHEMA.readings AS r WHERE " +
		strings.ReplaceAll(fmt.Sprintf(key, "time_ms"), "x.", "r.") + " ORDER BY r.device, r.time_ms LIMIT $5")
	segments := "SELECT x.* FROM SCHEMA.segments AS x WHERE " + fmt.Sprintf(key, "last_ms")
	read = "SELECT s.device, s.changed, " + r.segment + " FROM s ORDER BY s.device, s.first_ms, s.last_ms"
	r.changedSegments = q.of("WITH s AS MATERIALIZED (" + segments + " AND x.changed >= $5 AND x.changed < $6) " +
		read + " LIMIT $7")
	r.copiedSegments = q.of("SELECT s.device, " + strings.ReplaceAll(ownNumber, "r.", "s.") + ", " + r.segment +
		" FROM SCHEMA.segments AS s WHERE " +
		strings.ReplaceAll(fmt.Sprintf(key, "last_ms"), "x.", "s.") + " ORDER BY s.device, s.first_ms, s.last_ms LIMIT $5")
	// What is MATERIALIZED is planned as if all of it was read: a LIMIT within it might make PostgreSQL read the table.
	r.counted = q.of("WITH r AS MATERIALIZED (SELECT 1 FROM SCHEMA.readings AS x WHERE " + fmt.Sprintf(inWindow, 1, 2, 3) +
		" UNION ALL SELECT 1 FROM SCHEMA.readings AS x WHERE " + fmt.Sprintf(late, 4) +
		"), s AS MATERIALIZED (SELECT 1 FROM SCHEMA.segments AS x WHERE x.changed >= $5 AND x.changed < $6" +
		") SELECT (SELECT count(*) FROM (SELECT FROM r LIMIT $7) AS r), (SELECT count(*) FROM (SELECT FROM s LIMIT $8) AS s)")
}

// remembered is the condition that state and marks have at least what a server, $1, knows: the numbers of its slots,
// $5, the generation, $6, and the last change, $7. A slot whose number is 0 has acknowledged nothing, and may have no
// row; change 0 is none.
const remembered = `($7::bigint = 0 OR EXISTS (SELECT FROM SCHEMA.changes AS c WHERE c.id = $7::bigint)) AND generation >= $6::bigint
	AND (SELECT count(*) FROM SCHEMA.marks AS k WHERE k.server = $1::bigint AND ($5::bigint[])[k.slot + 1] BETWEEN 1 AND k.number) = (SELECT count(*) FROM unnest($5::bigint[]) AS a WHERE a > 0)`
