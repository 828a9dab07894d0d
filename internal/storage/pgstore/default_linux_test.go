package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// partitions returns the partitions of readings in their order, without the default one.
func partitions(t testing.TB, server *pgtest.Server, o pgstore.Options) []string {
	t.Helper()
	return queryValue[[]string](t, server,
		`SELECT coalesce(array_agg(c.relname::text ORDER BY length(c.relname), c.relname), '{}') FROM pg_inherits AS i
		JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = $1::regclass AND c.relname <> 'readings_default'`,
		o.Schema+".readings")
}

// TestDefaultPartition stores readings of all times: only those that are not old enough to be sealed get a partition,
// and all are found, completed and sealed.
func TestDefaultPartition(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.SealAfter, o.SealEvery, o.SealAtLeast = time.Hour, time.Hour, 1
	s := open(t, o)
	now := time.Now().UnixMilli()
	times := []int64{0, 1, sealStart - 10*365*dayMs, sealStart, sealStart + 1, now, now + 10*365*dayMs, math.MaxInt64 - 1}
	group := func() (all []*storage.Entry) {
		for _, ms := range times {
			all = append(all, reading("d", ms, 1))
		}
		return all
	}
	mustStore(t, s, group()...)
	for _, e := range slices.Concat(storeOnce(t, s, group()), storeOnce(t, open(t, o), group())) {
		if e.Outcome != storage.Duplicate {
			t.Errorf("the reading of %d got outcome %s again, want duplicate", e.Reading.TimeUnixMs, outcomeName(e.Outcome))
		}
	}
	if got := partitions(t, server, o); len(got) != 1 {
		t.Errorf("there are the partitions %v, want the present one", got)
	}
	all := storage.Range{Device: modelNames("d")[0], ToUnixMs: math.MaxInt64}
	want := scanned(t, s, all, 100)
	if len(want) != len(times) {
		t.Fatalf("%d readings are found, want %d", len(want), len(times))
	}
	if n := seal(t, s, sealStart+dayMs); n != 4 {
		t.Errorf("%d readings of the default partition were sealed, want all but the latest, 4", n)
	}
	if got := scanned(t, s, all, 100); !sameRecords(got, want) {
		t.Errorf("sealed: %v, want %v", got, want)
	}
	if x, err := s.Expire(context.Background(), sealStart+1, 1<<40); err != nil || x.Readings != 4 {
		t.Errorf("Expire returned %+v, %v, want 4 readings", x, err)
	}
}

func storeOnce(t *testing.T, s *pgstore.Store, group []*storage.Entry) []*storage.Entry {
	t.Helper()
	mustStore(t, s, group...)
	return group
}

// TestRetired imports readings with a server that has partitions for all times, and seals them with one that drops the
// emptied ones, while others read all of them, send them again, complete some, and erase a device. Each reading is
// there, once, all the time.
//
// Seen to fail when a read did not lock the table before its snapshot, and when the readings that were left did not
// move.
func TestRetired(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	importing := open(t, o)
	o.SealAfter, o.SealEvery, o.SealAtLeast = time.Hour, time.Hour, 1
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	const months, each, monthMs = 6, 20, 30 * dayMs
	const begin = sealStart / monthMs * monthMs
	group := func(device string) (all []*storage.Entry) {
		for m := range int64(months) {
			for i := range int64(each) {
				all = append(all, reading(device, begin+m*monthMs+i*minuteMs, 1))
			}
		}
		return all
	}
	devices := modelNames("a", "b", "c")
	for round := range 3 {
		for _, d := range devices {
			mustStore(t, importing, group(d.String())...)
		}
		mustStore(t, importing, reading("gone", begin+int64(round), 1), reading("stopped", begin+monthMs, 1))
		if n := len(partitions(t, server, o)); n < months && round == 0 {
			t.Fatalf("there are %d partitions, want %d", n, months)
		}
		var calls, beside sync.WaitGroup
		var ended atomic.Bool
		for _, reader := range []*pgstore.Store{s, other, importing} {
			beside.Go(func() {
				for !ended.Load() {
					if n := len(scanned(t, reader, storage.Range{Device: devices[0], ToUnixMs: math.MaxInt64}, 50)); n != months*each {
						t.Errorf("%d readings of a are found, want %d", n, months*each)
						return
					}
					if d, err := reader.Latest(ctx, devices[1]); err != nil ||
						d.NewestUnixMs != begin+(months-1)*monthMs+(each-1)*minuteMs {
						t.Errorf("Latest returned %d, %v", d.NewestUnixMs, err)
						return
					}
				}
			})
		}
		for _, writer := range []*pgstore.Store{other, importing} {
			calls.Go(func() {
				for range 5 {
					for _, e := range storeOnce(t, writer, group("b")) {
						if e.Outcome != storage.Duplicate {
							t.Errorf("a reading got outcome %s again, want duplicate", outcomeName(e.Outcome))
							return
						}
					}
				}
			})
		}
		calls.Go(func() {
			if _, err := other.Erase(modelNames("gone")[0]); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Error(err)
			}
		})
		for _, sealing := range []*pgstore.Store{s, other} {
			calls.Go(func() {
				for range 5 {
					if _, err := pgstore.Seal(sealing, begin+months*monthMs); err != nil {
						t.Log(err) // a lock was not free for long
					}
				}
			})
		}
		calls.Wait()
		ended.Store(true)
		beside.Wait()
		seal(t, s, begin+months*monthMs)
		present := time.Now().UnixMilli() / monthMs
		if got := partitions(t, server, o); len(got) != 2 {
			t.Errorf("there are the partitions %v, want the present and the next one, of %d", got, present)
		}
		for _, d := range devices {
			if n := len(scanned(t, s, storage.Range{Device: d, ToUnixMs: math.MaxInt64}, 50)); n != months*each {
				t.Errorf("%d readings of %s are left, want %d", n, d, months*each)
			}
		}
		if d, err := s.Latest(ctx, modelNames("stopped")[0]); err != nil || d.NewestUnixMs != begin+monthMs {
			t.Errorf("Latest of a device that has stopped returned %d, %v", d.NewestUnixMs, err)
		}
		if n := queryValue[int](t, server,
			"SELECT count(*) FROM (SELECT FROM "+o.Schema+".all_readings GROUP BY device, time_ms HAVING count(*) > "+
				"1) AS twice"); n != 0 {
			t.Errorf("%d readings are there twice", n)
		}
	}
	if n := queryValue[int](t, server, "SELECT count(*) FROM pg_locks WHERE NOT granted"); n != 0 {
		t.Errorf("%d locks are waited for", n)
	}
	for _, store := range []*pgstore.Store{s, other, importing} {
		if n := metric(t, store, "pulsegate_postgres_retries_total", `"40P01"`); n != 0 {
			t.Errorf("%v deadlocks", n)
		}
	}
}

// TestRetiredBesideVacuum seals while another session, such as a vacuum, has a partition: it stays, and those after it
// are dropped.
func TestRetiredBesideVacuum(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	importing := open(t, o)
	o.SealAfter, o.SealEvery, o.SealAtLeast = time.Hour, time.Hour, 1
	s := open(t, o)
	const monthMs = 30 * dayMs
	const begin = sealStart / monthMs * monthMs
	mustStore(t, importing, reading("d", begin, 1), reading("d", begin+monthMs, 1))
	first := partitions(t, server, o)[0]
	conn := connect(t, server)
	defer conn.Close(context.Background())
	mustExecute(t, conn, "BEGIN; LOCK TABLE "+o.Schema+"."+first+" IN SHARE UPDATE EXCLUSIVE MODE")
	seal(t, s, begin+2*monthMs)
	if got := partitions(t, server, o); len(got) != 3 || got[0] != first {
		t.Errorf("there are the partitions %v, want %s, the present and the next one", got, first)
	}
	mustExecute(t, conn, "COMMIT")
}

// TestDumpSnapshot seals while a session has exported a snapshot as docs/scaling.md says: whoever imports it later
// finds all rows, and no partition is dropped before the session ends. Seen to fail without the lock.
func TestDumpSnapshot(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	importing := open(t, o)
	o.SealAfter, o.SealEvery, o.SealAtLeast = time.Hour, time.Hour, 1
	s := open(t, o)
	const readings = 20
	for i := range int64(readings) {
		mustStore(t, importing, reading("d", sealStart+i*dayMs, 1))
	}
	dumping, dump := connect(t, server), connect(t, server)
	recipe, _, _ := strings.Cut(scalingSQL, "SELECT device")
	steps := strings.SplitN(strings.ReplaceAll(recipe, "pulsegate.", o.Schema+"."), ";\n", 3)
	for _, sql := range steps[:2] {
		mustExecute(t, dumping, sql)
	}
	var snapshot string
	try(t, dumping.QueryRow(context.Background(), steps[2]).Scan(&snapshot))
	old := partitions(t, server, o)[0]
	for range 2 {
		seal(t, s, sealStart+60*dayMs)
	}
	if got := partitions(t, server, o); !slices.Contains(got, old) {
		t.Errorf("there are the partitions %v, want %s among them", got, old)
	}
	mustExecute(t, dump, "BEGIN ISOLATION LEVEL REPEATABLE READ")
	mustExecute(t, dump, "SET TRANSACTION SNAPSHOT '"+snapshot+"'")
	var rows int
	try(t, dump.QueryRow(context.Background(), "SELECT count(*) FROM "+o.Schema+".readings").Scan(&rows))
	if rows != readings {
		t.Errorf("the dump has %d rows, want %d", rows, readings)
	}
	mustExecute(t, dump, "COMMIT")
	mustExecute(t, dumping, "COMMIT")
	seal(t, s, sealStart+60*dayMs)
	if got := partitions(t, server, o); slices.Contains(got, old) {
		t.Errorf("there are the partitions %v, want %s dropped", got, old)
	}
}

// TestManyPartitions stores readings of many months without sealing: the log warns once.
func TestManyPartitions(t *testing.T) {
	o := options(sharedServer(t))
	var log logBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, o)
	for m := range int64(60) {
		if log.contains("many partitions") {
			t.Errorf("a warning after %d months", m)
		}
		mustStore(t, s, reading("d", m*30*dayMs, 1))
	}
	if !log.contains("partitions=60") {
		t.Error("no warning of 60 partitions")
	}
}

// TestDefaultShrinks imports old readings with a server that seals, while another one reads them: when they are sealed,
// the disk that their rows and indexes took is given back, and all are there.
func TestDefaultShrinks(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.SealAfter, o.SealEvery, o.SealAtLeast = time.Hour, time.Hour, 1
	s, other := open(t, o), open(t, o)
	size := func() int64 {
		return queryValue[int64](t, server, "SELECT pg_total_relation_size('"+o.Schema+".readings_default')")
	}
	const each = 4000
	var devices []string
	for d := range 32 {
		devices = append(devices, fmt.Sprint("device-", d))
		var group []*storage.Entry
		for i := range int64(each) {
			group = append(group, reading(devices[d], sealStart+i*minuteMs, vitals.Value(i)))
		}
		mustStore(t, s, group...)
	}
	if size() < 16<<20 {
		t.Fatalf("the default partition has %d bytes only", size())
	}
	var beside sync.WaitGroup
	var ended atomic.Bool
	beside.Go(func() {
		for i := 0; !ended.Load(); i++ {
			r := storage.Range{Device: modelNames(devices[i%len(devices)])[0], ToUnixMs: math.MaxInt64}
			if n := len(scanned(t, other, r, each+1)); n != each {
				t.Errorf("%d readings of a device are found, want %d", n, each)
				return
			}
		}
	})
	for range 20 {
		seal(t, s, sealStart+each*minuteMs)
		if size() < 16<<20 {
			break
		}
	}
	ended.Store(true)
	beside.Wait()
	if size() >= 16<<20 {
		t.Errorf("the default partition has %d bytes after its readings were sealed", size())
	}
	if n, err := s.CountReadings(context.Background()); err != nil || n != int64(each*len(devices)) {
		t.Errorf("%d readings are left, %v, want %d", n, err, each*len(devices))
	}
}

// TestPartitionNotTriedAgain creates a partition of which the default one has a reading, and again when that is gone:
// PostgreSQL reads the default partition once for it. A store that has not tried it creates it.
func TestPartitionNotTriedAgain(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	conn := connect(t, server)
	defer conn.Close(context.Background())
	mustExecute(t, conn,
		"INSERT INTO "+o.Schema+".readings (device, time_ms, received_ms, heart_rate_bpm, shared, changed) VALUES ('d', 1, "+
			"1, 1, false, 0)")
	try(t, pgstore.CreatePartition(s, conn, 0))
	mustExecute(t, conn, "DELETE FROM "+o.Schema+".readings")
	try(t, pgstore.CreatePartition(s, conn, 0))
	if got := partitions(t, server, o); len(got) != 0 {
		t.Errorf("there are the partitions %v, want none", got)
	}
	try(t, pgstore.CreatePartition(open(t, o), conn, 0))
	if got := partitions(t, server, o); len(got) != 1 {
		t.Errorf("another store has created the partitions %v, want one", got)
	}
}

// TestDefaultLocked locks the default partition: late readings are rejected, also if others of their time were stored
// before, and hold up no others.
func TestDefaultLocked(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.SealAfter, o.SealEvery, o.Timeout = time.Hour, time.Hour, polltest.Patience
	s := open(t, o)
	now := time.Now().UnixMilli()
	mustStore(t, s, reading("d", 1, 1), reading("d", now, 1))
	admin := connect(t, server)
	defer admin.Close(context.Background())
	for _, mode := range []string{"SHARE", "ACCESS EXCLUSIVE"} {
		mustExecute(t, admin, "BEGIN; LOCK TABLE "+o.Schema+".readings_default IN "+mode+" MODE")
		for i, late := range []int64{2, sealStart} {
			now++
			pgstore.TryClosed(s, true)
			group := storeOnce(t, s, []*storage.Entry{reading("d", late, 1), reading("d", now, 1)})
			if group[0].Outcome != storage.Unavailable || group[1].Outcome != storage.Stored {
				t.Errorf("%s, group %d: outcomes %s and %s, want unavailable and stored", mode, i, outcomeName(group[0].Outcome),
					outcomeName(group[1].Outcome))
			}
		}
		mustExecute(t, admin, "COMMIT")
	}
	pgstore.TryClosed(s, true)
	for _, e := range storeOnce(t, s, []*storage.Entry{reading("d", 2, 1), reading("d", sealStart, 1)}) {
		if e.Outcome != storage.Stored {
			t.Errorf("the reading of %d got outcome %s when the partition was free, want stored", e.Reading.TimeUnixMs,
				outcomeName(e.Outcome))
		}
	}
}
