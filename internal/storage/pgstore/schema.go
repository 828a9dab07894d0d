package pgstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// schemaVersion is the version of schema and upgrades.
const schemaVersion = 8

// schema creates the tables of version 2. SCHEMA stands for the schema's name. A released one is never
// changed.
const schema = `
CREATE TABLE SCHEMA.readings (
	device      text COLLATE "C" NOT NULL,
	time_ms     bigint NOT NULL,    -- when it was measured, Unix ms
	received_ms bigint NOT NULL,    -- when the first part of it arrived, Unix ms
	sys         smallint,           -- systolic pressure, hundredths of mm[Hg]; negative: add 65536
	dia         smallint,           -- diastolic pressure, the same
	spo2        smallint,           -- oxygen saturation, hundredths of %
	hr          smallint,           -- heart rate, hundredths of /min
	rhr         smallint,           -- resting heart rate, hundredths of /min
	utc_offset  smallint,           -- of the time, in minutes; NULL: unknown
	had         smallint NOT NULL,  -- bits of the signs that it had before its last completion; 0 or -1: not completed
	shared      boolean NOT NULL DEFAULT false, -- a gateway other than the one named has completed it
	gateway     text COLLATE "C",   -- NULL: none
	PRIMARY KEY (device, time_ms)
) PARTITION BY RANGE (time_ms);

CREATE TABLE SCHEMA.devices (
	device  text COLLATE "C" PRIMARY KEY,
	signs   smallint NOT NULL, -- bits of the signs that it may have readings of
	-- Times of readings with each sign; there may be later ones. NULL: not known.
	sys_ms  bigint,
	dia_ms  bigint,
	spo2_ms bigint,
	hr_ms   bigint,
	rhr_ms  bigint
) WITH (fillfactor = 80);

CREATE TABLE SCHEMA.meta (
	version    integer NOT NULL,
	devices    bigint NOT NULL,  -- number of rows in devices
	generation bigint NOT NULL   -- incremented whenever rows of devices are deleted
) WITH (fillfactor = 10);
INSERT INTO SCHEMA.meta VALUES (2, 0, 1);

-- bucket divides the devices into 1024 parts, for more than one primary.
CREATE FUNCTION SCHEMA.bucket(device text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (get_byte(sha256(convert_to(device, 'UTF8')), 0) << 2) | (get_byte(sha256(convert_to(device, 'UTF8')), 1) >> 6);

CREATE TABLE SCHEMA.assignments (
	device  text COLLATE "C" NOT NULL,
	from_ms bigint NOT NULL, -- Unix ms, inclusive
	to_ms   bigint NOT NULL, -- exclusive; 9223372036854775807: it has not ended
	subject text COLLATE "C" NOT NULL,
	made_by smallint NOT NULL, -- 0: by hand, 1: by HL7
	named_ms bigint NOT NULL,  -- time of the latest reading that named the subject, if made by HL7; otherwise 0
	PRIMARY KEY (device, from_ms),
	CHECK (from_ms >= 0 AND from_ms < to_ms)
);
CREATE INDEX ON SCHEMA.assignments (subject, device, from_ms);
`

// upgrades are what makes version 3 of version 2, and so on.
var upgrades = [...]string{upgrade3, upgrade4, upgrade5, upgrade6, upgrade7, upgrade8}

// upgrade3 makes version 3 of version 2. It rewrites nothing: the columns are NULL in all rows that there
// are, and in all later ones without the signs from number 5 on. Servers of version 2 that still run name the columns that they
// write, so they leave the new ones as they are.
const upgrade3 = `
ALTER TABLE SCHEMA.readings
	ADD COLUMN more     integer[], -- number, value, number, value … of the signs from number 5 on, by number; NULL: none
	ADD COLUMN had_more integer;   -- bits of these, as had has those of the others; NULL: none
ALTER TABLE SCHEMA.devices
	ADD COLUMN more     integer;   -- bits of the signs from number 5 on that it may have readings of; NULL: none

-- signs has the definitions of a user's own signs.
CREATE TABLE SCHEMA.signs (
	number     smallint PRIMARY KEY,
	definition text NOT NULL -- JSON
);

-- more_bits returns the bits of the signs of a value of readings.more.
CREATE FUNCTION SCHEMA.more_bits(a integer[]) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (SELECT bit_or(1 << a[i]) FROM generate_series(1, cardinality(a), 2) AS i);

-- more_value returns the value of a sign, or NULL.
CREATE FUNCTION SCHEMA.more_value(a integer[], number integer) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (SELECT a[i + 1] FROM generate_series(1, cardinality(a), 2) AS i WHERE a[i] = number);

-- more_merge returns a with the signs of b that it lacks.
CREATE FUNCTION SCHEMA.more_merge(a integer[], b integer[]) RETURNS integer[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (SELECT array_agg(u.x ORDER BY m.number, u.at)
		FROM (SELECT a[i] AS number, a[i + 1] AS value FROM generate_series(1, cardinality(a), 2) AS i
			UNION ALL SELECT b[i], b[i + 1] FROM generate_series(1, cardinality(b), 2) AS i WHERE SCHEMA.more_bits(a) & (1 << b[i]) = 0) AS m
		CROSS JOIN LATERAL (VALUES (1, m.number), (2, m.value)) AS u(at, x));

UPDATE SCHEMA.meta SET version = 3;
`

// upgrade4 makes version 4 of version 3. Servers of version 3 that still run do not use the table.
const upgrade4 = `
-- marks has the last transaction of each slot of each server.
CREATE TABLE SCHEMA.marks (
	server bigint NOT NULL,   -- random; each process has another one
	slot   smallint NOT NULL, -- a slot has one transaction at a time
	number bigint NOT NULL,   -- 0: it has had none
	at_ms  bigint NOT NULL,   -- when it was set, by the server's clock, Unix ms
	PRIMARY KEY (server, slot)
) WITH (fillfactor = 10);

UPDATE SCHEMA.meta SET version = 4;
`

// upgrade5 makes version 5 of version 4. Servers of version 4 that still run do not use the tables: what they erase is not repeated
// in a database that has forgotten it.
const upgrade5 = `
-- changes has what servers remember beyond readings and assignments: see docs/adr/0026-repair.md.
CREATE TABLE SCHEMA.changes (
	id         bigint PRIMARY KEY,        -- random
	generation bigint NOT NULL,           -- of meta, after the transaction that inserted the row
	since      bigint NOT NULL,           -- the same, where the change was made: a repair inserts the row again
	kind       smallint NOT NULL,         -- 1: a device was erased, 2: an assignment was, 3: old readings were removed, 4: a restore was accepted;
		-- 5: assignments were to be erased, 6: one was to be ended, and were not there
	device     text COLLATE "C" NOT NULL, -- of 1 and 2
	from_ms    bigint NOT NULL,           -- first and last time of the removed readings, Unix ms
	to_ms      bigint NOT NULL,
	at_ms      bigint NOT NULL,           -- when, by the server's clock, Unix ms
	subject    text COLLATE "C" NOT NULL DEFAULT '' -- of 5 and 6
);

-- losses has what was acknowledged and could not be put back.
CREATE TABLE SCHEMA.losses (
	id           bigint PRIMARY KEY, -- random
	from_ms      bigint NOT NULL,    -- when the first of it was acknowledged, at the earliest, Unix ms
	to_ms        bigint NOT NULL,    -- when the last of it was, at the latest
	at_ms        bigint NOT NULL,    -- when it was reported
	confirmed_ms bigint              -- when an operator confirmed it; NULL: nobody has
);

UPDATE SCHEMA.meta SET version = 5;
`

// upgrade6 makes version 6 of version 5. Servers of version 5 that still run do not read segments. While any is connected, no
// reading is sealed; when one has been, the trigger refuses what they write.
const upgrade6 = `
-- segments has readings of a device that were moved from readings: see docs/adr/0027-sealing.md. Those of a segment have the same
-- signs, gateway, offset, shared and had. The bytea columns have a number for each, big-endian, in the order of their times.
CREATE TABLE SCHEMA.segments (
	device     text COLLATE "C" NOT NULL,
	last_ms    bigint NOT NULL,   -- time of the last reading
	first_ms   bigint NOT NULL,
	n          integer NOT NULL,  -- number of readings
	gateway    text COLLATE "C",
	utc_offset smallint,
	shared     boolean NOT NULL,
	had        smallint NOT NULL,
	delay_ms   bigint NOT NULL,   -- shortest time between measurement and arrival; may be negative
	back       bytea NOT NULL,    -- four bytes each: last_ms - time_ms
	delays     bytea NOT NULL,    -- four bytes each: received_ms - time_ms - delay_ms
	sys        bytea,             -- two bytes each, hundredths; NULL: none has the sign
	dia        bytea,
	spo2       bytea,
	hr         bytea,
	rhr        bytea,
	PRIMARY KEY (device, last_ms)
) WITH (toast_tuple_target = 512);
CREATE INDEX ON SCHEMA.segments (device, first_ms);
DO $$ DECLARE c text; BEGIN
	FOREACH c IN ARRAY ARRAY['back', 'delays', 'sys', 'dia', 'spo2', 'hr', 'rhr'] LOOP
		BEGIN
			EXECUTE format('ALTER TABLE SCHEMA.segments ALTER COLUMN %I SET COMPRESSION lz4', c);
		EXCEPTION WHEN feature_not_supported THEN -- this PostgreSQL was built without it
		END;
	END LOOP;
END $$;

ALTER TABLE SCHEMA.meta
	ADD COLUMN sealed_ms bigint NOT NULL DEFAULT 0, -- all readings of segments are before it
	ADD COLUMN passed_ms bigint NOT NULL DEFAULT 0; -- all devices have been looked through for readings before it

CREATE FUNCTION SCHEMA.uint16_at(b bytea, i integer) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (get_byte(b, 2 * i) << 8) | get_byte(b, 2 * i + 1);
CREATE FUNCTION SCHEMA.uint31_at(b bytea, i integer) RETURNS integer LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN (get_byte(b, 4 * i) << 24) | (get_byte(b, 4 * i + 1) << 16) | (get_byte(b, 4 * i + 2) << 8) | get_byte(b, 4 * i + 3);

-- all_readings has all readings in the units of the API, one row each; NULL is an absent sign. What is stored with a reading
-- begins at stored_from_ms and ends at stored_to_ms.
CREATE VIEW SCHEMA.all_readings AS
SELECT device, time_ms, received_ms, utc_offset AS utc_offset_minutes, gateway,
	((sys + 65536) % 65536) / 100.0 AS systolic_mmhg, ((dia + 65536) % 65536) / 100.0 AS diastolic_mmhg, ((spo2 + 65536) % 65536) / 100.0 AS spo2_pct,
	((hr + 65536) % 65536) / 100.0 AS heart_rate_bpm, ((rhr + 65536) % 65536) / 100.0 AS resting_heart_rate_bpm, more,
	time_ms AS stored_from_ms, time_ms AS stored_to_ms
FROM SCHEMA.readings
UNION ALL
SELECT s.device, s.last_ms - SCHEMA.uint31_at(b.back, i), s.last_ms - SCHEMA.uint31_at(b.back, i) + s.delay_ms + SCHEMA.uint31_at(b.delays, i), s.utc_offset, s.gateway,
	SCHEMA.uint16_at(b.sys, i) / 100.0, SCHEMA.uint16_at(b.dia, i) / 100.0, SCHEMA.uint16_at(b.spo2, i) / 100.0,
	SCHEMA.uint16_at(b.hr, i) / 100.0, SCHEMA.uint16_at(b.rhr, i) / 100.0, NULL::integer[], s.first_ms, s.last_ms
FROM SCHEMA.segments AS s
CROSS JOIN LATERAL (SELECT s.back || ''::bytea AS back, s.delays || ''::bytea AS delays, s.sys || ''::bytea AS sys, s.dia || ''::bytea AS dia,
	s.spo2 || ''::bytea AS spo2, s.hr || ''::bytea AS hr, s.rhr || ''::bytea AS rhr OFFSET 0) AS b -- each is read once
CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i;

-- readings_between returns those of all_readings from one time to another, Unix ms, exclusive. It reads what is stored with them only.
CREATE FUNCTION SCHEMA.readings_between(from_ms bigint, to_ms bigint) RETURNS SETOF SCHEMA.all_readings LANGUAGE sql STABLE PARALLEL SAFE ROWS 1000 AS
	'SELECT * FROM SCHEMA.all_readings AS r WHERE r.stored_to_ms >= $1 AND r.stored_from_ms < $2 AND r.time_ms >= $1 AND r.time_ms < $2';

CREATE FUNCTION SCHEMA.refuse_earlier() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF coalesce(current_setting('pulsegate.reads_segments', true), '') = '' AND (SELECT sealed_ms > 0 FROM SCHEMA.meta) THEN
		RAISE EXCEPTION 'readings were sealed: stop the servers of releases that do not know segments' USING ERRCODE = '55000';
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER refuse_earlier BEFORE INSERT OR UPDATE OR DELETE ON SCHEMA.readings FOR EACH STATEMENT EXECUTE FUNCTION SCHEMA.refuse_earlier();

UPDATE SCHEMA.meta SET version = 6;
`

// upgrade7 makes version 7 of version 6. Each connection of a server of version 5 reads meta when it is made, and again after a second of use: once
// something is sealed, this fails. So such a server, which does not read segments, cannot go on with new connections either.
const upgrade7 = `
CREATE FUNCTION SCHEMA.refuse_reader(sealed_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
	IF sealed_ms > 0 THEN
		RAISE EXCEPTION 'readings were sealed, which a server of this release does not find: stop it, and start one of the release that the others have' USING ERRCODE = '55000';
	END IF;
	RETURN true;
END $$;
ALTER TABLE SCHEMA.meta RENAME TO state;
CREATE VIEW SCHEMA.meta AS SELECT * FROM SCHEMA.state AS s WHERE current_setting('pulsegate.reads_segments', true) = 'yes' OR SCHEMA.refuse_reader(s.sealed_ms);
CREATE OR REPLACE FUNCTION SCHEMA.refuse_earlier() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF coalesce(current_setting('pulsegate.reads_segments', true), '') = '' AND (SELECT sealed_ms > 0 FROM SCHEMA.state) THEN
		RAISE EXCEPTION 'readings were sealed: stop the servers of releases that do not know segments' USING ERRCODE = '55000';
	END IF;
	RETURN NULL;
END $$;

UPDATE SCHEMA.state SET version = 7;
`

// upgrade8 makes version 8 of version 7. Servers of version 7 that still run use neither: during their erasures, scans may
// end normally.
const upgrade8 = `
-- refuse rolls a transaction back, for a reason with an SQLSTATE of its own: PU001, PU002.
CREATE FUNCTION SCHEMA.refuse(condition text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION USING ERRCODE = condition, MESSAGE = CASE condition
		WHEN 'PU001' THEN 'this database lacks what a Pulsegate server has acknowledged, and is not written to before it is repaired'
		ELSE 'something was removed or sealed since the Pulsegate server looked: it sends the transaction again' END;
END $$;

-- erasing has the erasures that have removed some readings, and not all. Scans of these readings fail for a minute after at.
CREATE TABLE SCHEMA.erasing (
	device  text COLLATE "C" NOT NULL,
	from_ms bigint NOT NULL, -- first and last time of the readings, Unix ms
	to_ms   bigint NOT NULL,
	at      timestamptz NOT NULL, -- when some were removed
	PRIMARY KEY (device, from_ms)
);

UPDATE SCHEMA.state SET version = 8;
`

// columns are the columns of the first signs, by sign. All others are in readings.more.
var columns = [...]string{"sys", "dia", "spo2", "hr", "rhr"}

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
	version, err := s.version(ctx, conn)
	switch {
	case err != nil:
		return fmt.Errorf("read version of schema %s: %w", s.opt.Schema, hide(err))
	case version > schemaVersion:
		return fmt.Errorf("%w: schema %s has version %d, and this program knows version %d: use a newer pulsegate",
			storage.ErrFormat, s.opt.Schema, version, schemaVersion)
	case version == schemaVersion:
		return nil
	case version >= schemaVersion-len(upgrades):
		return s.upgradeSchema(ctx, conn, version)
	case version != 0:
		return fmt.Errorf("%w: schema %s has version %d, which no release has written: export the readings with the pulsegate that wrote it, drop the schema, and import them",
			storage.ErrFormat, s.opt.Schema, version)
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
		_, err := tx.Exec(ctx, s.sql.of(schema+strings.Join(upgrades[:], "")))
		return err
	}); err != nil {
		return fmt.Errorf("create schema %s: %w", s.opt.Schema, hide(err))
	}
	s.opt.Log.Info("schema created", "schema", s.opt.Schema, "version", schemaVersion)
	return nil
}

// upgradeSchema makes the newest version of an earlier one while servers of both use it. The tables are locked for
// moments only: it gives up if a lock is not free soon, because all groups would have to wait for it.
func (s *database) upgradeSchema(ctx context.Context, conn *pgx.Conn, version int) error {
	missing := strings.Join(upgrades[len(upgrades)-(schemaVersion-version):], "")
	for deadline := time.Now().Add(s.opt.Timeout); ; {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, s.sql.of("SET LOCAL lock_timeout = '500ms';"+missing))
			return err
		})
		state := sqlState(err)
		switch {
		case err == nil:
			s.opt.Log.Info("schema upgraded", "schema", s.opt.Schema, "version", schemaVersion)
			return nil
		case state != lockNotAvailable && state != deadlock || time.Now().After(deadline):
			return fmt.Errorf("upgrade schema %s to version %d: %w", s.opt.Schema, schemaVersion, hide(err))
		}
		select {
		case <-time.After(maxPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// version returns the version of the schema; 0 if there is none.
func (s *database) version(ctx context.Context, conn *pgx.Conn) (version int, err error) {
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.opt.Schema+".meta").Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = conn.QueryRow(ctx, s.sql.of("SELECT version FROM SCHEMA.meta")).Scan(&version)
	return version, err
}

// statements are the SQL texts of a store.
type statements struct {
	schema   string
	prepared map[string]string // of writing connections, by name

	insert, insertNew, complete, find, hold, hint, generation, meet, unseal string // names of prepared ones

	findIn, latest, devices, scan, scanDown, segments, segmentsDown, erasing, marked string
}

// recordColumns are the columns of a row r that decodeRecord decodes.
const recordColumns = "r.time_ms, r.received_ms, r.sys, r.dia, r.spo2, r.hr, r.rhr, r.utc_offset, r.shared, r.gateway, r.more"

// of replaces SCHEMA by the schema's name.
func (q *statements) of(sql string) string { return strings.ReplaceAll(sql, "SCHEMA", q.schema) }

// each returns text once for each of the first signs, joined by sep, with COL replaced by the sign's column.
func each(text, sep string) string {
	var all []string
	for i, column := range columns {
		all = append(all, strings.NewReplacer("COL", column, "BIT", fmt.Sprint(1<<i)).Replace(text))
	}
	return strings.Join(all, sep)
}

func newStatements(schema string) *statements {
	q := &statements{schema: schema, insert: "insert", insertNew: "insert new", complete: "complete", find: "find", hold: "hold", hint: "hint", generation: "generation", meet: "meet", unseal: "unseal"}
	const insert = `INSERT INTO SCHEMA.readings (device, time_ms, received_ms, sys, dia, spo2, hr, rhr, utc_offset, had, shared, gateway, more)
SELECT device, time_ms, received_ms, sys, dia, spo2, hr, rhr, utc_offset, 0, shared, gateway, more::integer[]
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::smallint[], $6::smallint[], $7::smallint[], $8::smallint[], $9::smallint[], $10::boolean[], $11::text[], $12::text[])
	AS u(device, time_ms, received_ms, sys, dia, spo2, hr, rhr, utc_offset, shared, gateway, more)`
	// LATERAL, and LIMIT, because a join of many keys would read all readings.
	const find = `SELECT k.device, ` + recordColumns + `
FROM unnest($1::text[], $2::bigint[]) AS k(device, time_ms)
CROSS JOIN LATERAL (SELECT * FROM SCHEMA.readings AS r WHERE r.device = k.device AND r.time_ms = k.time_ms%s LIMIT 1 FOR UPDATE) AS r`
	q.findIn = q.of(fmt.Sprintf(find, " AND r.time_ms BETWEEN %d AND %d"))
	q.prepared = map[string]string{
		// ON CONFLICT costs another look-up in the index and another record in the log, for each row.
		q.insert:    q.of(insert),
		q.insertNew: q.of(insert + " ON CONFLICT (device, time_ms) DO NOTHING RETURNING device, time_ms"),

		// The records are locked, so there is a conflict. An UPDATE with a join would lock all partitions, and perhaps read them.
		q.complete: q.of(insert + " ON CONFLICT (device, time_ms) DO UPDATE SET " + each("COL = excluded.COL", ", ") + ", utc_offset = excluded.utc_offset, shared = excluded.shared, gateway = excluded.gateway, more = excluded.more"),

		q.find: q.of(fmt.Sprintf(find, "")),
		q.hold: q.of("LOCK TABLE ONLY SCHEMA.readings IN ROW EXCLUSIVE MODE"),

		// SKIP LOCKED, because these are hints: two nodes need not wait for each other.
		q.hint: q.of(`WITH free AS (SELECT device FROM SCHEMA.devices WHERE device = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
UPDATE SCHEMA.devices AS d SET ` + each("COL_ms = greatest(d.COL_ms, u.COL_ms)", ", ") + `
FROM free, unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(device, ` + each("COL_ms", ", ") + `)
WHERE d.device = free.device AND u.device = free.device`),

		// The standbys may be removed from the configuration while a connection is in use. The last column rolls the transaction back if the
		// database has forgotten, and if something was removed, or sealed, since this server looked: the attempt may be one that was given up, and
		// reaches the database late. All parts see the same snapshot, of before the update.
		q.generation: q.of(`WITH own AS (INSERT INTO SCHEMA.marks AS k (server, slot, number, at_ms) VALUES ($1::bigint, $2::smallint, $3::bigint, ` + markedMs + `)
	ON CONFLICT (server, slot) DO UPDATE SET number = greatest(k.number, excluded.number), at_ms = excluded.at_ms)
SELECT generation, current_setting('synchronous_standby_names') <> '', CASE WHEN NOT (` + remembered + `) THEN SCHEMA.refuse('` + forgotten + `')
	WHEN sealed_ms > $8::bigint OR generation > $9::bigint THEN SCHEMA.refuse('` + outdated + `') ELSE 0 END FROM SCHEMA.state`),

		q.meet:   fmt.Sprintf("SELECT pg_advisory_xact_lock_shared(%d)", lockKey("seal", schema)),
		q.unseal: q.of(unsealing("USING unnest($1::text[], $2::bigint[]) AS k(device, time_ms) WHERE s.device = k.device AND s.first_ms <= k.time_ms AND s.last_ms >= k.time_ms AND s.last_ms < least(k.time_ms, " + fmt.Sprint(int64(math.MaxInt64-maxSpanMs)) + ") + " + fmt.Sprint(maxSpanMs))),
	}

	q.erasing = q.of("SELECT EXISTS (SELECT FROM SCHEMA.erasing WHERE device = $1 AND from_ms < $3 AND to_ms >= $2 AND at > now() - interval '1 minute')")
	q.marked = q.of("SELECT slot, number, at_ms FROM SCHEMA.marks WHERE server = $1::bigint")

	// A hint is the time of a reading with the sign, so the latest one is not before it. If there
	// is none from there on, that reading was removed, and all are searched.
	const latestOf = `
LEFT JOIN LATERAL (SELECT r.time_ms, r.COL, r.utc_offset FROM SCHEMA.readings AS r
	WHERE d.signs & BIT <> 0 AND r.device = d.device AND r.COL IS NOT NULL AND r.time_ms >= coalesce(d.COL_ms, 0) ORDER BY r.time_ms DESC LIMIT 1) AS COL1 ON true
LEFT JOIN LATERAL (SELECT r.time_ms, r.COL, r.utc_offset FROM SCHEMA.readings AS r
	WHERE COL1.time_ms IS NULL AND d.COL_ms IS NOT NULL AND r.device = d.device AND r.COL IS NOT NULL ORDER BY r.time_ms DESC LIMIT 1) AS COL2 ON true`
	latest := `SELECT d.device, n.time_ms, ` + each("coalesce(COL1.time_ms, COL2.time_ms), coalesce(COL1.COL, COL2.COL), coalesce(COL1.utc_offset, COL2.utc_offset)", ", ") + `,
	CASE WHEN d.more IS NOT NULL THEN (SELECT array_agg(ARRAY[number, l.time_ms, l.value, l.utc_offset]) FROM generate_series(%[2]d, %[3]d) AS number
		CROSS JOIN LATERAL (SELECT r.time_ms, SCHEMA.more_value(r.more, number) AS value, r.utc_offset FROM SCHEMA.readings AS r
			WHERE r.device = d.device AND r.more IS NOT NULL AND SCHEMA.more_value(r.more, number) IS NOT NULL ORDER BY r.time_ms DESC LIMIT 1) AS l
		WHERE d.more & (1 << number) <> 0) END
FROM (SELECT * FROM SCHEMA.devices WHERE %[1]s) AS d
LEFT JOIN LATERAL (SELECT r.time_ms FROM SCHEMA.readings AS r WHERE r.device = d.device ORDER BY r.time_ms DESC LIMIT 1) AS n ON true` + each(latestOf, "") + ` ORDER BY d.device`
	q.latest = q.of(fmt.Sprintf(latest, "device = $1", len(columns), vitals.MaxSigns-1))
	q.devices = q.of(fmt.Sprintf(latest, "device > $1 ORDER BY device LIMIT $2", len(columns), vitals.MaxSigns-1))

	const scan = `SELECT ` + recordColumns + ` FROM SCHEMA.readings AS r
WHERE device = $1 AND time_ms >= $2 AND time_ms < $3 ORDER BY time_ms %s LIMIT $4`
	q.scan, q.scanDown = q.of(fmt.Sprintf(scan, "")), q.of(fmt.Sprintf(scan, "DESC"))
	// Values of segments that a page does not need are not read: before is the number of readings of the segments before one, and next_ms
	// where the first of the others starts. The bound of the other end, which follows from maxSpanMs, is for the index.
	const segments = "SELECT " + segmentColumns + `, s.next_ms FROM (SELECT s.*, lead(START) OVER w AS next_ms, coalesce(sum(n) FILTER (WHERE WHOLE) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
	FROM (SELECT * FROM SCHEMA.segments WHERE device = $1 AND EDGE $5 AND last_ms >= $2 AND first_ms < $3 ORDER BY ORDERED LIMIT $4) AS s
	WINDOW w AS (ORDER BY ORDERED)) AS s WHERE s.before < $6`
	q.segments = q.of(strings.NewReplacer("START", "first_ms", "WHOLE", "first_ms >= $2", "EDGE", "first_ms >", "ORDERED", "first_ms").Replace(segments))
	q.segmentsDown = q.of(strings.NewReplacer("START", "last_ms", "WHOLE", "last_ms < $3", "EDGE", "last_ms <", "ORDERED", "last_ms DESC").Replace(segments))
	return q
}

// remembered is the condition that state and marks have at least what a server, $1, knows: the numbers of its slots, $5, the
// generation, $6, and the last change, $7. A slot whose number is 0 has acknowledged nothing, and may have no row; change 0 is none.
const remembered = `($7::bigint = 0 OR EXISTS (SELECT FROM SCHEMA.changes AS c WHERE c.id = $7::bigint)) AND generation >= $6::bigint
	AND (SELECT count(*) FROM SCHEMA.marks AS k WHERE k.server = $1::bigint AND ($5::bigint[])[k.slot + 1] BETWEEN 1 AND k.number) = (SELECT count(*) FROM unnest($5::bigint[]) AS a WHERE a > 0)`
