package storage_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

const most = storage.MaxAssignments

// fullFrom is when the assignments of nearlyFull that last have ended.
const fullFrom = 10 * most

// nearlyFull returns assignments that last, and then a span of nobody with assignments of a millisecond within it.
func nearlyFull(device vitals.Name, lasting, momentary int) (all []storage.Assignment) {
	for i := range int64(lasting) {
		all = append(all, storage.Assignment{Device: device, Subject: "P", FromUnixMs: 10 * i, ToUnixMs: 10*i + 5})
	}
	span := storage.Assignment{Device: device, FromUnixMs: fullFrom, ToUnixMs: storage.OpenEnd, By: storage.ByHL7,
		NamedUnixMs: fullFrom + 9000}
	rest := span
	for i := range int64(momentary) {
		a := storage.Assignment{Device: device, Subject: "Q", FromUnixMs: fullFrom + 2*i + 1, ToUnixMs: fullFrom + 2*i + 2,
			By: storage.ByHL7}
		rest.ToUnixMs, rest.NamedUnixMs = a.FromUnixMs, a.FromUnixMs-1
		all = append(all, rest, a)
		rest = span
		rest.FromUnixMs = a.ToUnixMs
	}
	return append(all, rest)
}

// A device with as many assignments as it may have gets spans of nobody, and assignments of a millisecond, of which it
// may have as many again, however they come about.
func TestClaimBounds(t *testing.T) {
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	with := func(lasting, momentary int) []storage.Assignment { return nearlyFull(device, lasting, momentary) }
	byHand := func(from, to int64) storage.Assignment {
		return storage.Assignment{Device: device, Subject: "Q", FromUnixMs: from, ToUnixMs: to}
	}
	const late = fullFrom + 9030
	for _, tt := range []struct {
		name    string
		all     []storage.Assignment
		subject storage.Subject
		at      int64
		want    storage.Outcome
		more    int
	}{
		{"nobody, at the bound", with(most, 0)[:most], "", fullFrom, 0, 1},
		{"within a span, at the bound", with(most, 0), "Q", fullFrom + 5, 0, 2},
		{"within a span, one below its bound", with(most-1, most-1), "Q", fullFrom + 8005, 0, 2},
		{"within a span, at its bound", with(most-1, most), "Q", fullFrom + 8005, storage.TooManyAssignments, 0},
		{"nobody, at both bounds", with(most, most), "", 7, 0, 1},
		{"after a span, one below the bound", with(most-1, most), "Q", late, 0, 1},
		{"after a span, at the bound", with(most, 0), "Q", late, storage.TooManyAssignments, 0},
		{"a millisecond before the next", append(with(most-2, most), byHand(late, late+1)), "Q", late - 1,
			storage.TooManyAssignments, 0},
		{"a millisecond before the next, one below its bound", append(with(most, most-2), byHand(late, late+1)), "Q",
			late - 1, 0, 1},
	} {
		w := storage.NewWearers(tt.all)
		claimAt(w, device, tt.subject, tt.at, tt.want, t)
		if more := len(storetest.Changed(w)) - len(tt.all); more != tt.more {
			t.Errorf("%s: %d assignments more, want %d", tt.name, more, tt.more)
		}
	}
	for lasting, want := range map[int]error{most - 1: nil, most: storage.ErrTooManyAssignments} {
		a := byHand(late, late+2)
		if _, err := a.Admit(with(lasting, most)); !errors.Is(err, want) {
			t.Errorf("Admit, with %d assignments, returned %v, want %v", lasting, err, want)
		}
		a = byHand(late, late+1)
		if _, err := a.Admit(with(most, lasting)); !errors.Is(err, want) {
			t.Errorf("Admit, with %d assignments of a millisecond, returned %v, want %v", lasting, err, want)
		}
		all := with(lasting, 1)
		a = all[lasting+1]
		a.ToUnixMs, a.By = a.ToUnixMs+1, storage.ByHand
		if err := a.AdmitEnd(all); !errors.Is(err, want) {
			t.Errorf("AdmitEnd, with %d assignments, returned %v, want %v", lasting, err, want)
		}
	}
	// One by hand, within a span, leaves both parts of it.
	w := storage.NewWearers(with(most-1, 0))
	w.Put(byHand(fullFrom+5, fullFrom+6))
	if all := storetest.Changed(w); len(all) != most+2 || all[len(all)-1].NamedUnixMs != fullFrom+9000 {
		t.Errorf("%d assignments, the last is %v", len(all), all[len(all)-1])
	}
}

// Assignments that a message ends after a millisecond take no room from those that last.
func TestClaimsEndedAtOnce(t *testing.T) {
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	w := storage.NewWearers(nil)
	for i := range int64(most) {
		claimAt(w, device, "P", 10*i, 0, t)
		claimAt(w, device, "", 10*i+1, 0, t)
	}
	claimAt(w, device, "P", fullFrom, 0, t)
	claimAt(w, device, "", fullFrom+1, storage.TooManyAssignments, t)
	claimAt(w, device, "", fullFrom+2, 0, t)
	a := storage.Assignment{Device: device, Subject: "R", FromUnixMs: 1 << 40, ToUnixMs: storage.OpenEnd}
	if _, err := a.Admit(storetest.Changed(w)); err != nil {
		t.Errorf("one by hand: %v", err)
	}
}

// What claims and operators make of the assignments of a device that has nearly as many as it may have, another store
// admits, as a migration and a repair need it: each of them beside all others.
func TestAdmitSettled(t *testing.T) {
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	rejected := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 54))
		all := nearlyFull(device, most-r.IntN(3), most-r.IntN(3))
		for range 12 {
			w := storage.NewWearers(all)
			at := int64(fullFrom + 9000 + r.IntN(20))
			switch subject := []storage.Subject{"P", "Q", ""}[r.IntN(3)]; r.IntN(4) {
			case 0:
				a := storage.Assignment{Device: device, Subject: "P", FromUnixMs: at, ToUnixMs: at + 1 + r.Int64N(3)}
				if _, err := a.Admit(all); err == nil {
					w.Put(a)
				}
			case 1:
				if a := all[len(all)-1-r.IntN(min(8, len(all)))]; a.Subject != "" {
					a.ToUnixMs, a.By, a.NamedUnixMs = a.FromUnixMs+1+r.Int64N(3), storage.ByHand, 0
					if a.AdmitEnd(all) == nil {
						w.Put(a)
					}
				}
			default:
				claim := &storage.Claim{Subject: subject, Assign: true}
				for range 1 + r.IntN(3) {
					reading := &vitals.Reading{Device: device, TimeUnixMs: at + r.Int64N(4)}
					reading.Values.Set(vitals.HeartRate, 60)
					e := &storage.Entry{Reading: reading, Recorded: true, Claim: claim}
					if outcome := w.Settle(e, false); outcome == 0 {
						w.Settle(e, true)
					} else if outcome == storage.TooManyAssignments {
						rejected++
					}
				}
			}
			all = storetest.Changed(w)
			for a := range w.Changes() {
				i := slices.Index(all, a)
				if i < 0 {
					continue // it was removed
				}
				others := slices.Delete(slices.Clone(all), i, i+1)
				if exists, err := a.Admit(others); exists || err != nil {
					t.Fatalf("seed %d: Admit(%v) returned %t, %v; it is from %v", seed, a, exists, err, all[len(all)-9:])
				}
			}
		}
	}
	if rejected == 0 {
		t.Error("no claim was rejected for the bounds")
	}
}

// claimAt settles a claim.
func claimAt(w *storage.Wearers, device vitals.Name, subject storage.Subject, at int64, want storage.Outcome,
	t *testing.T) {
	t.Helper()
	r := &vitals.Reading{Device: device, TimeUnixMs: at}
	r.Values.Set(vitals.HeartRate, 60)
	e := &storage.Entry{Reading: r, Recorded: true, Claim: &storage.Claim{Subject: subject, Assign: true}}
	if got := w.Settle(e, true); got != want {
		t.Errorf("the claim of %q at %d got the outcome %d, want %d", subject, at, got, want)
	}
}

// Spans between which assignments were removed become one with the next change, so that they stay few.
func TestSpansJoin(t *testing.T) {
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	span := func(from, to, named int64) storage.Assignment {
		return storage.Assignment{Device: device, FromUnixMs: from, ToUnixMs: to, By: storage.ByHL7, NamedUnixMs: named}
	}
	worn := storage.Assignment{Device: device, Subject: "P", FromUnixMs: 60, ToUnixMs: 70}
	all := []storage.Assignment{span(10, 20, 15), span(30, 40, 35), span(45, 60, 50), worn, span(80, storage.OpenEnd, 90)}
	w := storage.NewWearers(all)
	claimAt(w, device, "", 42, 0, t)
	if got, want := storetest.Changed(w), []storage.Assignment{span(10, 60, 50), worn, all[4]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	w = storage.NewWearers(all)
	w.Put(storage.Assignment{Device: device, Subject: "Q", FromUnixMs: 32, ToUnixMs: 33})
	if got := storetest.Changed(w); len(got) != 5 || got[0] != span(10, 32, 31) || got[2] != span(33, 60, 50) {
		t.Errorf("got %v", got)
	}
}
