package pgstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// schemaVersion is the version of schema. Releases write no other.
const schemaVersion = 2

// schema creates the tables. SCHEMA stands for the schema's name. A released one is never changed.
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
	PRIMARY KEY (device, from_ms),
	CHECK (from_ms >= 0 AND from_ms < to_ms)
);
CREATE INDEX ON SCHEMA.assignments (subject, device, from_ms);
`

// columns are the columns of the signs, by sign.
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
	case version != 0:
		return fmt.Errorf("%w: schema %s has version %d, which no release has written: export the readings with the pulsegate that wrote it, drop the schema, and import them",
			storage.ErrFormat, s.opt.Schema, version)
	case s.opt.Move == MoveFrom:
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
		_, err := tx.Exec(ctx, s.sql.of(schema))
		return err
	}); err != nil {
		return fmt.Errorf("create schema %s: %w", s.opt.Schema, hide(err))
	}
	s.opt.Log.Info("schema created", "schema", s.opt.Schema, "version", schemaVersion)
	return nil
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

	settle, find, hint, generation string // names of prepared ones

	latest, devices, scan, scanDown string
}

// recordColumns are the columns of a row r that decodeRecord decodes.
const recordColumns = "r.time_ms, r.received_ms, r.sys, r.dia, r.spo2, r.hr, r.rhr, r.utc_offset, r.shared, r.gateway"

// of replaces SCHEMA by the schema's name.
func (q *statements) of(sql string) string { return strings.ReplaceAll(sql, "SCHEMA", q.schema) }

// each returns text once for each sign, joined by sep, with COL replaced by the sign's column.
func each(text, sep string) string {
	var all []string
	for i, column := range columns {
		all = append(all, strings.NewReplacer("COL", column, "BIT", fmt.Sprint(1<<i)).Replace(text))
	}
	return strings.Join(all, sep)
}

func newStatements(schema string) *statements {
	q := &statements{schema: schema, settle: "settle", find: "find", hint: "hint", generation: "generation"}
	// A reading for which had is negative is not compared with a record of another gateway.
	const others = "(r.shared OR r.gateway IS DISTINCT FROM excluded.gateway)"
	q.prepared = map[string]string{
		q.settle: q.of(`INSERT INTO SCHEMA.readings AS r (device, time_ms, received_ms, sys, dia, spo2, hr, rhr, utc_offset, had, gateway)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::smallint[], $6::smallint[], $7::smallint[], $8::smallint[], $9::smallint[], $10::smallint[], $11::text[])
ON CONFLICT (device, time_ms) DO UPDATE SET ` + each("COL = coalesce(r.COL, excluded.COL)", ", ") + `,
	shared = ` + others + `, gateway = coalesce(r.gateway, excluded.gateway), utc_offset = coalesce(r.utc_offset, excluded.utc_offset), had = ` + each("(CASE WHEN r.COL IS NULL THEN 0 ELSE BIT END)", " | ") + `
WHERE ` + each("(r.COL <> excluded.COL) IS NOT TRUE", " AND ") + `
	AND (` + each("r.COL IS NULL AND excluded.COL IS NOT NULL", " OR ") + `)
	AND NOT (excluded.had < 0 AND ` + others + ` AND (` + each("r.COL IS NOT NULL AND excluded.COL IS NOT NULL", " OR ") + `))
RETURNING device, time_ms, had`),

		q.find: q.of(`SELECT k.device, r.had, ` + recordColumns + `
FROM unnest($1::text[], $2::bigint[]) AS k(device, time_ms)
CROSS JOIN LATERAL (SELECT * FROM SCHEMA.readings AS r WHERE r.device = k.device AND r.time_ms = k.time_ms LIMIT 1) AS r`),

		// SKIP LOCKED, because these are hints: two nodes need not wait for each other.
		q.hint: q.of(`WITH free AS (SELECT device FROM SCHEMA.devices WHERE device = ANY($1::text[]) FOR NO KEY UPDATE SKIP LOCKED)
UPDATE SCHEMA.devices AS d SET ` + each("COL_ms = greatest(d.COL_ms, u.COL_ms)", ", ") + `
FROM free, unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(device, ` + each("COL_ms", ", ") + `)
WHERE d.device = free.device AND u.device = free.device`),

		// The standbys may be removed from the configuration while a connection is in use.
		q.generation: q.of(`SELECT generation, current_setting('synchronous_standby_names') <> '' FROM SCHEMA.meta`),
	}

	// A hint is the time of a reading with the sign, so the latest one is not before it. If there
	// is none from there on, that reading was removed, and all are searched.
	const latestOf = `
LEFT JOIN LATERAL (SELECT r.time_ms, r.COL, r.utc_offset FROM SCHEMA.readings AS r
	WHERE d.signs & BIT <> 0 AND r.device = d.device AND r.COL IS NOT NULL AND r.time_ms >= coalesce(d.COL_ms, 0) ORDER BY r.time_ms DESC LIMIT 1) AS COL1 ON true
LEFT JOIN LATERAL (SELECT r.time_ms, r.COL, r.utc_offset FROM SCHEMA.readings AS r
	WHERE COL1.time_ms IS NULL AND d.COL_ms IS NOT NULL AND r.device = d.device AND r.COL IS NOT NULL ORDER BY r.time_ms DESC LIMIT 1) AS COL2 ON true`
	latest := `SELECT d.device, n.time_ms, ` + each("coalesce(COL1.time_ms, COL2.time_ms), coalesce(COL1.COL, COL2.COL), coalesce(COL1.utc_offset, COL2.utc_offset)", ", ") + `
FROM (SELECT * FROM SCHEMA.devices WHERE %s) AS d
LEFT JOIN LATERAL (SELECT r.time_ms FROM SCHEMA.readings AS r WHERE r.device = d.device ORDER BY r.time_ms DESC LIMIT 1) AS n ON true` + each(latestOf, "") + ` ORDER BY d.device`
	q.latest = q.of(fmt.Sprintf(latest, "device = $1"))
	q.devices = q.of(fmt.Sprintf(latest, "device > $1 ORDER BY device LIMIT $2"))

	const scan = `SELECT ` + recordColumns + ` FROM SCHEMA.readings AS r
WHERE device = $1 AND time_ms >= $2 AND time_ms < $3 ORDER BY time_ms %s LIMIT $4`
	q.scan, q.scanDown = q.of(fmt.Sprintf(scan, "")), q.of(fmt.Sprintf(scan, "DESC"))
	return q
}
