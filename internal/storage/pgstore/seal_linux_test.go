package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

const sealStart = 1763719200000

// mixed returns readings of a device, one a minute, of several kinds.
func mixed(device string, n int) (all []*storage.Entry) {
	random := rand.New(rand.NewPCG(1, 2))
	gateways := []string{"", "gw-1", "gw-2"}
	for i := range n {
		e := reading(device, sealStart+int64(i)*60000+random.Int64N(1000), vitals.Value(6000+random.IntN(4000)))
		r := e.Reading
		e.ReceivedUnixMs = r.TimeUnixMs + random.Int64N(5000) - 1000
		r.Values.Set(vitals.SpO2, vitals.Value(9000+random.IntN(1000)))
		if i%60 == 7 {
			r.Values.Set(vitals.Systolic, vitals.Value(30000+random.IntN(5000))) // above 327.67 too
			r.Values.Set(vitals.Diastolic, 8000)
		}
		if i%97 == 5 {
			r.Values = vitals.Values{}
			r.Values.Set(vitals.RestingHeartRate, 6000)
		}
		if i%11 == 3 {
			r.UTCOffset = vitals.MakeUTCOffset(330)
		}
		if name := gateways[i/200%3]; name != "" {
			gateway, err := vitals.ParseName(name)
			if err != nil {
				panic(err)
			}
			r.Gateway = gateway
		}
		all = append(all, e)
	}
	return all
}

func sameRecords(a, b []storage.Record) bool {
	return slices.EqualFunc(a, b, func(a, b storage.Record) bool {
		if (a.Gateway == nil) != (b.Gateway == nil) || a.Gateway != nil && *a.Gateway != *b.Gateway {
			return false
		}
		a.Gateway, b.Gateway = nil, nil
		return a == b
	})
}

func seal(t testing.TB, s *pgstore.Store, beforeUnixMs int64) int64 {
	t.Helper()
	n, err := pgstore.Seal(s, beforeUnixMs)
	try(t, err)
	return n
}

// TestSealedExpireBeside removes all readings from two servers while they are sealed: none is left, nor any device, and
// each was counted once.
func TestSealedExpireBeside(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	o := options(server)
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	end := int64(sealStart + 1000*60000)
	for range 5 {
		for _, d := range []string{"bed-7", "bed-8", "bed-9"} {
			try(t, s.Append(mixed(d, 300)))
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range 3 {
				if _, err := pgstore.Seal(s, end); err != nil {
					t.Log(err) // the removal may hold the lock for long
				}
			}
		})
		var removed, devices atomic.Int64
		expire := func(s *pgstore.Store, beforeUnixMs int64) {
			for more := true; more; {
				x, err := s.Expire(ctx, beforeUnixMs, 250)
				if err != nil {
					t.Error(err)
				}
				removed.Add(x.Readings)
				devices.Add(x.Devices)
				more = x.More
			}
		}
		for _, n := range []*pgstore.Store{s, other} {
			all.Go(func() { expire(n, sealStart+150*60000) })
		}
		all.Wait()
		left := queryValue[int64](t, server, "SELECT count(*) FROM "+o.Schema+".all_readings")
		late := queryValue[int64](t, server,
			"SELECT count(*) FROM "+o.Schema+".all_readings WHERE time_ms >= "+fmt.Sprint(int64(sealStart+150*60000)))
		if left != 450 || late != 450 || removed.Load() != 450 {
			t.Fatalf("%d readings were removed, want 450; %d are left, of which %d are later", removed.Load(), left, late)
		}
		expire(s, end)
		if left := queryValue[int64](t, server,
			"SELECT (SELECT count(*) FROM "+o.Schema+".all_readings) + (SELECT count(*) FROM "+o.Schema+".devices)"); left !=
			0 || removed.Load() != 900 || devices.Load() != 3 {
			t.Fatalf("%d readings of %d devices were removed, want 900 of 3; %d are left", removed.Load(), devices.Load(), left)
		}
	}
}

// TestSealedPublished checks that nothing is sealed while consumers of logical decoding would take it for erasures.
func TestSealedPublished(t *testing.T) {
	server := pgtest.Start(t, append(fast, "wal_level=logical")...)
	o := options(server)
	o.SealAtLeast = 1
	s := open(t, o)
	try(t, s.Append(mixed("bed-7", 100)))
	execute(t, server,
		"CREATE PUBLICATION downstream FOR TABLE "+o.Schema+".readings WITH (publish_via_partition_root = true)")
	for _, remedy := range []string{"SET (publish = 'insert, update')", "SET (publish = 'insert, update, delete')",
		"ADD TABLE " + o.Schema + ".segments"} {
		execute(t, server, "ALTER PUBLICATION downstream "+remedy)
		n, err := pgstore.Seal(s, sealStart+50*60000)
		if refused := strings.Contains(remedy, "delete"); refused != errors.Is(err, pgstore.ErrPublished) ||
			refused && n != 0 || !refused && err != nil {
			t.Errorf("after %s, Seal returned %d, %v", remedy, n, err)
		}
	}
}

// TestSealedPublishedCreates checks that the partitions of the next readings are created if a publication forbids
// sealing.
func TestSealedPublishedCreates(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.SealAfter, o.SealEvery = time.Hour, time.Hour
	s := open(t, o)
	publication := "downstream_" + o.Schema
	execute(t, server, "CREATE PUBLICATION "+publication+" FOR TABLE "+o.Schema+".readings")
	defer execute(t, server, "DROP PUBLICATION "+publication)
	if _, err := pgstore.Seal(s, sealStart); !errors.Is(err, pgstore.ErrPublished) {
		t.Errorf("Seal returned %v, want ErrPublished", err)
	}
	if got := partitions(t, server, o); len(got) != 2 {
		t.Errorf("there are the partitions %v, want the present and the next one", got)
	}
}

// TestSealedSQL runs the queries of docs/scaling.md, and checks that those of a device and a time read what they need.
func TestSealedSQL(t *testing.T) {
	t.Parallel()
	var queries []string
	for _, q := range strings.Split(scalingSQL, ";\n") {
		if strings.Contains(q, "SELECT ") && strings.Contains(q, "FROM ") { // not that of a snapshot
			queries = append(queries, q)
		}
	}
	server := pgtest.Start(t, fast...)
	o := options(server)
	o.Schema, o.SealAtLeast = pgstore.DefaultSchema, 1
	s := open(t, o)
	for _, d := range []string{"bed-7", "bed-8"} {
		try(t, s.Append(mixed(d, 3000)))
	}
	bed7, _ := vitals.ParseName("bed-7")
	subject, _ := storage.ParseSubject("patient-1")
	try(t, s.Assign(context.Background(), storage.Assignment{Device: bed7, Subject: subject, FromUnixMs: sealStart,
		ToUnixMs: sealStart + 1000*60000}))
	conn := connect(t, server)
	defer conn.Close(context.Background())
	results := func() (all []string) {
		for _, q := range queries {
			rows, err := conn.Query(context.Background(), "SELECT r::text FROM ("+q+") AS r")
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil || len(got) == 0 {
				t.Fatalf("%s returned %q, %v", q, got, err)
			}
			all = append(all, strings.Join(got, "\n"))
		}
		return all
	}
	before := results()
	seal(t, s, time.Now().UnixMilli())
	for i, got := range results() {
		if got != before[i] {
			t.Errorf("%s returned %q before readings were sealed, and %q afterwards", queries[i], before[i], got)
		}
	}
	mustExecute(t, conn, "ANALYZE")
	explain := func(sql string) string {
		rows, err := conn.Query(context.Background(), "EXPLAIN "+sql)
		try(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		try(t, err)
		return strings.Join(lines, "\n")
	}
	mustExecute(t, conn, "SET enable_seqscan = off") // the tables are small
	plan := explain(
		"SELECT * FROM pulsegate.all_readings WHERE device = 'bed-7' AND time_ms >= 1763719200000 AND time_ms < " +
			"1763722800000")
	if !regexp.MustCompile(
		`(?s)on readings.*\(device = 'bed-7'::text\) AND \(time_ms >= '?1763719200000.*on segments.*Index Cond: \(device = ` +
			`'bed-7'::text\)`).MatchString(plan) {
		t.Errorf("the view is read by\n%s", plan)
	}
	plan = explain("SELECT * FROM pulsegate.readings_between(1763719200000, 1763722800000) WHERE device = 'bed-7'")
	if !regexp.MustCompile(
		`(?s)on readings.*\(device = 'bed-7'::text\) AND \(time_ms >= '?1763719200000.*on segments.*\(device = ` +
			`'bed-7'::text\) AND \(\w+ [<>]=? '?17637`).MatchString(plan) {
		t.Errorf("readings_between is read by\n%s", plan)
	}
}
