package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// settle2 is the statement with which servers of version 2 stored readings.
const settle2 = `INSERT INTO SCHEMA.readings AS r (device, time_ms, received_ms, sys, dia, spo2, hr, rhr, utc_offset, had, gateway)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::smallint[], $6::smallint[], $7::smallint[], $8::smallint[], $9::smallint[], $10::smallint[], $11::text[])
ON CONFLICT (device, time_ms) DO UPDATE SET hr = coalesce(r.hr, excluded.hr), had = CASE WHEN r.hr IS NULL THEN 0 ELSE 8 END
WHERE (r.hr <> excluded.hr) IS NOT TRUE AND r.hr IS NULL AND excluded.hr IS NOT NULL RETURNING device, time_ms, had`

// store2 stores a heart rate, and perhaps a SpO2, as a server of version 2 does.
func store2(t *testing.T, conn *pgx.Conn, schema, device string, timeUnixMs int64, hr int16, spo2 *int16) {
	t.Helper()
	none := []*int16{nil}
	for _, sql := range []string{settle2, `INSERT INTO SCHEMA.devices AS d (device, signs) VALUES ($1, 12) ON CONFLICT (device) DO UPDATE SET signs = d.signs | excluded.signs`} {
		args := []any{device}
		if sql == settle2 {
			args = []any{[]string{device}, []int64{timeUnixMs}, []int64{1}, none, none, []*int16{spo2}, []int16{hr}, none, none, []int16{0}, []*string{nil}}
		}
		mustExecute(t, conn, strings.ReplaceAll(sql, "SCHEMA", schema), args...)
	}
}

func with(e *storage.Entry, sg vitals.Sign, v vitals.Value) *storage.Entry {
	e.Reading.Values.Set(sg, v)
	return e
}

// records returns the values of a device by time.
func records(t *testing.T, s *pgstore.Store, device string) (all []vitals.Values) {
	t.Helper()
	page := make([]storage.Record, 100)
	n, err := s.Scan(context.Background(), storage.Range{Device: reading(device, 0, 0).Reading.Device, ToUnixMs: 1 << 60}, page)
	try(t, err)
	for _, r := range page[:n] {
		all = append(all, r.Values)
	}
	return all
}

// TestUpgrade opens a schema of version 2 that has data while servers of version 2 read and write.
func TestUpgrade(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	conn := connect(t, server)
	defer conn.Close(context.Background())
	execute(t, server, "CREATE SCHEMA "+o.Schema)
	defer execute(t, server, "DROP SCHEMA "+o.Schema+" CASCADE")
	execute(t, server, pgstore.SchemaOfVersion2(o.Schema))
	execute(t, server, "CREATE TABLE "+o.Schema+".readings_p0 PARTITION OF "+o.Schema+".readings FOR VALUES FROM (0) TO (2592000000)")
	spo2 := int16(-1) // 655.35
	store2(t, conn, o.Schema, "old", 1, 7200, nil)
	store2(t, conn, o.Schema, "old", 2, -32768, &spo2)
	execute(t, server, "UPDATE "+o.Schema+".meta SET devices = 1")
	file := func() string {
		return queryValue[string](t, server, "SELECT pg_relation_filenode('"+o.Schema+".readings_p0') || ' ' || pg_relation_filenode('"+o.Schema+".devices')")
	}
	before := file()
	version := func() int { return queryValue[int](t, server, "SELECT version FROM "+o.Schema+".meta") }

	// A transaction that reads for long delays the upgrade. Others read and write meanwhile.
	long, err := conn.Begin(context.Background())
	try(t, err)
	mustExecute(t, long, "SELECT FROM "+o.Schema+".readings")
	short := o
	short.Timeout = time.Millisecond
	if s, err := pgstore.Open(context.Background(), short); err == nil || version() != 2 {
		t.Errorf("Open returned %v, %v while the table was in use, and the schema has version %d", s, err, version())
	}
	opened := make(chan *pgstore.Store, 1)
	go func() {
		s, err := pgstore.Open(context.Background(), o)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	for i := range int64(50) {
		other := connect(t, server)
		store2(t, other, o.Schema, "old", 10+i, 100, nil)
		_ = other.Close(context.Background())
	}
	try(t, long.Rollback(context.Background()))
	s := <-opened
	if s == nil {
		return
	}
	defer s.Close()
	if version() != 8 || file() != before {
		t.Errorf("the schema has version %d, and the tables' files were %s and are %s", version(), before, file())
	}
	want := reading("old", 2, 32768).Reading.Values
	want.Set(vitals.SpO2, 65535)
	if got := records(t, s, "old"); len(got) != 52 || got[0] != reading("old", 1, 7200).Reading.Values || got[1] != want {
		t.Errorf("after the upgrade the device has %v", got)
	}

	// A server of version 2 that still runs changes none of the new signs, and readings without them
	// have nothing of the new columns.
	mustStore(t, s, with(reading("old", 1, 7200), vitals.BodyTemperature, 3650), with(reading("new", 3, 7200), vitals.PulseRate, -1), reading("plain", 3, 7200))
	only := with(reading("old", 5, 1), vitals.BodyWeight, 1<<20)
	only.Reading.Values = vitals.Values{}
	mustStore(t, s, with(only, vitals.BodyWeight, 1<<20))
	store2(t, conn, o.Schema, "old", 1, 7200, nil)
	store2(t, conn, o.Schema, "old", 5, 9000, nil)
	store2(t, conn, o.Schema, "plain", 4, 7200, nil)
	want = only.Reading.Values
	want.Set(vitals.HeartRate, 9000)
	got := records(t, s, "old")
	if v, ok := got[0].Get(vitals.BodyTemperature); !ok || v != 3650 || got[2] != want {
		t.Errorf("after writes of version 2 the device has %v", got[:3])
	}
	if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".readings WHERE device = 'plain' AND num_nulls(more, had_more) = 2"); n != 2 {
		t.Errorf("%d readings without new signs have columns of these, want none", 2-n)
	}
	// It is completed, and settled as if the record had always been whole.
	for i, e := range []*storage.Entry{with(reading("old", 5, 9000), vitals.BodyWeight, 1), with(reading("old", 5, 9000), vitals.BodyWeight, 1<<20), with(reading("old", 5, 9000), vitals.PulseRate, 5)} {
		try(t, s.Append([]*storage.Entry{e}))
		if want := []storage.Outcome{storage.Conflict, storage.Duplicate, storage.Completed}[i]; e.Outcome != want {
			t.Errorf("reading %d settled as %s, want %s", i, outcomeName(e.Outcome), outcomeName(want))
		}
	}
}

// TestSignsTogether opens nodes at once, which define signs in different orders: each sign has one
// number, which all nodes know as soon as they read a value of it.
func TestSignsTogether(t *testing.T) {
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
	execute(t, server, "UPDATE "+o.Schema+".readings SET more = '{30,1}'")
	if _, err := early.Scan(context.Background(), storage.Range{Device: reading("d", 0, 0).Reading.Device, ToUnixMs: 9}, make([]storage.Record, 1)); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Scan of an unknown sign returned %v, want ErrCorrupt", err)
	}
	for _, bad := range []string{"{4,1}", "{5}", "{5,1,5,1}", "{5,NULL}", "{32,1}", "{-1,1}", "{}", "{{5,1},{6,1}}"} {
		execute(t, server, "UPDATE "+o.Schema+".readings SET more = $1::text::integer[]", bad)
		if _, err := a.Scan(context.Background(), storage.Range{Device: reading("d", 0, 0).Reading.Device, ToUnixMs: 9}, make([]storage.Record, 1)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("Scan of %s returned %v, want ErrCorrupt", bad, err)
		}
	}
	execute(t, server, "UPDATE "+o.Schema+".signs SET definition = '{}'")
	if _, err := pgstore.Open(context.Background(), none); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Open with a damaged definition returned %v, want ErrCorrupt", err)
	}
}
