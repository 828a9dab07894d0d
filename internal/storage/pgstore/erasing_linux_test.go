package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/pgtest"
	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/vitals"
)

// errKilled is the error of a record that stands for the end of the server between two transactions of an erasure.
var errKilled = errors.New("the server is killed")

func killed(storage.Erasure) error { return errKilled }

// mustBegin calls erase, which must leave its erasure to others.
func mustBegin(t *testing.T, erase func(record func(storage.Erasure) error) (storage.Erasure, error)) {
	t.Helper()
	if _, err := erase(killed); !errors.Is(err, storage.ErrUnfinished) || !errors.Is(err, errKilled) {
		t.Fatalf("the erasure that is cut returned %v", err)
	}
}

// leave lets a minute pass since the last transactions of erasures.
func leave(t *testing.T, server *pgtest.Server, o *pgstore.Options) {
	t.Helper()
	execute(t, server, "UPDATE "+o.Schema+".erasing SET at = at - interval '1 minute'")
}

// wholeDevice is how [erasedEvents] shows the event of an erased device, before its subjects.
const wholeDevice = "0 9223372036854775807 0 "

// erasedEvents returns the events of erasures of a device.
func erasedEvents(t *testing.T, server *pgtest.Server, o *pgstore.Options, device string) string {
	t.Helper()
	return queryValue[string](t, server, `SELECT coalesce(string_agg(concat_ws(' ', from_ms, to_ms, signs, subjects), '; '
		ORDER BY number), '') FROM `+o.Schema+".events WHERE kind = $1 AND device = $2", int(storage.ChangeErased), device)
}

// TestErasuresLeft cuts erasures of each kind between two of their transactions. After a minute, and not before, the
// servers of the database finish each once, with its record and its event, as what it was, but not that of some signs.
func TestErasuresLeft(t *testing.T) {
	server := sharedServer(t)
	o := changesOptions(t)
	first, ctx := open(t, o), context.Background()
	names := modelNames("whole", "worn", "span", "gate")
	gateway := modelNames("g-1")[0]
	for _, device := range []string{"whole", "worn", "span"} {
		mustStore(t, first, reading(device, 1, 1), reading(device, 2, 2), reading(device, 3, 3), reading(device, 4, 4))
	}
	through := func(ms int64, gateway vitals.Name) *storage.Entry {
		e := reading("gate", ms, vitals.Value(ms))
		e.Reading.Values.Set(vitals.SpO2, 97)
		e.Reading.Gateway = gateway
		return e
	}
	mustStore(t, first, through(1, gateway), through(2, vitals.Name{}), through(3, gateway))
	for _, a := range []storage.Assignment{assignment("whole", "P-1", 1, 3), assignment("worn", "P-2", 2, 4),
		assignment("worn", "P-3", 4, storage.OpenEnd)} {
		try(t, first.Assign(ctx, a))
	}
	want := []storage.Erasure{
		{Device: names[0]},
		{Device: names[1], Subject: "P-2", FromUnixMs: 2, ToUnixMs: 4},
		{Device: names[2], FromUnixMs: 2, ToUnixMs: 4},
		{Device: names[3], FromUnixMs: 1, ToUnixMs: 3, Signs: 1 << vitals.SpO2, Gateway: gateway, Shared: true},
	}
	mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
		return first.EraseRecorded(names[0], record)
	})
	mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
		return first.EraseAssignmentRecorded(assignment("worn", "P-2", 2, 0), record)
	})
	for _, e := range want[2:] {
		mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
			return first.EraseValuesRecorded(e, record)
		})
	}
	try(t, first.Close())

	servers := []*pgstore.Store{open(t, o), open(t, o)}
	var mu sync.Mutex
	var recorded []storage.Erasure
	record := func(e storage.Erasure) error {
		mu.Lock()
		defer mu.Unlock()
		recorded = append(recorded, e)
		return nil
	}
	for _, s := range servers {
		try(t, pgstore.FinishErasures(s, record))
	}
	early := queryValue[bool](t, server, "SELECT min(at) > now() - interval '1 minute' FROM "+o.Schema+".erasing")
	if early && len(recorded) > 0 {
		t.Errorf("within a minute servers finished %v", recorded)
	}
	leave(t, server, &o)
	var working sync.WaitGroup
	for _, s := range servers {
		working.Go(func() {
			if err := pgstore.FinishErasures(s, record); err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	for i := range recorded {
		recorded[i].Readings = 0 // the first attempt has removed them
	}
	byDevice := func(a, b storage.Erasure) int { return strings.Compare(a.Device.String(), b.Device.String()) }
	slices.SortFunc(recorded, byDevice)
	slices.SortFunc(want, byDevice)
	want = slices.DeleteFunc(want, func(e storage.Erasure) bool { return e.Signs != 0 })
	if !slices.Equal(recorded, want) {
		t.Errorf("servers recorded %v, want %v", recorded, want)
	}
	left := queryValue[string](t, server, "SELECT string_agg(device, ' ') FROM "+o.Schema+".erasing")
	if left != "gate" {
		t.Errorf("erasures are left of %q, want that of gate", left)
	}
	for device, want := range map[string]string{"whole": wholeDevice + "P-1",
		"worn": "2 4 0 P-2", "span": fmt.Sprint("2 4 ", uint32(math.MaxUint32)), "gate": ""} {
		if got := strings.TrimSpace(erasedEvents(t, server, &o, device)); got != want {
			t.Errorf("the events of %s are %q, want %q", device, got, want)
		}
	}
	s := servers[0]
	mustHave(t, s, "whole", 0, 0, 0, 0)
	mustHave(t, s, "worn", 1, 0, 0, 4)
	mustHave(t, s, "span", 1, 0, 0, 4)
	mustHave(t, s, "gate", 1, 2, 3)
	if n := queryValue[int](t, server, "SELECT count(spo2_pct) FROM "+o.Schema+".readings WHERE device = 'gate'"); n != 2 {
		t.Errorf("gate has %d values of SpO2, want those that came through no gateway, or later", n)
	}
	all := make([]storage.Assignment, 9)
	n, err := s.Assignments(ctx, storage.AssignmentKey{}, all)
	try(t, err)
	if n != 1 || all[0].Subject != "P-3" {
		t.Errorf("the assignments are %v, want that of P-3", all[:n])
	}
}

// TestErasureLeftByRunning cuts an erasure, whose device is then forgotten because it has no readings left: a server
// that has been told to finishes it by itself, and consumers learn of it.
func TestErasureLeftByRunning(t *testing.T) {
	server := sharedServer(t)
	o := changesOptions(t)
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1))
	mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
		return s.EraseRecorded(modelNames("d")[0], record)
	})
	_, err := s.Expire(t.Context(), 1, 1000)
	try(t, err)
	if n := s.DeviceCount(); queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".devices") != 0 {
		t.Fatalf("%d devices are left", n)
	}
	leave(t, server, &o)
	recorded := make(chan storage.Erasure, 9)
	s.FinishErasures(func(e storage.Erasure) error { recorded <- e; return nil })
	polltest.Until(t, "the erasure is finished", func() bool {
		return queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing") == 0
	})
	if e := <-recorded; e.Device != modelNames("d")[0] {
		t.Errorf("%v was recorded", e)
	}
	if got := strings.TrimSpace(erasedEvents(t, server, &o, "d")); got+" " != wholeDevice {
		t.Errorf("the events are %q, want one", got)
	}
}

// TestErasureLeftStored stores a reading after an erasure was cut, in its times, at its end or while a server finishes
// it: it stays, also for a consumer, until the erasure is asked for again. A reading at another time keeps nobody from
// finishing it.
func TestErasureLeftStored(t *testing.T) {
	server := sharedServer(t)
	o := changesOptions(t)
	s := open(t, o)
	name := modelNames("d")[0]
	whole := storage.Erasure{Device: name}
	begin := func(e storage.Erasure) {
		t.Helper()
		mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
			if e == whole {
				return s.EraseRecorded(name, record)
			}
			return s.EraseValuesRecorded(e, record)
		})
		leave(t, server, &o)
	}
	left := func() int { return queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing") }
	never := func(storage.Erasure) error { t.Error("an erasure is finished"); return nil }

	mustStore(t, s, reading("d", 1, 1))
	begin(whole)
	mustStore(t, s, reading("d", 1, 2))
	try(t, pgstore.FinishErasures(s, never))
	mustHave(t, s, "d", 2)
	f := follower{t: t}
	f.want("after the cut", s, "7 d@1 8")
	_, err := s.Erase(name)
	try(t, err)
	mustHave(t, s, "d", 0)
	f.want("asked again", s, "4")

	mustStore(t, s, reading("d", 1, 1))
	begin(whole)
	recorded := false
	try(t, pgstore.FinishErasures(s, func(storage.Erasure) error {
		recorded = true
		mustStore(t, s, reading("d", 2, 2))
		return nil
	}))
	if n := left(); !recorded || n != 1 {
		t.Errorf("%d erasures are left, recorded %t, want the one during which a reading was stored", n, recorded)
	}
	leave(t, server, &o)
	mustHave(t, s, "d", 0, 2)
	_, err = s.Erase(name)
	try(t, err)

	try(t, s.Assign(t.Context(), assignment("d", "P-1", 1, 5)))
	mustStore(t, s, reading("d", 1, 1))
	begin(whole)
	try(t, s.EndAssignment(t.Context(), assignment("d", "P-1", 1, 3)), pgstore.FinishErasures(s, never))
	_, err = s.Erase(name)
	try(t, err)

	mustStore(t, s, reading("d", 1, 1), reading("d", 9, 9))
	begin(storage.Erasure{Device: name, FromUnixMs: 1, ToUnixMs: 5})
	mustStore(t, s, reading("d", 8, 8))
	try(t, pgstore.FinishErasures(s, func(storage.Erasure) error { return nil }))
	if n := left(); n != 0 {
		t.Errorf("%d erasures are left, want none", n)
	}
	mustHave(t, s, "d", 0, 0, 0, 0, 0, 0, 0, 8, 9)
}

// TestErasureLeftAssigned assigns a device while a server finishes an erasure of it, and waits for the device: the
// assignment stays.
func TestErasureLeftAssigned(t *testing.T) {
	server := sharedServer(t)
	o := changesOptions(t)
	s, ctx := open(t, o), context.Background()
	mustStore(t, s, reading("d", 1, 1))
	mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
		return s.EraseRecorded(modelNames("d")[0], record)
	})
	leave(t, server, &o)
	conn := connect(t, server)
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	try(t, err)
	mustExecute(t, tx, "SELECT pg_advisory_xact_lock($1)", pgstore.DeviceLock(s, modelNames("d")[0]))
	mustExecute(t, tx,
		"INSERT INTO "+o.Schema+`.assignments (device, from_ms, to_ms, subject, made_by, named_ms, changed, changed_ms)
		VALUES ('d', 1, 9, 'P-9', 0, 0, pg_current_xact_id()::text::bigint, 1)`)
	done := make(chan error, 1)
	go func() { done <- pgstore.FinishErasures(s, func(storage.Erasure) error { return nil }) }()
	polltest.Until(t, "the server waits for the device", func() bool {
		return queryValue[bool](t, server, `SELECT EXISTS (SELECT FROM pg_locks AS l JOIN pg_stat_activity USING (pid)
			WHERE NOT granted AND locktype = 'advisory' AND query LIKE '%`+o.Schema+"%' OR NOT granted AND locktype = "+
			"'advisory')")
	})
	try(t, tx.Commit(ctx), <-done)
	all, err := s.SubjectAssignments(ctx, "P-9")
	try(t, err)
	if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing"); len(all) != 1 || n != 1 {
		t.Errorf("the assignments are %v, and %d erasures are left, want one of each", all, n)
	}
}

// TestErasureLeftAgain cannot record an erasure that it has taken over, and for which it has turned a segment into
// rows: it finishes it later.
func TestErasureLeftAgain(t *testing.T) {
	server := sharedServer(t)
	o := changesOptions(t)
	o.SealAtLeast = 1
	s := open(t, o)
	var group []*storage.Entry
	for ms := range int64(9) {
		e := reading("d", ms+1, 1)
		e.Reading.Values.Set(vitals.SpO2, 97)
		group = append(group, e)
	}
	mustStore(t, s, group...)
	n, err := pgstore.Seal(s, 100)
	if try(t, err); n == 0 {
		t.Fatal("nothing was sealed")
	}
	execute(t, server, "INSERT INTO "+o.Schema+`.erasing VALUES (1, 'd', 2, 4, '', 0, '', false, now() - interval '1 hour',
		pg_current_xact_id()::text::bigint, '{}')`)
	if err := pgstore.FinishErasures(s, killed); !errors.Is(err, errKilled) {
		t.Fatalf("the erasure that cannot be recorded returned %v", err)
	}
	leave(t, server, &o)
	try(t, pgstore.FinishErasures(s, func(storage.Erasure) error { return nil }))
	if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing"); n != 0 {
		t.Errorf("%d erasures are left", n)
	}
	mustHave(t, s, "d", 1, 0, 0, 0, 1, 1, 1, 1, 1)
}

// TestErasureLeftTwice freezes servers in an erasure until others have taken it over. They remove nothing that is
// stored since, whether they had taken it over themselves or had begun it.
func TestErasureLeftTwice(t *testing.T) {
	server := sharedServer(t)
	o := changesOptions(t)
	first, second := open(t, o), open(t, o)
	name := modelNames("d")[0]
	finish := func(s *pgstore.Store) func(storage.Erasure) error {
		return func(storage.Erasure) error {
			leave(t, server, &o)
			err := pgstore.FinishErasures(s, func(storage.Erasure) error { return nil })
			mustStore(t, s, reading("d", 1, 2))
			return err
		}
	}
	mustStore(t, first, reading("d", 1, 1))
	_, err := first.EraseRecorded(name, finish(second))
	try(t, err)
	mustHave(t, first, "d", 2)
	if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing"); n != 0 {
		t.Errorf("%d erasures are left", n)
	}

	// Nobody has taken it over, because there is something newer.
	_, err = first.EraseRecorded(name, func(storage.Erasure) error {
		mustStore(t, second, reading("d", 1, 3))
		leave(t, server, &o)
		return nil
	})
	if mustHave(t, first, "d", 3); !errors.Is(err, storage.ErrUnfinished) {
		t.Errorf("after a minute, the server that began returned %v, want that it has not finished", err)
	}
	_, err = first.Erase(name)
	try(t, err)

	mustStore(t, first, reading("d", 1, 1))
	mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
		return first.EraseRecorded(name, record)
	})
	leave(t, server, &o)
	try(t, pgstore.FinishErasures(first, finish(second)))
	mustHave(t, first, "d", 2)

	// Another one has taken it over, and has not finished it.
	mustBegin(t, func(record func(storage.Erasure) error) (storage.Erasure, error) {
		return first.EraseRecorded(name, record)
	})
	leave(t, server, &o)
	calls := 0
	try(t, pgstore.FinishErasures(first, func(storage.Erasure) error {
		calls++
		leave(t, server, &o)
		return nil
	}))
	if n := queryValue[int](t, server, "SELECT count(*) FROM "+o.Schema+".erasing"); n != 1 || calls != 1 {
		t.Errorf("%d erasures are left, and %d were recorded: the first server has not seen that it was late", n, calls)
	}
}
