package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestLockOrder sends a group of which another node, which sends the same readings, has stored one, and has not
// committed: the group waits for it, and has locked no later reading, for which the other node would have to wait. It
// does so whichever readings are expected to be new.
//
// Seen to fail with the mutant insert-first.
func TestLockOrder(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	devices := []string{"a", "b", "c", "d"}
	insert := "INSERT INTO " + o.Schema +
		".readings (device, time_ms, received_ms, heart_rate_bpm, shared, changed) VALUES ($1, $2, 1, 7000, false, 0)"
	ctx, base := context.Background(), int64(0)
	other, watch := connect(t, server), connect(t, server)
	defer other.Close(ctx)
	defer watch.Close(ctx)
	waits := func() (waits bool) {
		if err := watch.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = "+
				"'transactionid')").Scan(&waits); err != nil {
			t.Error(err)
		}
		return waits
	}
	for pattern := range 1 << len(devices) {
		for first := range len(devices) - 1 {
			base += 100
			var known, group []*storage.Entry
			times := make([]int64, len(devices))
			for i, device := range devices {
				times[i] = base + 10 // later than what is known
				if pattern>>i&1 == 0 {
					times[i] = base - 10
				}
				known = append(known, reading(device, base, 7000))
				group = append(group, reading(device, times[i], 7000))
			}
			mustStore(t, s, known...)
			tx, err := other.Begin(ctx)
			try(t, err)
			mustExecute(t, tx, insert, devices[first], times[first])
			done := make(chan error, 1)
			go func() { done <- s.Append(group) }()
			polltest.Until(t, "the group waits", waits)
			for i := first + 1; i < len(devices); i++ {
				if _, err := tx.Exec(ctx, insert, devices[i], times[i]); err != nil {
					t.Fatalf("readings expected to be new %04b, the other node has %s, and waits for %s: %v", pattern, devices[first],
						devices[i], err)
				}
			}
			try(t, tx.Commit(ctx))
			try(t, <-done)
			for i, e := range group {
				want := storage.Stored
				if i >= first {
					want = storage.Duplicate
				}
				if e.Outcome != want {
					t.Errorf(
						"readings expected to be new %04b, the other node has them from %s on: that of %s got outcome %s, want %s",
						pattern, devices[first], e.Reading.Device, outcomeName(e.Outcome), outcomeName(want))
				}
			}
			if n := metric(t, s, "pulsegate_postgres_retries_total", `"40P01"`); n != 0 {
				t.Fatalf("readings expected to be new %04b, the other node has %s: deadlock", pattern, devices[first])
			}
		}
	}
	if metric(t, s, "pulsegate_postgres_retries_total", `"23505"`) == 0 {
		t.Error("no reading was expected to be new")
	}
}

// TestLockOrderSealed sends a group that needs two segments, of which another transaction has locked the first one: the
// group waits for it, and has not locked the other one, whichever of them its readings need first.
func TestLockOrderSealed(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	o.SealAtLeast = 1
	s := open(t, o)
	ctx := context.Background()
	other := connect(t, server)
	defer other.Close(ctx)
	patterns := [][2][]int64{ // times of the segments, which are sealed in a random order
		{{10, 200}, {120, 150}},
		{{10, 140}, {120, 150}},
	}
	for _, times := range slices.Repeat(patterns, 3) {
		var sealed []*storage.Entry
		for i, all := range times {
			for _, ms := range all {
				e := reading("d", ms, 7000)
				e.Reading.UTCOffset = vitals.MakeUTCOffset(60 * i)
				sealed = append(sealed, e)
			}
		}
		mustStore(t, s, append(sealed, reading("d", 300, 7000))...)
		if n := seal(t, s, 301); n != int64(len(sealed)) {
			t.Fatalf("%d readings were sealed, want %d", n, len(sealed))
		}
		lasts := []int64{times[0][1], times[1][1]}
		slices.Sort(lasts)
		lock := "SELECT FROM " + o.Schema + ".segments WHERE last_ms = $1 FOR UPDATE NOWAIT"
		tx, err := other.Begin(ctx)
		try(t, err)
		mustExecute(t, tx, lock, lasts[0])
		done := make(chan error, 1)
		group := []*storage.Entry{reading("d", 50, 7000), reading("d", 130, 7000)}
		go func() { done <- s.Append(group) }()
		polltest.Until(t, "the group waits", func() bool {
			return queryValue[bool](t, server,
				"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = "+
					"'transactionid')")
		})
		if _, err := tx.Exec(ctx, lock, lasts[1]); err != nil {
			t.Errorf("segments %v: the group waits for the first one, and has locked the second one: %v", times, err)
		}
		try(t, tx.Rollback(ctx), <-done)
		_, err = s.Erase(group[0].Reading.Device)
		try(t, err)
	}
}

// TestLockOrderTable sends a group that has to wait for a record: it has locked the table before, so a removal, which
// locks the table and then deletes records, waits for it, and does not meet it half-way.
//
// Seen to fail when a group locked records before the table.
func TestLockOrderTable(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	group := []*storage.Entry{reading("a", 1, 7000), reading("b", 1, 7000)}
	mustStore(t, s, group...)
	other := connect(t, server)
	defer other.Close(ctx)
	tx, err := other.Begin(ctx)
	try(t, err)
	mustExecute(t, tx, "SELECT FROM "+o.Schema+".readings WHERE device = 'b' FOR UPDATE")
	done := make(chan error, 1)
	go func() { done <- s.Append(group) }()
	var states string
	polltest.Until(t, "the group waits", func() bool {
		states = queryValue[string](t, server,
			`SELECT coalesce(string_agg(DISTINCT EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.granted AND l.mode = 'RowExclusiveLock'
			AND l.relation = '`+o.Schema+`.readings'::regclass)::text, ' '), '') FROM pg_stat_activity AS a WHERE `+
				`application_name = 'pulsegate' AND query LIKE '%`+o.Schema+`%' AND wait_event IN ('transactionid', 'tuple')`)
		return states != ""
	})
	if states != "true" {
		t.Error("the group waits for a record, and has not locked the table")
	}
	try(t, tx.Rollback(ctx), <-done)
}

// TestLockOrderErasing erases a device of which an erasure is unfinished, while the end of that erasure has the table
// on another server: it waits, and has not locked what that end deletes.
func TestLockOrderErasing(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	ctx := context.Background()
	mustStore(t, s, reading("a", 1, 7000))
	other := connect(t, server)
	defer other.Close(ctx)
	mustExecute(t, other,
		"INSERT INTO "+o.Schema+".erasing VALUES (1, 'a', 0, 9223372036854775807, '', 0, '', false, now(), 0, '{}')")
	tx, err := other.Begin(ctx)
	try(t, err)
	mustExecute(t, tx, "LOCK TABLE ONLY "+o.Schema+".readings IN SHARE ROW EXCLUSIVE MODE")
	done := make(chan error, 1)
	go func() {
		_, err := s.Erase(modelNames("a")[0])
		done <- err
	}()
	polltest.Until(t, "the erasure waits", func() bool {
		return queryValue[bool](t, server,
			"SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = '"+o.Schema+".readings'::regclass)")
	})
	if _, err := tx.Exec(ctx, "SELECT FROM "+o.Schema+".erasing FOR UPDATE NOWAIT"); err != nil {
		t.Errorf("the erasure waits for the table, and has locked its row of erasing: %v", err)
	}
	try(t, tx.Rollback(ctx), <-done)
}

// TestRemovalsBesideGroups stores late and repeated readings, some of which are in segments, beside each kind of
// removal: none of them deadlocks.
func TestRemovalsBesideGroups(t *testing.T) {
	o := options(sharedServer(t))
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	group := func() (g []*storage.Entry) {
		for _, device := range []string{"a", "b", "c"} {
			for ms := range int64(40) {
				g = append(g, reading(device, ms, 7000))
			}
		}
		return g
	}
	mustStore(t, s, group()...)
	devices := modelNames("a", "b", "c")
	assignment := storage.Assignment{Device: devices[1], Subject: "p", FromUnixMs: 5, ToUnixMs: 30}
	for name, remove := range map[string]func() error{
		"erase": func() error { _, err := other.Erase(devices[0]); return err },
		"erase an assignment": func() error {
			if err := other.Assign(ctx, assignment); err != nil {
				return err
			}
			_, err := other.EraseAssignment(assignment)
			return err
		},
		"expire":  func() error { _, err := other.Expire(ctx, 35, 1000); return err },
		"drop":    func() error { _, err := other.Expire(ctx, 1<<40, 1000); return err },
		"sealing": func() error { _, err := pgstore.Seal(other, 35); return err },
	} {
		t.Run(name, func(t *testing.T) {
			var removing sync.WaitGroup
			var stop atomic.Bool
			removing.Go(func() {
				for !stop.Load() {
					if err := remove(); err != nil && !errors.Is(err, storage.ErrNotFound) {
						t.Error(err)
						return
					}
				}
			})
			for range 30 {
				mustStore(t, s, group()...)
			}
			stop.Store(true)
			removing.Wait()
			for _, store := range []*pgstore.Store{s, other} {
				if n := metric(t, store, "pulsegate_postgres_retries_total", `"40P01"`); n != 0 {
					t.Errorf("%v deadlocks", n)
				}
			}
		})
	}
}
