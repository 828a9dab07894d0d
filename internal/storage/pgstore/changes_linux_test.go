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

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A follower follows the changes of stores.
type follower struct {
	t      *testing.T
	cursor storage.ChangeCursor
	filter storage.ChangeFilter
}

// catchUp returns what is new, up to the end.
func (f *follower) catchUp(s *pgstore.Store) (all []storage.Change) {
	f.t.Helper()
	for range 1000 {
		page, caughtUp, err := storage.NextChanges(f.t.Context(), s, &f.cursor, &f.filter, 100)
		try(f.t, err)
		if all = append(all, page...); caughtUp {
			return all
		}
	}
	f.t.Fatal("a consumer does not catch up")
	return nil
}

// describe returns the readings and the kinds of events.
func describe(all []storage.Change) string {
	var text []string
	for i := range all {
		if c := &all[i]; c.Kind == storage.ChangedReading {
			text = append(text, fmt.Sprintf("%s@%d", c.Device, c.Record.TimeUnixMs))
		} else {
			text = append(text, fmt.Sprint(c.Kind))
		}
	}
	return strings.Join(text, " ")
}

func (f *follower) want(what string, s *pgstore.Store, want string) {
	f.t.Helper()
	if got := describe(f.catchUp(s)); got != want {
		f.t.Errorf("%s: the consumer got %q, want %q", what, got, want)
	}
}

func changesOptions(t *testing.T) pgstore.Options {
	o := options(sharedServer(t))
	o.ChangesKeep = time.Hour
	return o
}

// A transaction that is open while a consumer catches up is delivered after its commit, whatever was delivered before;
// one that stays open, of anybody, does not make anything return. Readings that were sealed with later ones are not
// skipped.
//
// Its mutant is skip-open-transactions.
func TestChangesOfOpenTransaction(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	begin := func(sql string) func(end string) {
		conn := connect(t, sharedServer(t))
		t.Cleanup(func() { _ = conn.Close(ctx) })
		mustExecute(t, conn, "BEGIN; "+sql)
		return func(end string) { mustExecute(t, conn, end) }
	}
	insert := func(ms int) string {
		return fmt.Sprintf(`INSERT INTO %s.readings (device, time_ms, received_ms, changed, shared, heart_rate_bpm)
			VALUES ('d', %d, 1, (SELECT pg_current_xact_id()::text::bigint), false, 700)`, o.Schema, ms)
	}
	mustStore(t, s, reading("d", 1, 1))
	f := follower{t: t}
	f.want("copy", s, "7 d@1 8")
	late := begin(insert(2))
	idle := begin("SELECT pg_current_xact_id()")
	mustStore(t, other, reading("d", 3, 1))
	f.want("while two are open", other, "d@3")
	f.want("again", s, "")
	old := f
	mustStore(t, s, reading("d", 4, 1))
	f.want("one more", s, "d@4")
	mustStore(t, s, reading("d", 5, 1))
	f.want("and one", other, "d@5")
	late("COMMIT")
	f.want("after the commit", s, "d@2")
	f.want("then", s, "")
	mustStore(t, s, reading("d", 6, 1), reading("d", 7, 1))
	f.want("still open", s, "d@6 d@7")
	idle("COMMIT")
	f.want("after the end of the one that has stored nothing", other, "")
	_, err := pgstore.Seal(s, 7)
	try(t, err)
	mustStore(t, s, &storage.Entry{Reading: reading("d", 0, 1).Reading, ReceivedUnixMs: 2})
	_, err = pgstore.Seal(s, 7)
	try(t, err)
	if got := describe(old.catchUp(other)); !strings.Contains(got, "d@2") || !strings.Contains(got, "d@6") {
		t.Errorf("sealed: the older consumer got %q, want d@2 and d@6 in it", got)
	}
	f.catchUp(s)
	f.want("at the end", other, "")
}

// Readings are sealed while a consumer is in a pass that has not come to them, together with one that came after the
// pass had begun. The next pass comes from memory, which has only that one.
//
// Its mutant is seal-beyond-pass.
func TestChangesSealedInPass(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	mustStore(t, s, reading("d", 10, 1))
	f := follower{t: t}
	f.catchUp(s)
	mustStore(t, s, reading("d", 20, 1), reading("d", 30, 1), reading("d", 40, 1))
	page, _, err := storage.NextChanges(ctx, other, &f.cursor, &f.filter, 1)
	try(t, err)
	if got := describe(page); got != "d@20" {
		t.Fatalf("the first page has %q, want d@20", got)
	}
	mustStore(t, s, reading("d", 35, 1))
	_, _, err = other.Position(ctx) // and keeps it in memory
	try(t, err)
	n, err := pgstore.Seal(s, 100)
	try(t, err)
	if n == 0 {
		t.Error("nothing was sealed")
	}
	if got := describe(f.catchUp(other)); !strings.Contains(got, "d@30") || !strings.Contains(got, "d@35") ||
		!strings.Contains(got, "d@40") {
		t.Errorf("the consumer got %q, want d@30, d@35 and d@40 in it", got)
	}
}

// What is sealed during a pass together with readings that follow an event comes after the event.
func TestChangesSealedAfterEvent(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	mustStore(t, s, reading("d", 10, 1))
	f := follower{t: t}
	f.catchUp(s)
	mustStore(t, s, reading("d", 20, 1), reading("d", 30, 1), reading("d", 40, 1))
	page, _, err := storage.NextChanges(ctx, other, &f.cursor, &f.filter, 1)
	try(t, err)
	if got := describe(page); got != "d@20" {
		t.Fatalf("the first page has %q, want d@20", got)
	}
	try(t, s.Assign(ctx, storage.Assignment{Device: reading("d", 1, 1).Reading.Device, Subject: "P-17", FromUnixMs: 50,
		ToUnixMs: storage.OpenEnd}))
	mustStore(t, s, reading("d", 60, 1), reading("d", 70, 1), reading("d", 80, 1))
	n, err := pgstore.Seal(s, 100)
	try(t, err)
	if n == 0 {
		t.Error("nothing was sealed")
	}
	got := describe(f.catchUp(other))
	before, after, _ := strings.Cut(got, "2 ")
	if strings.Contains(before, "d@60") || !strings.Contains(got, "d@30") || !strings.Contains(got, "d@40") ||
		!strings.Contains(after, "d@60") || !strings.Contains(after, "d@70") {
		t.Errorf("the consumer got %q, want d@30 and d@40, and the assignment (2) before d@60 and d@70", got)
	}
}

// Segments become rows again while a consumer is in a pass, after the rows and before the segments.
//
// Its mutant is unseal-unchanged.
func TestChangesUnsealed(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	s := open(t, o)
	f := follower{t: t}
	f.catchUp(s)
	for ms := range int64(9) {
		mustStore(t, s, reading("d", ms, 1))
	}
	n, err := pgstore.Seal(s, 7)
	try(t, err)
	if n == 0 {
		t.Fatal("nothing was sealed")
	}
	page, _, err := storage.NextChanges(t.Context(), s, &f.cursor, &f.filter, 1)
	try(t, err)
	mustStore(t, s, reading("d", 2, 1)) // a duplicate, which looks the record up
	got := " " + describe(append(page, f.catchUp(s)...)) + " "
	for ms := range 9 {
		if !strings.Contains(got, fmt.Sprintf(" d@%d ", ms)) {
			t.Errorf("the consumer got %q, without d@%d", got, ms)
		}
	}
	f.want("again", s, "")
}

// A database that lacks what was proven does not know the position, nor does one into which the tables were copied, nor
// one that was repaired or restored. Then a consumer begins again, and goes on.
//
// Its mutants are trust-copied-proofs, forget-gaps and trust-earlier-proofs.
func TestChangesForgotten(t *testing.T) {
	o := changesOptions(t)
	server := sharedServer(t)
	s := open(t, o)
	ctx := context.Background()
	table := o.Schema + ".proofs"
	for name, forget := range map[string]func(){
		"rewound": func() {
			execute(t, server, "UPDATE "+table+" SET number = 0, changed = (SELECT pg_current_xact_id()::text::bigint)")
		},
		"older than the server": func() { execute(t, server, "DELETE FROM "+table) },
		"copied":                func() { execute(t, server, "UPDATE "+table+" SET changed = changed") },
		"restore accepted":      func() { try(t, s.AcceptRestore(ctx)) },
	} {
		mustStore(t, s, reading("d", 1, 1))
		f := follower{t: t}
		f.want(name, s, "7 d@1 8")
		forget()
		fresh := open(t, o)
		for who, of := range map[string]*pgstore.Store{"the server": s, "another one": fresh} {
			c := f.cursor
			if _, _, err := storage.NextChanges(ctx, of, &c, &f.filter, 10); !errors.Is(err, storage.ErrUnknownPosition) {
				t.Errorf("%s: %s returned %v, want an unknown position", name, who, err)
			}
		}
		again := follower{t: t}
		again.want(name+", again", s, "7 d@1 8")
		again.want(name+", on another server", fresh, "")
		try(t, fresh.Close())
	}
}

// Many consumers wait for a reading. Each is woken, and what is new is decoded by few looks.
func TestChangesManyWait(t *testing.T) {
	o := changesOptions(t)
	s, other := open(t, o), open(t, o)
	first := follower{t: t}
	first.catchUp(s)
	const consumers = 300
	var ready, done sync.WaitGroup
	ready.Add(consumers)
	got := make([]string, consumers)
	for i := range consumers {
		done.Go(func() {
			f := first
			p, later, err := s.Position(t.Context())
			ready.Done()
			for err == nil && p.Same(&f.cursor.From) {
				<-later
				p, later, err = s.Position(t.Context())
			}
			page, _, err := storage.NextChanges(t.Context(), s, &f.cursor, &f.filter, 10)
			if err == nil {
				got[i] = describe(page)
			}
		})
	}
	ready.Wait()
	before := pgstore.Proofs(s)
	mustStore(t, other, reading("d", 1, 1))
	done.Wait()
	for i, text := range got {
		if text != "d@1" {
			t.Fatalf("consumer %d got %q, want d@1", i, text)
		}
	}
	if n := pgstore.Proofs(s) - before; n > consumers {
		t.Errorf("%d transactions for %d consumers", n, consumers)
	}
}

// Numbers of transactions, an erasure while a pass is open, and one of values.
func TestChangesErased(t *testing.T) {
	o := changesOptions(t)
	s, other := open(t, o), open(t, o)
	ctx := context.Background()
	for ms := range int64(20) {
		mustStore(t, s, reading("a", ms, 1), reading("b", ms, 1))
	}
	f := follower{t: t}
	page, _, err := storage.NextChanges(ctx, s, &f.cursor, &f.filter, 10)
	try(t, err)
	if len(page) != 10 {
		t.Fatalf("the first page has %d changes", len(page))
	}
	_, err = other.Erase(reading("a", 0, 1).Reading.Device)
	try(t, err)
	all := f.catchUp(other)
	last := all[len(all)-1]
	if last.Kind != storage.ChangeErased || last.Device != reading("a", 0, 1).Reading.Device {
		t.Errorf("the pass after an erasure ends with %q, want the erasure", describe(all))
	}
	_, err = s.EraseValues(storage.Erasure{Device: reading("b", 0, 1).Reading.Device, FromUnixMs: 3, ToUnixMs: 5})
	try(t, err)
	all = f.catchUp(s)
	if len(all) != 1 || all[0].Kind != storage.ChangeErased || all[0].FromUnixMs != 3 || all[0].ToUnixMs != 5 ||
		all[0].Signs == 0 {
		t.Errorf("after an erasure of values: %+v", all)
	}
	polltest.Until(t, "the table of events is tidied", func() bool { return pgstore.TidyEvents(s) == nil })
	f.want("tidied", s, "")
}

// A consumer that was away for long reads windows of some thousand readings, whatever its pages have.
func TestChangesInWindows(t *testing.T) {
	o := changesOptions(t)
	s := open(t, o)
	ctx := context.Background()
	f := follower{t: t}
	f.catchUp(s)
	const groups, each = 20, 500
	for g := range int64(groups) {
		entries := make([]*storage.Entry, each)
		for i := range entries {
			entries[i] = reading("d", g*each+int64(i), 1)
		}
		mustStore(t, s, entries...)
	}
	other := open(t, o) // has nothing in memory
	from := f.cursor.From
	to, _, err := other.Position(ctx)
	try(t, err)
	parts := map[uint64]int{}
	try(t, other.ReadChanges(ctx, &from, &to, func(r storage.ChangeReader) error {
		visit := func(part uint64, _ *vitals.Name, records []storage.Record) bool {
			parts[part] += len(records)
			return true
		}
		return r.VisitChanged(ctx, from, to, storage.ChangedKey{}, vitals.Name{}, visit)
	}))
	all := 0
	for part, n := range parts {
		if all += n; n > pgstore.MostRows {
			t.Errorf("part %#x has %d readings, want at most %d", part, n, pgstore.MostRows)
		}
	}
	if all != groups*each {
		t.Errorf("the pass has %d readings, want %d", all, groups*each)
	}
	got := map[int64]bool{}
	for caughtUp := false; !caughtUp; {
		var page []storage.Change
		page, caughtUp, err = storage.NextChanges(ctx, other, &f.cursor, &f.filter, 1500)
		try(t, err)
		for i := range page {
			got[page[i].Record.TimeUnixMs] = true
		}
	}
	if len(got) != groups*each {
		t.Errorf("the consumer got %d readings, want %d", len(got), groups*each)
	}
}

// A server that keeps no events removes the content of those that another one has kept.
func TestChangesKeptNoLonger(t *testing.T) {
	o := changesOptions(t)
	s := open(t, o)
	device := reading("d", 1, 1).Reading.Device
	mustStore(t, s, reading("d", 1, 1))
	try(t, s.Assign(t.Context(), storage.Assignment{Device: device, Subject: "P-17", FromUnixMs: 1,
		ToUnixMs: storage.OpenEnd}))
	_, err := s.EraseValues(storage.Erasure{Device: device, FromUnixMs: 5, ToUnixMs: 9})
	if !errors.Is(err, storage.ErrNotFound) {
		try(t, err)
	}
	named := "SELECT count(*) FROM " + o.Schema + ".events WHERE device <> '' OR subjects <> ''"
	if n := queryValue[int64](t, sharedServer(t), named); n == 0 {
		t.Fatal("no event names the device")
	}
	o.ChangesKeep = 0
	none := open(t, o)
	_, err = none.Erase(device)
	try(t, err)
	if n := queryValue[int64](t, sharedServer(t), named); n != 0 {
		t.Errorf("after the erasure, %d events name the device", n)
	}
	try(t, pgstore.TidyEvents(none))
	if n := queryValue[int64](t, sharedServer(t), "SELECT count(*) FROM "+o.Schema+".events"); n != 1 {
		t.Errorf("%d events are left, want the last one", n)
	}
}

// Tables that were copied from a cluster that is ahead have numbers of transactions that this one has not reached. What
// this one stores is found, also in a segment with readings that were copied, and from a time on.
func TestChangesFromClusterAhead(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	server, ctx := sharedServer(t), context.Background()
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1), reading("d", 2, 1))
	try(t, s.Assign(ctx, storage.Assignment{Device: reading("d", 1, 1).Reading.Device, Subject: "P-17", FromUnixMs: 1,
		ToUnixMs: 2}))
	try(t, s.Close())
	execute(t, server, "UPDATE "+o.Schema+".readings SET changed = changed + (1::bigint << 40)")
	execute(t, server,
		"UPDATE "+o.Schema+".events SET changed = changed + (1::bigint << 40), at_ms = at_ms - 1800000, seen = "+
			"'1099511627776:1099511627776:'")
	s = open(t, o)
	f := follower{t: t}
	f.want("copy", s, "7 2 d@1 d@2 8")
	mustStore(t, s, reading("d", 3, 1), reading("d", 4, 1))
	_, err := pgstore.Seal(s, 4)
	try(t, err)
	want := func(who string, got string, readings ...string) {
		t.Helper()
		for _, reading := range readings {
			if !strings.Contains(got, reading) {
				t.Errorf("%s got %q, want %s in it", who, got, reading)
			}
		}
	}
	want("the consumer", describe(f.catchUp(s)), "d@3", "d@4")
	p, err := s.PositionAt(ctx, time.Now().Add(-10*time.Minute).UnixMilli())
	try(t, err)
	from := follower{t: t, cursor: storage.ChangeCursor{From: p}}
	want("a consumer from a time on", describe(from.catchUp(s)), "d@1", "d@2", "d@3", "d@4")
}

// An assignment that another server makes while its device is erased is erased, too, and the event names its subject.
func TestChangesErasedWhileAssigned(t *testing.T) {
	o := changesOptions(t)
	server, ctx := sharedServer(t), context.Background()
	s := open(t, o)
	device := reading("d", 1, 1).Reading.Device
	mustStore(t, s, reading("d", 1, 1))
	f := follower{t: t}
	f.catchUp(s)
	conn := connect(t, server)
	defer conn.Close(ctx)
	mustExecute(t, conn, strings.ReplaceAll(fmt.Sprintf(`BEGIN; SELECT pg_advisory_xact_lock(%d);
		INSERT INTO SCHEMA.assignments VALUES ('d', 1, 2, 'P-17', 0, 0, 1, 1);
		INSERT INTO SCHEMA.events SELECT max(number) + 1, 2, max(at_ms), pg_current_xact_id()::text::bigint, pg_current_snapshot()::text, 'd', 'P-17', 1, 2
		FROM SCHEMA.events`, pgstore.DeviceLock(s, device)), "SCHEMA", o.Schema))
	erased := make(chan error, 1)
	go func() {
		_, err := s.Erase(device)
		erased <- err
	}()
	watch := connect(t, server)
	defer watch.Close(ctx)
	polltest.Until(t, "the erasure waits", func() bool {
		var waits bool
		try(t, watch.QueryRow(ctx,
			"SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND (classid::bigint << 32 | "+
				"objid::bigint) = $1)",
			pgstore.DeviceLock(s, device)).Scan(&waits))
		return waits
	})
	mustExecute(t, conn, "COMMIT")
	try(t, <-erased)
	all := f.catchUp(s)
	last := all[len(all)-1]
	if last.Kind != storage.ChangeErased || len(last.Subjects) != 1 || last.Subjects[0] != "P-17" {
		t.Errorf("the consumer got %q, the last %+v, want an erasure that names P-17", describe(all), last)
	}
}

// What has expired, and was not removed yet, is not delivered with an assignment either.
func TestChangesExpiredSpan(t *testing.T) {
	o := changesOptions(t)
	s, ctx := open(t, o), context.Background()
	mustStore(t, s, reading("d", 10, 1), reading("d", 20, 1), reading("d", 90, 1))
	try(t, s.Assign(ctx, storage.Assignment{Device: reading("d", 1, 1).Reading.Device, Subject: "P-17", FromUnixMs: 1,
		ToUnixMs: storage.OpenEnd}))
	x, err := s.Expire(ctx, 80, 1)
	try(t, err)
	if !x.More {
		t.Fatalf("%d readings were removed, want some to be left", x.Readings)
	}
	f := follower{t: t, filter: storage.ChangeFilter{Subject: func(s storage.Subject) bool { return s == "P-17" }}}
	f.want("one of two is removed", s, "7 5 2 d@90 8")
}

// The erasure of a sign's values is delivered by a server that has not heard of the sign yet.
func TestChangesErasedUnknownSign(t *testing.T) {
	o := changesOptions(t)
	s := open(t, o)
	mustStore(t, s, reading("d", 1, 1))
	f := follower{t: t}
	f.want("copy", s, "7 d@1 8")
	defining := o
	defining.Signs = storetest.OwnSigns()[:1]
	other := open(t, defining)
	sign, ok := other.Signs().Named(defining.Signs[0].Field)
	if !ok {
		t.Fatal("the sign was not defined")
	}
	e := reading("d", 2, 1)
	e.Reading.Values.Set(sign, 1)
	mustStore(t, other, e)
	f.want("by the one that knows the sign", other, "6 d@2")
	_, err := other.EraseValues(storage.Erasure{Device: e.Reading.Device, FromUnixMs: 1, ToUnixMs: 9, Signs: 1 << sign})
	try(t, err)
	all := f.catchUp(s)
	if i := slices.IndexFunc(all, func(c storage.Change) bool { return c.Kind == storage.ChangeErased }); i < 0 ||
		all[i].Signs != 1<<sign {
		t.Errorf("the other one delivers %+v, want an erasure of sign %d", all, sign)
	}
}

// A look does not use a connection that may not see a partition: what it misses would never be looked for again.
func TestChangesPartitionAttached(t *testing.T) {
	o := changesOptions(t)
	one, other := open(t, o), open(t, o)
	f := follower{t: t}
	f.catchUp(other)
	const monthMs = 30 * 24 * 60 * minuteMs
	for month := range int64(4) {
		before, err := pgstore.Backends(other)
		try(t, err)
		at := (month + 1) * monthMs
		mustStore(t, one, reading("d", at, 1))
		f.want("a partition is attached", other, fmt.Sprintf("d@%d", at))
		if now, err := pgstore.Backends(other); err != nil || now[0] == before[0] {
			t.Errorf("connection %d was used, and is older than a partition: %v", now[0], err)
		}
	}
}

// The last event that is old stays, without its content: positions of until the next one name it.
func TestChangesTidied(t *testing.T) {
	o := changesOptions(t)
	s := open(t, o)
	try(t, s.Assign(t.Context(), storage.Assignment{Device: reading("d", 1, 1).Reading.Device, Subject: "P-17",
		FromUnixMs: 1, ToUnixMs: 2}))
	f := follower{t: t}
	f.catchUp(s)
	execute(t, sharedServer(t), "UPDATE "+o.Schema+".events SET at_ms = at_ms - 7200000")
	mustStore(t, s, reading("d", 1, 1))
	try(t, pgstore.TidyEvents(s))
	f.want("tidied", s, "d@1")
	if n := queryValue[int64](t, sharedServer(t), "SELECT count(*) FROM "+o.Schema+".events WHERE device <> ''"); n != 0 {
		t.Errorf("%d old events have a device", n)
	}
}

// What has expired, and was not removed yet, is not sealed: a segment has one number, so a consumer would get it
// together with what has arrived since.
func TestChangesExpiredSealed(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	s, ctx := open(t, o), context.Background()
	mustStore(t, s, reading("d", 10, 1), reading("d", 20, 1), reading("d", 30, 1), reading("d", 84, 1),
		reading("d", 85, 1), reading("d", 90, 1))
	x, err := s.Expire(ctx, 80, 1)
	try(t, err)
	if !x.More {
		t.Fatalf("%d readings were removed, want some to be left", x.Readings)
	}
	mustStore(t, s, reading("d", 25, 1), reading("d", 26, 1))
	n, err := pgstore.Seal(s, 90)
	try(t, err)
	if n != 1 {
		t.Errorf("%d readings were sealed, want the one of 84", n)
	}
	f := follower{t: t}
	f.want("copy", s, "7 5 d@25 d@26 d@85 d@90 d@84 8")
}

// What has expired, and was not removed yet, does not come again when its segment becomes rows for a late reading.
func TestChangesExpiredUnsealed(t *testing.T) {
	o := changesOptions(t)
	o.SealAtLeast = 1
	s, ctx := open(t, o), context.Background()
	mustStore(t, s, reading("a", 10, 1), reading("a", 20, 1), reading("d", 70, 1), reading("d", 85, 1),
		reading("d", 86, 1))
	n, err := pgstore.Seal(s, 90)
	try(t, err)
	if n != 3 {
		t.Errorf("%d readings were sealed, want a@10, d@70 and d@85", n)
	}
	f := follower{t: t}
	f.catchUp(s)
	x, err := s.Expire(ctx, 80, 1)
	try(t, err)
	if !x.More {
		t.Fatalf("%d readings were removed, want some to be left", x.Readings)
	}
	f.want("expiry", s, "5")
	mustStore(t, s, reading("d", 82, 1))
	f.want("late", s, "d@82 d@85")
}

// A consumer gets what an assignment reaches back to, although its device is being erased: the event follows.
func TestChangesWhileErasing(t *testing.T) {
	o := changesOptions(t)
	s, ctx := open(t, o), context.Background()
	mustStore(t, s, reading("d", 10, 1))
	f := follower{t: t, filter: storage.ChangeFilter{Subject: func(s storage.Subject) bool { return s == "P-17" }}}
	f.want("nobody wears it", s, "7 8")
	try(t, s.Assign(ctx, storage.Assignment{Device: reading("d", 1, 1).Reading.Device, Subject: "P-17", FromUnixMs: 1,
		ToUnixMs: storage.OpenEnd}))
	execute(t, sharedServer(t),
		"INSERT INTO "+o.Schema+".erasing VALUES (1, 'd', 0, 9223372036854775807, '', 0, '', false, now(), 0, '{}')")
	f.want("while it is erased", s, "2 d@10")
}

// No commit is canceled, and so made visible without the standbys: neither of what is stored nor of proofs.
func TestNoCancel(t *testing.T) {
	all, err := pgstore.Cancelable(open(t, options(sharedServer(t))))
	if err != nil || len(all) > 0 {
		t.Errorf("statements can be canceled over %q, %v", all, err)
	}
}
