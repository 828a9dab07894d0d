package storage_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A device with as many assignments as it may have gets spans of nobody, and those of a millisecond within a span, of
// which it may have as many again.
func TestClaimBounds(t *testing.T) {
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	const most = storage.MaxAssignments
	const after = 10 * most
	span := storage.Assignment{Device: device, FromUnixMs: after, ToUnixMs: storage.OpenEnd, By: storage.ByHL7, NamedUnixMs: after + 9000}
	with := func(lasting, momentary int) (all []storage.Assignment) {
		for i := range int64(lasting) {
			all = append(all, storage.Assignment{Device: device, Subject: "P", FromUnixMs: 10 * i, ToUnixMs: 10*i + 5})
		}
		rest := span
		for i := range int64(momentary) {
			a := storage.Assignment{Device: device, Subject: "Q", FromUnixMs: after + 2*i + 1, ToUnixMs: after + 2*i + 2, By: storage.ByHL7}
			rest.ToUnixMs, rest.NamedUnixMs = a.FromUnixMs, a.FromUnixMs-1
			all = append(all, rest, a)
			rest = span
			rest.FromUnixMs = a.ToUnixMs
		}
		return append(all, rest)
	}
	for _, tt := range []struct {
		name    string
		all     []storage.Assignment
		subject storage.Subject
		at      int64
		want    storage.Outcome
		more    int
	}{
		{"nobody, at the bound", with(most, 0)[:most], "", after, 0, 1},
		{"within a span, at the bound", with(most, 0), "Q", after + 5, 0, 2},
		{"within a span, one below its bound", with(most-1, most-1), "Q", after + 8005, 0, 2},
		{"within a span, at its bound", with(most-1, most), "Q", after + 8005, storage.TooManyAssignments, 0},
		{"nobody, at both bounds", with(most, most), "", 7, 0, 1},
		{"after a span, one below the bound", with(most-1, most), "Q", after + 9030, 0, 1},
		{"after a span, at the bound", with(most, 0), "Q", after + 9030, storage.TooManyAssignments, 0},
	} {
		w := storage.NewWearers(tt.all)
		claimAt(w, device, tt.subject, tt.at, tt.want, t)
		if more := len(storetest.Changed(w)) - len(tt.all); more != tt.more {
			t.Errorf("%s: %d assignments more, want %d", tt.name, more, tt.more)
		}
	}
	byHand := storage.Assignment{Device: device, Subject: "Q", FromUnixMs: after + 9030, ToUnixMs: after + 9031}
	for n, want := range map[int]error{most - 1: nil, most: storage.ErrTooManyAssignments} {
		if _, err := byHand.Admit(with(n, most)); !errors.Is(err, want) {
			t.Errorf("Admit, with %d assignments, returned %v, want %v", n, err, want)
		}
	}
	// One by hand, within a span, leaves both parts of it.
	w := storage.NewWearers(with(most-1, 0))
	w.Put(storage.Assignment{Device: device, Subject: "Q", FromUnixMs: after + 5, ToUnixMs: after + 6})
	if all := storetest.Changed(w); len(all) != most+2 || all[len(all)-1].NamedUnixMs != span.NamedUnixMs {
		t.Errorf("%d assignments, the last is %v", len(all), all[len(all)-1])
	}
}

// claimAt settles a claim.
func claimAt(w *storage.Wearers, device vitals.Name, subject storage.Subject, at int64, want storage.Outcome, t *testing.T) {
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
