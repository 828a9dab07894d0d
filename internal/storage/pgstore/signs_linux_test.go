package pgstore_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

func with(e *storage.Entry, sg vitals.Sign, v vitals.Value) *storage.Entry {
	e.Reading.Values.Set(sg, v)
	return e
}

// records returns the values of a device by time.
func records(t *testing.T, s *pgstore.Store, device string) (all []vitals.Values) {
	t.Helper()
	page := make([]storage.Record, 100)
	n, err := s.Scan(context.Background(), storage.Range{Device: reading(device, 0, 0).Reading.Device, ToUnixMs: 1 << 60},
		page)
	try(t, err)
	for _, r := range page[:n] {
		all = append(all, r.Values)
	}
	return all
}

// TestVersions opens schemas of other versions, which stay as they are.
func TestVersions(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	for _, tt := range []struct{ name, tables, want string }{
		{"before 0.1.0", "CREATE TABLE SCHEMA.meta (version integer); INSERT INTO SCHEMA.meta VALUES (6)",
			"version 6 of before release 0.1.0: export the readings with the pulsegate that wrote it"},
		{"shortly before 0.1.0",
			"CREATE TABLE SCHEMA.state (version integer); INSERT INTO SCHEMA.state VALUES (8); CREATE VIEW SCHEMA.meta AS " +
				"SELECT * FROM SCHEMA.state",
			"version 8 of before release 0.1.0: export"},
		{"later", "CREATE TABLE SCHEMA.state (version integer); INSERT INTO SCHEMA.state VALUES (2)",
			"has version 2, and this program knows version 1: use a newer pulsegate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(server)
			execute(t, server, "CREATE SCHEMA "+o.Schema)
			defer execute(t, server, "DROP SCHEMA "+o.Schema+" CASCADE")
			execute(t, server, strings.ReplaceAll(tt.tables, "SCHEMA", o.Schema))
			_, err := pgstore.Open(context.Background(), o)
			if !errors.Is(err, storage.ErrFormat) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open returned %v, want ErrFormat with %q", err, tt.want)
			}
			if n := queryValue[int](t, server, "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)",
				o.Schema); n > 2 {
				t.Errorf("the schema has %d tables afterwards", n)
			}
		})
	}
}

// TestSignsTogether opens nodes at once, which define signs in different orders: each sign has one
// number, which all nodes know as soon as they read a value of it.
func TestSignsTogether(t *testing.T) {
	t.Parallel()
	o := options(sharedServer(t))
	own := storetest.OwnSigns()[:6]
	stores := make([]*pgstore.Store, 4)
	var opening sync.WaitGroup
	for i := range stores {
		opening.Go(func() {
			o := o
			for n := range 3 {
				o.Signs = append(slices.Clone(o.Signs), own[(i+n*(1+2*(i%2)))%len(own)])
			}
			slices.SortFunc(o.Signs, func(a, b vitals.Definition) int { return strings.Compare(a.Field, b.Field) })
			o.Signs = slices.CompactFunc(o.Signs, func(a, b vitals.Definition) bool { return a.Field == b.Field })
			s, err := pgstore.Open(context.Background(), o)
			if err != nil {
				t.Error(err)
				return
			}
			stores[i] = s
		})
	}
	opening.Wait()
	if t.Failed() {
		return
	}
	for i, s := range stores {
		defer s.Close()
		for sg, d := range s.Signs().All() {
			if d.Own() && !d.Retired {
				mustStore(t, s, with(reading(fmt.Sprintf("d-%d", i), int64(sg), 1), sg, vitals.Value(-int(sg))))
			}
		}
	}
	devices := make([]storage.Device, 10)
	for i, s := range stores {
		n, err := s.Devices(context.Background(), vitals.Name{}, devices) // reads the dictionary again
		if err != nil || n != len(stores) {
			t.Fatalf("node %d: Devices returned %d, %v", i, n, err)
		}
		for device := range stores {
			for _, values := range records(t, s, fmt.Sprintf("d-%d", device)) {
				for sg := range values.All() {
					field := s.Signs().Field(sg)
					if other, ok := stores[device].Signs().Named(field); sg >= vitals.NumBuiltIn && (!ok || other != sg) {
						t.Errorf("node %d has number %d for %q, and node %d has %d", i, sg, field, device, other)
					}
				}
			}
		}
	}
}

// TestSignsOfOthers checks that a definition that one node lacks is not retired in others, and that a
// node answers with no value of an unknown sign left out.
func TestSignsOfOthers(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	o := options(server)
	early := open(t, o)
	o.Signs = storetest.OwnSigns()[:1]
	a := open(t, o)
	number, _ := a.Signs().Named(o.Signs[0].Field)
	mustStore(t, a, with(reading("d", 1, 7200), number, -5))
	if early.Signs().Of(number) != nil {
		t.Fatal("the first node knows the sign before it reads")
	}
	got, err := early.Latest(context.Background(), reading("d", 0, 0).Reading.Device)
	if err != nil || !got.Latest[number].Known || got.Latest[number].Value != -5 {
		t.Errorf("Latest returned %v, %v", got.Latest[number], err)
	}
	if d := early.Signs().Of(number); d == nil || !d.Retired {
		t.Errorf("a sign that the node does not define is %+v, want retired", d)
	}
	none := o
	none.Signs = nil
	open(t, none)
	open(t, o)
	if d := a.Signs().Of(number); d.Retired {
		t.Error("a node without the definition has retired the sign of another one")
	}

	// Somebody has damaged the dictionary.
	execute(t, server, "UPDATE "+o.Schema+".devices SET signs = signs | 1 << 20")
	for _, s := range []*pgstore.Store{early, a} {
		if _, err := s.Scan(context.Background(), storage.Range{Device: reading("d", 0, 0).Reading.Device, ToUnixMs: 9},
			make([]storage.Record, 1)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("Scan of an unknown sign returned %v, want ErrCorrupt", err)
		}
		if _, err := s.Latest(context.Background(), reading("d", 0, 0).Reading.Device); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("Latest of an unknown sign returned %v, want ErrCorrupt", err)
		}
	}
	execute(t, server, "UPDATE "+o.Schema+".signs SET definition = '{}'")
	if _, err := pgstore.Open(context.Background(), none); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Open with a damaged definition returned %v, want ErrCorrupt", err)
	}
}

// schema1 has the tables of schema version 1, which release 0.1.0 and all later ones read.
//
//go:embed testdata/schema1.txt
var schema1 string

// TestSchema compares the columns and indexes of a new schema with those of version 1, which stay as they are.
func TestSchema(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	open(t, o)
	got := queryValue[string](t, server, `SELECT string_agg(line, E'\n' ORDER BY name, n, line) || E'\n' FROM (
		SELECT c.relname AS name, attnum AS n, format('%s.%s %s%s', c.relname, attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END) AS line
			FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid WHERE c.relnamespace = to_regnamespace($1) AND attnum > 0 AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
		UNION ALL SELECT tablename, 1000, replace(indexdef, schemaname || '.', '') FROM pg_indexes WHERE schemaname = $1 AND tablename <> 'readings_default'
		UNION ALL SELECT 'state', 2000, 'version ' || version FROM `+o.Schema+`.state) AS all_lines`, o.Schema)
	if got != schema1 {
		t.Errorf("the schema is\n%s", got)
	}
}
