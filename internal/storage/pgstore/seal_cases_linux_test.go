package pgstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestSealedEraseLatest erases the latest readings: the latest one of those that are left was in a segment.
//
// Its mutant is erase-latest-in-rows.
func TestSealedEraseLatest(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s := open(t, o)
	for part := range int64(2) {
		var group []*storage.Entry
		for i := range int64(50) {
			group = append(group, reading("d", sealStart+(50*part+i)*minuteMs, 1))
		}
		try(t, s.Append(group))
		seal(t, s, sealStart+1000*minuteMs)
	}
	a := assignment("d", "P", sealStart+49*minuteMs, math.MaxInt64) // the second segment begins there
	try(t, s.Assign(context.Background(), a))
	_, err := s.EraseAssignment(a)
	try(t, err)
	if got, err := s.Latest(context.Background(), a.Device); err != nil || got.NewestUnixMs != sealStart+48*minuteMs {
		t.Errorf("Latest returned %+v, %v, want a reading of %d", got, err, int64(sealStart+48*minuteMs))
	}
}

// TestEraseSealedValues erases values of readings in segments, more than one transaction changes: those of a sign, and
// of a gateway. What is left is sealed again.
//
// Its mutant is erase-values-in-rows.
func TestEraseSealedValues(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s := open(t, o)
	const n = 12_000
	var group []*storage.Entry
	for i := range int64(n) {
		e := reading("d", sealStart+i*1000, 1)
		if i%3 == 0 {
			e.Reading.Values.Set(vitals.SpO2, 9000)
		}
		e.Reading.Gateway = modelNames([]string{"g1", "g2"}[i/100%2])[0]
		group = append(group, e)
	}
	try(t, s.Append(group))
	seal(t, s, sealStart+2*n*1000)
	e := storage.Erasure{Device: modelNames("d")[0], FromUnixMs: sealStart, ToUnixMs: sealStart + (n-1)*1000,
		Signs: 1 << vitals.HeartRate}
	got, err := s.EraseValues(e)
	if err != nil || got.Readings != n-1 {
		t.Errorf("of a sign: %+v, %v, want %d readings", got, err, n-1)
	}
	all := storage.Range{Device: e.Device, ToUnixMs: math.MaxInt64}
	if left := scanned(t, s, all, n); len(left) != n/3+1 {
		t.Errorf("of a sign: %d readings are left, want %d", len(left), n/3+1)
	}
	if d, err := s.Latest(context.Background(), e.Device); err != nil ||
		d.Latest[vitals.HeartRate].TimeUnixMs != e.ToUnixMs {
		t.Errorf("Latest returned %+v, %v", d, err)
	}
	seal(t, s, sealStart+2*n*1000)
	e.Signs, e.Gateway = 0, modelNames("g1")[0]
	if got, err = s.EraseValues(e); err != nil || got.Readings != n/6 {
		t.Errorf("of a gateway: %+v, %v, want %d readings", got, err, n/6)
	}
	seal(t, s, sealStart+2*n*1000)
	if left := scanned(t, s, all, n); len(left) != n/6+1 {
		t.Errorf("of a gateway: %d readings are left, want %d", len(left), n/6+1)
	}
}

// TestEraseNothingSealed erases values that no segment has: those of a gateway that has sent none, of a sign that none
// has, and of a gateway whose readings another one has completed. All segments stay, which would otherwise become rows
// while no group is stored.
//
// Seen to fail when all segments of the time became rows.
func TestEraseNothingSealed(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s := open(t, o)
	const n = 12_000
	for _, part := range []struct {
		gateway string
		sign    vitals.Sign
	}{{"g1", vitals.HeartRate}, {"g2", vitals.SpO2}} {
		var group []*storage.Entry
		for i := range int64(n) {
			e := reading("d", sealStart+i*1000, 1)
			e.Reading.Values = vitals.Values{}
			e.Reading.Values.Set(part.sign, 9000)
			e.Reading.Gateway = modelNames(part.gateway)[0]
			group = append(group, e)
		}
		try(t, s.Append(group))
	}
	seal(t, s, sealStart+2*n*1000)
	segments := func() int64 {
		return queryValue[int64](t, sharedServer(t), "SELECT count(*) FROM "+o.Schema+".segments")
	}
	before := segments()
	for _, e := range []storage.Erasure{
		{Gateway: modelNames("nobody")[0]}, {Signs: 1 << vitals.Systolic}, {Gateway: modelNames("g1")[0]},
		{Gateway: modelNames("g2")[0], Shared: true},
	} {
		e.Device, e.FromUnixMs, e.ToUnixMs = modelNames("d")[0], sealStart, storage.OpenEnd
		if got, err := s.EraseValues(e); err != nil || got.Readings != 0 {
			t.Errorf("erased %+v, %v, want nothing", got, err)
		}
		if left := segments(); left != before || before == 0 {
			t.Errorf("%+v leaves %d segments of %d", e, left, before)
		}
	}
}

// TestEraseBesideStored stores a reading while an erasure of its sign is between two statements. It is erased, too, and
// no reading without values is left.
//
// Seen to fail when the second statement emptied what the first one had not seen.
func TestEraseBesideStored(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	a, b := open(t, o), open(t, o)
	mustStore(t, a, heardBy("g1", 1, vitals.HeartRate), heardBy("g1", 50, vitals.SpO2))
	const lock = 4711
	execute(t, server, fmt.Sprintf(`CREATE FUNCTION %[1]s.slow() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_lock(%[2]d); PERFORM pg_advisory_unlock(%[2]d); RETURN OLD; END $$;
		CREATE TRIGGER slow BEFORE DELETE ON %[1]s.readings FOR EACH ROW EXECUTE FUNCTION %[1]s.slow()`, o.Schema, lock))
	conn := connect(t, server)
	defer conn.Close(context.Background())
	_, err := conn.Exec(context.Background(), "SELECT pg_advisory_lock($1)", lock)
	try(t, err)
	done := make(chan error)
	go func() {
		_, err := a.EraseValues(storage.Erasure{Device: modelNames("heard")[0], ToUnixMs: 40, Signs: 1 << vitals.HeartRate})
		done <- err
	}()
	polltest.Until(t, "the erasure waits", func() bool {
		return queryValue[int64](t, server,
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted") == 1
	})
	mustStore(t, b, heardBy("g1", 2, vitals.HeartRate))
	_, err = conn.Exec(context.Background(), "SELECT pg_advisory_unlock($1)", lock)
	try(t, err, <-done)
	if n, err := a.CountReadings(context.Background()); err != nil || n != 1 {
		t.Errorf("%d readings are left, %v, want that of 50", n, err)
	}
}

// TestSealedCompleted seals readings that were completed after different times, cuts their segments, and turns these
// into rows again: when they were changed stays what it was.
func TestSealedCompleted(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s := open(t, o)
	after := []int64{0, 1, 255, 300, 1 << 17, 0, 1<<31 - 1, 1 << 31, 1<<31 + 7, 1 << 40, 1<<40 + 1}
	const n = 100
	for i := range int64(n) {
		first := reading("d", sealStart+i*minuteMs, 1)
		first.ReceivedUnixMs = first.Reading.TimeUnixMs + 5
		mustStore(t, s, first)
		if ms := after[i%int64(len(after))]; ms > 0 {
			rest := reading("d", first.Reading.TimeUnixMs, 1)
			rest.Reading.Values.Set(vitals.SpO2, 9000)
			rest.ReceivedUnixMs = first.ReceivedUnixMs + ms
			mustStore(t, s, rest)
		}
	}
	everything := storage.Range{Device: modelNames("d")[0], ToUnixMs: math.MaxInt64}
	want := scanned(t, s, everything, n+1)
	if got := want[9].ChangedUnixMs - want[9].ReceivedUnixMs; got != 1<<40 {
		t.Fatalf("a reading was completed after %d ms, want 1<<40", got)
	}
	check := func(what string) {
		t.Helper()
		if got := scanned(t, s, everything, n+1); !sameRecords(got, want) {
			t.Errorf("%s: got\n%v\nwant\n%v", what, got, want)
		}
	}
	if sealed := seal(t, s, sealStart+1000*minuteMs); sealed != n-2 {
		t.Errorf("%d readings were sealed, want all but the latest of each sign, %d", sealed, n-2)
	}
	check("sealed")
	const gone = 15
	_, err := s.Expire(context.Background(), sealStart+gone*minuteMs, math.MaxInt64)
	try(t, err)
	want = want[gone:]
	check("cut")
	late := reading("d", sealStart+20*minuteMs+1, 1)
	mustStore(t, s, late)
	want = slices.Insert(want, 20-gone+1, storage.RecordOf(late))
	check("rows again")
}

// TestSealedOldHorizon repeats, on another server, what was sealed at this moment. That server learns of the new
// horizon when it fails, or within a second.
//
// Its mutant is trust-old-horizon.
func TestSealedOldHorizon(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	for round := range int64(20) {
		group := func() (all []*storage.Entry) {
			for i := range int64(10) {
				all = append(all, reading("d", sealStart+(10*round+i)*minuteMs, 1))
			}
			return all
		}
		try(t, other.Append(group()))
		seal(t, s, sealStart+(10*round+10)*minuteMs)
		again := group()
		try(t, other.Append(again))
		for i, e := range again {
			if e.Outcome != storage.Duplicate {
				t.Errorf("round %d: reading %d got outcome %s, want duplicate", round, i, storetest.OutcomeName(e.Outcome))
			}
		}
	}
}

// TestSealedCompressed checks that the sealer compresses the pages that it writes to PostgreSQL's log if it has the
// right to, and only it does.
func TestSealedCompressed(t *testing.T) {
	server := sharedServer(t)
	compressed := "pglz"
	if queryValue[bool](t, server, "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'wal_compression'") {
		compressed = "lz4"
	}
	o := options(server)
	role := o.Schema
	execute(t, server, "CREATE ROLE "+role+" LOGIN")
	execute(t, server, "CREATE SCHEMA "+o.Schema+" AUTHORIZATION "+role)
	o.DSN = strings.Replace(o.DSN, pgtest.User+"@", role+"@", 1)
	o.SealAtLeast = 1
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, o)
	mustStore(t, s, mixed("bed-7", 100)...)
	execute(t, server, strings.ReplaceAll(`CREATE TABLE SCHEMA.seen (what text, wal_compression text);
		GRANT INSERT ON SCHEMA.seen TO PUBLIC;
		CREATE FUNCTION SCHEMA.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO SCHEMA.seen VALUES (TG_TABLE_NAME, current_setting('wal_compression')); RETURN NULL; END $$;
		CREATE TRIGGER see AFTER INSERT ON SCHEMA.readings FOR EACH STATEMENT EXECUTE FUNCTION SCHEMA.see();
		CREATE TRIGGER see AFTER INSERT ON SCHEMA.segments FOR EACH STATEMENT EXECUTE FUNCTION SCHEMA.see()`,
		"SCHEMA", o.Schema))
	for i, tt := range []struct{ before, want string }{
		{"", "off"},
		{"GRANT SET ON PARAMETER wal_compression TO " + role, compressed},
	} {
		if tt.before != "" {
			execute(t, server, tt.before)
		}
		if n := seal(t, s, sealStart+int64(i+1)*20*60000); n == 0 {
			t.Errorf("%q: nothing was sealed", tt.before)
		}
		if got := queryValue[string](t, server,
			"SELECT string_agg(DISTINCT wal_compression, ' ') FROM "+o.Schema+".seen WHERE what = 'segments'"); got != tt.want {
			t.Errorf("%q: segments were written with wal_compression %s, want %s", tt.before, got, tt.want)
		}
		execute(t, server, "TRUNCATE "+o.Schema+".seen")
		mustStore(t, s, mixed("bed-8", 100)...) // on the connection that was released last
		if got := queryValue[string](t, server,
			"SELECT string_agg(DISTINCT wal_compression, ' ') FROM "+o.Schema+".seen WHERE what = 'readings'"); got != "off" {
			t.Errorf("%q: readings were written with wal_compression %s, want off", tt.before, got)
		}
		execute(t, server, "TRUNCATE "+o.Schema+".seen")
	}
	try(t, s.Close())
	if n := strings.Count(log.String(), "GRANT SET ON PARAMETER"); n != 1 {
		t.Errorf("the log names the right %d times, want once:\n%s", n, &log)
	}
}

// TestCutBesideLate repeats a reading of a segment while another server removes the first readings of that segment: it
// is a duplicate. Seen to fail when the segment was replaced by another row.
func TestCutBesideLate(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.SealAtLeast = 1
	s := open(t, o)
	var group []*storage.Entry
	for i := range int64(20) {
		group = append(group, reading("d", sealStart+i*minuteMs, 1))
	}
	try(t, s.Append(group))
	seal(t, s, sealStart+1000*minuteMs)
	ctx := context.Background()
	other := connect(t, server)
	defer other.Close(ctx)
	tx, err := other.Begin(ctx)
	try(t, err)
	defer tx.Rollback(ctx)
	var cut int64
	try(t, tx.QueryRow(ctx,
		strings.ReplaceAll(
			`SELECT S.cut_segments(array_agg(device), array_agg(last_ms), array_agg(n), array_agg(3)) FROM S.segments`, "S.",
			o.Schema+".")).Scan(&cut))
	if cut != 3 {
		t.Fatalf("%d readings were removed, want 3", cut)
	}
	again := reading("d", sealStart+10*minuteMs, 1)
	done := make(chan error)
	go func() { done <- s.Append([]*storage.Entry{again}) }()
	polltest.Until(t, "the segment is waited for", func() bool {
		return queryValue[int](t, server,
			"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+o.Schema+"%'") > 0
	})
	try(t, tx.Commit(ctx))
	try(t, <-done)
	n := queryValue[int](t, server, strings.ReplaceAll("SELECT count(*) FROM S.all_readings", "S.", o.Schema+"."))
	if again.Outcome != storage.Duplicate || n != 17 {
		t.Errorf("outcome %s, and %d readings, want a duplicate and 17", outcomeName(again.Outcome), n)
	}
}
