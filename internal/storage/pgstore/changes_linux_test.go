package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/polltest"
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pgstore"
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

// A transaction that is open while a consumer catches up is delivered after its commit, whatever was delivered before; one
// that stays open, of anybody, does not make anything return. Readings that were sealed with later ones are not skipped.
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
	if got := describe(f.catchUp(s)); !strings.Contains(got, "d@2") {
		t.Errorf("after the commit, the consumer got %q, want d@2", got)
	}
	f.want("then", s, "")
	mustStore(t, s, reading("d", 6, 1), reading("d", 7, 1))
	f.want("still open", s, "d@6 d@7")
	_, err := pgstore.Seal(s, 7)
	try(t, err)
	idle("COMMIT")
	mustStore(t, s, &storage.Entry{Reading: reading("d", 0, 1).Reading, ReceivedUnixMs: 2})
	_, err = pgstore.Seal(s, 7)
	try(t, err)
	if got := describe(old.catchUp(other)); !strings.Contains(got, "d@2") || !strings.Contains(got, "d@6") {
		t.Errorf("sealed: the older consumer got %q, want d@2 and d@6 in it", got)
	}
	f.catchUp(s)
	f.want("at the end", other, "")
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
	if len(all) != 1 || all[0].Kind != storage.ChangeErased || all[0].FromUnixMs != 3 || all[0].ToUnixMs != 5 || all[0].Signs == 0 {
		t.Errorf("after an erasure of values: %+v", all)
	}
	polltest.Until(t, "the table of events is tidied", func() bool { return pgstore.TidyEvents(s) == nil })
	f.want("tidied", s, "")
}
