package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkPositions uses positions where they are not known.
func checkPositions(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	positionOf := func() storage.Position {
		t.Helper()
		p, _, err := s.(storage.Changes).Position(ctx)
		if err != nil {
			t.Fatalf("Position: %v", err)
		}
		return p
	}
	check := func(what string, p storage.Position, known bool) {
		t.Helper()
		if err := s.(storage.Changes).CheckPosition(ctx, p); known && err != nil ||
			!known && !errors.Is(err, storage.ErrUnknownPosition) {
			t.Errorf("%s: CheckPosition returned %v, want it to be known: %t", what, err, known)
		}
	}
	keyOf := func() []byte {
		t.Helper()
		key, err := s.(storage.Changes).CursorKey(ctx)
		if err != nil || len(key) != storage.CursorKeyBytes {
			t.Fatalf("CursorKey returned %d bytes, %v, want %d", len(key), err, storage.CursorKeyBytes)
		}
		return slices.Clone(key)
	}
	now := time.Now().UnixMilli()
	empty := positionOf()
	mustAppend(t, s, at(now, entry("a", 1, hr(1))))
	first := positionOf()
	a := assignment("a", "P", 0, 5)
	if a.ChangedUnixMs = now; s.Assign(ctx, a) != nil {
		t.Fatal("not assigned")
	}
	assigned := positionOf()
	if assigned.Same(&first) || first.Same(&empty) {
		t.Errorf("the positions %+v, %+v, %+v are the same", empty, first, assigned)
	}
	key := keyOf()
	s = reopen(t, s, h)
	if !slices.Equal(keyOf(), key) {
		t.Error("the key of cursors is another one after the store was opened again")
	}
	mustAppend(t, s, at(now+1, entry("a", 2, hr(1))))
	last := positionOf()
	for what, p := range map[string]storage.Position{"empty": empty, "first": first, "assigned": assigned, "last": last} {
		check(what, p, true)
	}
	other := assigned
	other.Mark ^= 1
	check("another mark", other, false)
	later := last
	later.Group += 1000
	check("a later group", later, false)
	later = last
	later.Event += 1000
	check("a later event", later, false)
	p, err := s.(storage.Changes).PositionAt(ctx, now+1)
	if err != nil {
		t.Fatalf("PositionAt: %v", err)
	}
	check("position at a time", p, true)
	c, seen := storage.ChangeCursor{From: p}, 0
	page, caughtUp, err := storage.NextChanges(ctx, s.(storage.Changes), &c, &storage.ChangeFilter{}, 10)
	for i := range page {
		if page[i].Kind == storage.ChangedReading && page[i].Record.TimeUnixMs == 2 {
			seen++
		}
	}
	if err != nil || !caughtUp || seen == 0 {
		t.Errorf("since a time: %d changes, %d of the reading, caught up %t, %v", len(page), seen, caughtUp, err)
	}
	if p, err = s.(storage.Changes).PositionAt(ctx, 1); err != nil {
		t.Fatalf("PositionAt: %v", err)
	}
	c = storage.ChangeCursor{From: p}
	page, _, err = storage.NextChanges(ctx, s.(storage.Changes), &c, &storage.ChangeFilter{}, 10)
	if !slices.ContainsFunc(page, func(c storage.Change) bool { return c.Kind == storage.ChangeAssigned }) {
		t.Errorf("since before everything: no assignment among %d changes, %v", len(page), err)
	}
	mustClose(t, s)
	if err := s.(storage.Changes).CheckPosition(ctx, last); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("closed: CheckPosition returned %v", err)
	}
}

// checkOthersCursors continues with each cursor of a consumer of a subject, of whom a device was in the copy, as one
// that does not see the device.
func checkOthersCursors(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	mustAppend(t, s, entry("a", 1, hr(1)), entry("a", 2, hr(1)), entry("b", 1, hr(1)))
	if err := s.Assign(ctx, assignment("a", "P", 0, 5)); err != nil {
		t.Fatal(err)
	}
	c, caughtUp := storage.ChangeCursor{}, false
	for n := 0; !caughtUp && n < 20; n++ {
		for what, other := range map[string]*storage.ChangeFilter{
			"a token for another device": {Device: func(n *vitals.Name) bool { return *n == mustName("b") }},
			"a prefix":                   {Prefix: mustName("b")},
			"another subject":            {Subject: func(s storage.Subject) bool { return s == "Q" }},
		} {
			for own := c; ; {
				page, end, err := storage.NextChanges(ctx, s.(storage.Changes), &own, other, 10)
				if err != nil {
					t.Fatalf("NextChanges: %v", err)
				}
				for i := range page {
					if page[i].Device == mustName("a") {
						t.Errorf("after %d changes, %s sees a %d of a", n, what, page[i].Kind)
					}
				}
				if end {
					break
				}
			}
		}
		var err error
		_, caughtUp, err = storage.NextChanges(ctx, s.(storage.Changes), &c,
			&storage.ChangeFilter{Subject: func(s storage.Subject) bool { return s == "P" }}, 1)
		if err != nil {
			t.Fatalf("NextChanges: %v", err)
		}
	}
	if !caughtUp {
		t.Error("the consumer has not caught up")
	}
	mustClose(t, s)
}

// checkErasedAssignment erases the second assignment of a device to a subject, while consumers have seen neither.
// Seen to fail when the erasure removed the event of the first one.
func checkErasedAssignment(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	now := time.Now().UnixMilli() // what the store reads when it erases
	mustAppend(t, s, at(now, entry("a", 10, hr(1))), at(now, entry("a", 70, hr(1))))
	consumers := newConsumers()
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	first, second := assignment("a", "P", 1, storage.OpenEnd), assignment("a", "P", 60, storage.OpenEnd)
	first.ChangedUnixMs, second.ChangedUnixMs = now, now
	err := s.Assign(ctx, first)
	first.ToUnixMs = 50
	err = errors.Join(err, s.EndAssignment(ctx, first), s.Assign(ctx, second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseAssignment(second); err != nil {
		t.Fatal(err)
	}
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	mustClose(t, s)
}

// checkErasedDevice ends an assignment, erases it, and then erases the device, before consumers have seen any of it.
// Who sees only the subject must learn that it does not wear the device after the end. Seen to fail when the erasure of
// the device removed the event of the end, and named only those who still wore the device.
func checkErasedDevice(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	now := time.Now().UnixMilli()
	mustAppend(t, s, at(now, entry("a", 10, hr(1))), at(now, entry("a", 70, hr(1))))
	a := assignment("a", "P", 1, storage.OpenEnd)
	a.ChangedUnixMs = now
	if err := s.Assign(ctx, a); err != nil {
		t.Fatal(err)
	}
	consumers := newConsumers()
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	a.ToUnixMs = 50
	if err := s.EndAssignment(ctx, a); err != nil {
		t.Fatal(err)
	}
	_, err := s.EraseAssignment(a)
	if err == nil {
		_, err = s.Erase(mustName("a"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range consumers {
		c.catchUp(t, s)
	}
	mustClose(t, s)
}

// checkLateExpired appends readings that are older than those that expired: they are stored, so consumers get them,
// also when they begin later. What remained of those that expired is not delivered, until it is completed. Seen to fail
// when no reading from before the latest expiry was delivered.
func checkLateExpired(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	now := time.Now().UnixMilli()
	mustAppend(t, s, at(now, entry("a", 10, hr(1))), at(now, entry("a", 20, hr(1))), at(now, entry("a", 90, hr(1))))
	consumers := newConsumers()
	want := func(what string, times ...int64) {
		t.Helper()
		consumers = append(consumers, newConsumers()[0])
		for i, c := range consumers {
			c.catchUp(t, s)
			var got []int64
			for _, r := range c.now.records.scan(allOf("a")) {
				got = append(got, r.TimeUnixMs)
			}
			if c.filter.Signs == 0 && c.filter.Subject == nil && c.filter.Prefix.IsZero() && !slices.Equal(got, times) {
				t.Errorf("%s: copy %d has readings of times %d, want %d", what, i, got, times)
			}
		}
	}
	expire := func(before, atMost int64) {
		t.Helper()
		if _, err := s.Expire(ctx, before, atMost); err != nil {
			t.Fatal(err)
		}
	}
	want("at first", 10, 20, 90)
	expire(80, 1)
	want("one expired", 90)
	mustAppend(t, s, at(now+5000, entry("a", 50, hr(1))))
	want("a late one", 50, 90)
	mustAppend(t, s, at(now+5001, entry("a", 20, spo2(1))))
	want("completed", 20, 50, 90)
	s = reopen(t, s, h)
	want("reopened", 20, 50, 90)
	expire(30, 10)
	want("kept for longer", 50, 90)
	mustAppend(t, s, at(now+6000, entry("a", 5, hr(1))))
	want("the oldest", 5, 50, 90)
	mustClose(t, s)
}

// A counted is a store of which the calls that read are counted.
type counted struct {
	storage.Changes
	calls int
}

func (c *counted) ReadChanges(ctx context.Context, from, to *storage.Position,
	do func(storage.ChangeReader) error) error {
	return c.Changes.ReadChanges(ctx, from, to,
		func(r storage.ChangeReader) error { return do(&countedReader{r, &c.calls}) })
}

type countedReader struct {
	storage.ChangeReader
	calls *int
}

func (c *countedReader) VisitChanged(ctx context.Context, from, to storage.Position, after storage.ChangedKey,
	prefix vitals.Name,
	visit func(uint64, *vitals.Name, []storage.Record) bool) error {
	*c.calls++
	return c.ChangeReader.VisitChanged(ctx, from, to, after, prefix, visit)
}

func (c *countedReader) Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error) {
	*c.calls++
	return c.ChangeReader.Scan(ctx, r, dst)
}

// checkFewSelected reads changes one by one, of which few are selected: by sign, or of an assignment by subject. The
// store is read about once for each thousand. Seen to fail when each step read only as many as fit.
func checkFewSelected(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	const readings = 5000
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	for ms := int64(0); ms < readings; ms += 500 {
		var group []*storage.Entry
		for i := range int64(500) {
			group = append(group, entry("a", ms+i, hr(1)))
		}
		mustAppend(t, s, group...)
	}
	mustAppend(t, s, entry("b", 1, spo2(1)), entry("b", 2, spo2(1)))
	if err := s.Assign(context.Background(), assignment("a", "P", 0, storage.OpenEnd)); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]storage.ChangeFilter{
		"a sign":           {Signs: 1 << vitals.SpO2},
		"a subject's sign": {Signs: 1 << vitals.SpO2, Subject: func(s storage.Subject) bool { return s == "P" }},
	} {
		c, n := counted{Changes: s.(storage.Changes)}, 0
		for cursor, caughtUp := (storage.ChangeCursor{}), false; !caughtUp && n < readings; n++ {
			var page []storage.Change
			var err error
			if page, caughtUp, err = storage.NextChanges(context.Background(), &c, &cursor, &f, 1); err != nil || len(page) > 1 {
				t.Fatalf("NextChanges returned %d changes, %v", len(page), err)
			}
		}
		if c.calls > 20 || n > 20 {
			t.Errorf("%s: the store is read %d times for %d pages", what, c.calls, n)
		}
	}
	mustClose(t, s)
}

// checkWaiting waits for what comes after a position: a reading, an event, and the end of the store.
func checkWaiting(t testing.TB, h Harness) {
	if h.OpenChanges == nil {
		t.Skip("the store keeps no events")
	}
	ctx := context.Background()
	h.Open = func() (storage.Store, error) { return h.OpenChanges(nil) }
	s := mustOpen(t, h.Open)
	for _, change := range []func(){
		func() { mustAppend(t, s, entry("a", 1, hr(1))) },
		func() {
			if err := s.Assign(ctx, assignment("a", "P", 0, 5)); err != nil {
				t.Error(err)
			}
		},
		func() {
			if _, err := s.Erase(mustName("a")); err != nil {
				t.Error(err)
			}
		},
		func() { mustClose(t, s) },
	} {
		before, later, err := s.(storage.Changes).Position(ctx)
		if err != nil {
			t.Fatalf("Position: %v", err)
		}
		done := make(chan struct{})
		go func() { defer close(done); change() }()
		for {
			<-later
			var after storage.Position
			if after, later, err = s.(storage.Changes).Position(ctx); err != nil || !after.Same(&before) {
				break
			}
		}
		if err != nil && !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Position returned %v", err)
		}
		<-done
	}
}
