package storage_test

import (
	"slices"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/storetest"
	"github.com/pulsegate/pulsegate/vitals"
)

// A device with as many assignments as it may have gets no span of nobody, but no reading is rejected for that. With
// half as many, it gets no assignment within a span.
func TestClaimBounds(t *testing.T) {
	device, err := vitals.ParseName("d")
	if err != nil {
		t.Fatal(err)
	}
	var all []storage.Assignment
	for i := range int64(storage.MaxAssignments) {
		all = append(all, storage.Assignment{Device: device, Subject: "P", FromUnixMs: 10 * i, ToUnixMs: 10*i + 10})
	}
	after := 10 * int64(storage.MaxAssignments)
	span := storage.Assignment{Device: device, FromUnixMs: after, ToUnixMs: storage.OpenEnd, By: storage.ByHL7, NamedUnixMs: after + 20}
	with := func(n int) []storage.Assignment { return append(slices.Clone(all[:n-1]), span) }
	for _, tt := range []struct {
		name    string
		all     []storage.Assignment
		subject storage.Subject
		at      int64
		want    storage.Outcome
		more    int
	}{
		{"nobody, one below the bound", all[1:], "", after, 0, 1},
		{"nobody, at the bound", all, "", after, 0, 0},
		{"within a span, below half of the bound", with(storage.MaxAssignments/2 - 1), "Q", after + 5, 0, 2},
		{"within a span, at half of the bound", with(storage.MaxAssignments / 2), "Q", after + 5, storage.TooManyAssignments, 0},
		{"after a span, one below the bound", with(storage.MaxAssignments - 1), "Q", after + 30, 0, 1},
		{"after a span, at the bound", with(storage.MaxAssignments), "Q", after + 30, storage.TooManyAssignments, 0},
	} {
		r := &vitals.Reading{Device: device, TimeUnixMs: tt.at}
		r.Values.Set(vitals.HeartRate, 60)
		e := &storage.Entry{Reading: r, Recorded: true, Claim: &storage.Claim{Subject: tt.subject, Assign: true}}
		w := storage.NewWearers(tt.all)
		got := w.Settle(e, true)
		if more := len(storetest.Changed(w)) - len(tt.all); got != tt.want || more != tt.more {
			t.Errorf("%s: outcome %d and %d assignments more, want %d and %d", tt.name, got, more, tt.want, tt.more)
		}
	}
	// One by hand takes the place of a span, and leaves no more than the bound.
	w := storage.NewWearers(with(storage.MaxAssignments - 1))
	w.Put(storage.Assignment{Device: device, Subject: "Q", FromUnixMs: after + 5, ToUnixMs: after + 6})
	if n := len(storetest.Changed(w)); n != storage.MaxAssignments {
		t.Errorf("%d assignments, want %d", n, storage.MaxAssignments)
	}
}
