package storetest

import (
	"context"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// checkReceipt appends readings that arrive one after the other: the first one of a record sets its time of receipt,
// the last one that completes it when it was changed.
func checkReceipt(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	const first = receivedUnixMs
	want := records{}
	for _, e := range []*storage.Entry{
		at(first, entry("d", 1, hr(1))),
		at(first+10, entry("d", 1, hr(1))),          // a duplicate
		at(first+20, entry("d", 1, spo2(2))),        // completes
		at(first+30, entry("d", 1, spo2(3))),        // a conflict
		at(first+40, entry("d", 2, hr(1))),          // new
		at(first+40, entry("d", 2, spo2(1))),        // completes at the same time
		at(first+50, entry("d", 1, rhr(3), hr(1))),  // completes again
		at(first+60, entry("d", 1, rhr(3))),         // a duplicate
		at(first+70, entry("e", 1, hr(1))),          // another device
		at(first+1<<40, entry("e", 1, sys(2))),      // completes after decades
		at(first+1<<40+1, entry("e", 0, sys(2))),    // late
		at(first+1<<40+2, entry("e", 0, hr(0))),     // completes
		at(first+1<<40+3, entry("e", 0, hr(255*2))), // a conflict
	} {
		settleAll(t, s, want, e)
	}
	wantAll(t, s, want, 2)
	s = reopen(t, s, h)
	wantAll(t, s, want, 2)
	mustClose(t, s)
}

// checkAssignmentChanges makes and changes assignments by hand and by claims, and checks when they were changed.
func checkAssignmentChanges(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	ctx := context.Background()
	now := int64(receivedUnixMs)
	want := func(what string, all ...storage.Assignment) {
		t.Helper()
		got, err := s.DeviceAssignments(ctx, mustName("a"))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		wantEach(t, what, got, all, func(a, b storage.Assignment) bool { return a == b },
			func(a storage.Assignment) string { return a.Device.String() })
	}
	first := assignment("a", "P", 10, 20)
	first.ChangedUnixMs = now
	change := func(do func(context.Context, storage.Assignment) error, a storage.Assignment) {
		t.Helper()
		now += 10
		a.ChangedUnixMs = now
		if err := do(ctx, a); err != nil {
			t.Fatalf("%v: %v", a, err)
		}
	}
	claim := func(c *storage.Claim, timeUnixMs int64, outcome storage.Outcome) {
		t.Helper()
		now += 10
		e := at(now, entry("a", timeUnixMs, hr(1)))
		e.Claim, e.Recorded = c, true
		mustAppend(t, s, e)
		wantOutcome(t, e, outcome)
	}
	change(s.Assign, first)
	first.ChangedUnixMs = now
	want("assigned", first)
	change(s.Assign, first)
	want("assigned again", first)
	change(s.EndAssignment, first)
	want("ended where it ended", first)
	first.ToUnixMs = 19
	change(s.EndAssignment, first)
	first.ChangedUnixMs = now
	want("ended", first)

	named := &storage.Claim{Subject: "Q", Assign: true}
	claim(named, 30, storage.Stored)
	claimed := storage.Assignment{Device: mustName("a"), Subject: "Q", FromUnixMs: 30, ToUnixMs: storage.OpenEnd,
		By: storage.ByHL7, NamedUnixMs: 30, ChangedUnixMs: now}
	want("claimed", first, claimed)
	claim(named, 40, storage.Stored)
	claimed.NamedUnixMs = 40
	want("named again", first, claimed)
	claim(&storage.Claim{Assign: true}, 50, storage.Stored)
	claimed.ToUnixMs, claimed.ChangedUnixMs = 50, now
	want("nobody wears it", first, claimed)
	by := claimed
	by.By, by.NamedUnixMs = storage.ByHand, 0
	change(s.Assign, by)
	by.ChangedUnixMs = now
	want("made by hand", first, by)
	s = reopen(t, s, h)
	want("reopened", first, by)
	mustClose(t, s)
}
