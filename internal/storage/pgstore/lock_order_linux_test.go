package pgstore_test

import (
	"context"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// TestLockOrder sends a group of which another node, which sends the same readings, has stored one, and has not committed: the group waits
// for it, and has locked no later reading, for which the other node would have to wait. It does so whichever readings are expected to be new.
//
// Seen to fail with the mutant insert-first.
func TestLockOrder(t *testing.T) {
	server := sharedServer(t)
	o := options(server)
	s := open(t, o)
	devices := []string{"a", "b", "c", "d"}
	insert := "INSERT INTO " + o.Schema + ".readings (device, time_ms, received_ms, hr, had) VALUES ($1, $2, 1, 7000, 0)"
	ctx, base := context.Background(), int64(0)
	other, watch := connect(t, server), connect(t, server)
	defer other.Close(ctx)
	defer watch.Close(ctx)
	waits := func() (waits bool) {
		if err := watch.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = 'transactionid')").Scan(&waits); err != nil {
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
					t.Fatalf("readings expected to be new %04b, the other node has %s, and waits for %s: %v", pattern, devices[first], devices[i], err)
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
					t.Errorf("readings expected to be new %04b, the other node has them from %s on: that of %s got outcome %s, want %s",
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

// TestLockOrderSealed sends a group that needs two segments, of which another transaction has locked the first one: the group waits for it, and has not
// locked the other one, whichever of them its readings need first.
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
			return queryValue[bool](t, server, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pulsegate' AND wait_event = 'transactionid')")
		})
		if _, err := tx.Exec(ctx, lock, lasts[1]); err != nil {
			t.Errorf("segments %v: the group waits for the first one, and has locked the second one: %v", times, err)
		}
		try(t, tx.Rollback(ctx), <-done)
		_, err = s.Erase(group[0].Reading.Device)
		try(t, err)
	}
}
