package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkUnits settles groups with units: the readings of each are stored all or not at all.
func checkUnits(t testing.TB, h Harness) {
	const (
		unsettled, stored, completed     = storage.Outcome(0), storage.Stored, storage.Completed
		duplicate, conflict, awkwardName = storage.Duplicate, storage.Conflict, storage.AwkwardName
	)
	s := open(t, h)
	model := records{}
	one := func(e *storage.Entry) []*storage.Entry { return []*storage.Entry{e} }
	var many []*storage.Entry // of one record
	for i := range 20 {
		many = append(many, entry("many", 1, []sign{hr(1), spo2(2), rhr(3), hr(1)}[i%4]))
	}
	for _, tt := range []struct {
		name  string
		group [][]*storage.Entry
		want  []storage.Outcome
	}{
		{"new", [][]*storage.Entry{unit(entry("a", 1, hr(1)), entry("b", 1, hr(1)), entry("a", 2, hr(1)))},
			[]storage.Outcome{stored, stored, stored}},
		{"again", [][]*storage.Entry{unit(entry("a", 1, hr(1)), entry("a", 3, hr(1)), entry("b", 1, spo2(1)))},
			[]storage.Outcome{duplicate, stored, completed}},
		{"contradicts", [][]*storage.Entry{unit(entry("a", 4, hr(1)), entry("a", 2, rhr(2), hr(2)), entry("b", 1, hr(1)))},
			[]storage.Outcome{unsettled, conflict, unsettled}},
		{"nothing of it is stored", [][]*storage.Entry{one(entry("a", 4, hr(4))), one(entry("a", 2, rhr(3)))},
			[]storage.Outcome{stored, completed}},
		{"contradicts itself", [][]*storage.Entry{unit(entry("a", 5, hr(1)), entry("a", 5, hr(2)))},
			[]storage.Outcome{unsettled, conflict}},
		{"completes itself",
			[][]*storage.Entry{unit(entry("c", 5, hr(1)), by("g", entry("c", 5, spo2(2))), entry("c", 5, hr(1), spo2(2)))},
			[]storage.Outcome{stored, completed, duplicate}},
		{"in the order of the group", [][]*storage.Entry{
			one(entry("d", 1, hr(1))),
			unit(entry("d", 1, hr(2)), entry("d", 2, hr(1))),
			one(entry("d", 2, hr(2))),
			unit(entry("d", 2, hr(2)), entry("d", 3, hr(1))),
			one(entry("d", 3, hr(3))),
			one(entry("e", 1, hr(3))),
		}, []storage.Outcome{stored, conflict, unsettled, stored, duplicate, stored, conflict, stored}},
		{"depends on a rejected one", [][]*storage.Entry{
			unit(entry("f", 1, hr(1)), entry("d", 1, hr(9))),
			unit(entry("f", 1, hr(2)), entry("f", 2, hr(2))),
		}, []storage.Outcome{unsettled, conflict, stored, stored}},
		{"a new device with an awkward name", [][]*storage.Entry{unit(entry("g", 1, hr(1)), entry("-g", 1, hr(1)))},
			[]storage.Outcome{unsettled, awkwardName}},
		{"many of one record", [][]*storage.Entry{unit(many...)}, append([]storage.Outcome{stored, completed, completed},
			slices.Repeat([]storage.Outcome{duplicate}, 17)...)},
	} {
		group := slices.Concat(tt.group...)
		settleAll(t, s, model, group...)
		for i, e := range group {
			if e.Outcome != tt.want[i] {
				t.Errorf("%s: reading %d settled as %s, want %s", tt.name, i, OutcomeName(e.Outcome), OutcomeName(tt.want[i]))
			}
		}
		wantAll(t, s, model, 3)
	}
	if err := s.Append(unit(entry("h", 1, hr(1)), entry("h", 2, hr(1)))[:1]); !errors.Is(err, storage.ErrNotWritten) {
		t.Errorf("a unit that is cut off: Append returned %v, want ErrNotWritten", err)
	}
	s = reopen(t, s, h)
	wantAll(t, s, model, 3)
	mustClose(t, s)
}

// checkUnitsLimited settles units that would exceed the number of devices.
func checkUnitsLimited(t testing.TB, h Harness) {
	s := mustOpen(t, func() (storage.Store, error) { return h.OpenLimited(2) })
	group := unit(entry("a", 1, hr(1)), entry("b", 1, hr(1)), entry("c", 1, hr(1)))
	mustAppend(t, s, group...)
	for i, want := range []storage.Outcome{0, 0, storage.TooManyDevices} {
		wantOutcome(t, group[i], want)
	}
	wantAll(t, s, records{}, 2)
	mustAppend(t, s, unit(entry("a", 1, hr(2)), entry("b", 1, hr(2)), entry("a", 2, hr(2)))...)
	mustSettle(t, s, entry("b", 1, hr(2)), storage.Duplicate)
	mustClose(t, s)
}

// checkUnitsWithheld settles units of a writer who may find a conflict with the values of others.
func checkUnitsWithheld(t testing.TB, h Harness) {
	s := open(t, h)
	mustAppend(t, s, by("other", entry("d", 1, hr(1))), by("other", entry("d", 2, hr(1))))
	g := &guard{left: 1}
	for _, tt := range []struct {
		second *storage.Entry
		want   []storage.Outcome
		left   int
	}{
		{entry("d", 2, hr(1)), []storage.Outcome{storage.Duplicate, storage.Duplicate}, 1}, // each was permitted
		{entry("d", 2, hr(2)), []storage.Outcome{0, storage.Conflict}, 0},
		{entry("d", 2, hr(1)), []storage.Outcome{storage.Withheld, 0}, -1},
	} {
		group := unit(by("me", entry("d", 1, hr(1))), by("me", tt.second))
		group[0].Guard, group[1].Guard = g, g
		mustAppend(t, s, group...)
		for i, want := range tt.want {
			wantOutcome(t, group[i], want)
		}
		if g.left != tt.left {
			t.Errorf("the guard permits %d conflicts more, want %d", g.left, tt.left)
		}
	}
}

// rushUnits appends units that contradict each other to each of the stores, which share their data,
// at the same time. Each must be stored as a whole or not at all, as its outcomes say.
func rushUnits(t testing.TB, stores ...store) {
	t.Helper()
	for round := range uint64(20) {
		rng := rand.New(rand.NewPCG(round, 1))
		groups := make([][]*storage.Entry, len(stores))
		for i := range groups {
			for range 5 {
				var all []*storage.Entry
				for range 1 + rng.IntN(4) {
					all = append(all, entry(fmt.Sprintf("unit-%d", rng.IntN(3)), int64(round),
						[]sign{hr(1), hr(2), spo2(1), rhr(1)}[rng.IntN(4)]))
				}
				groups[i] = append(groups[i], unit(all...)...)
			}
		}
		var calls sync.WaitGroup
		errs := make([]error, len(stores))
		for i := range stores {
			calls.Go(func() { errs[i] = stores[i].Append(groups[i]) })
		}
		calls.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("concurrent Appends: %v", err)
		}
		accepted := map[vitals.Name]vitals.Values{}
		for _, e := range slices.Concat(groups...) {
			if e.Outcome == 0 || e.Outcome > storage.Duplicate {
				continue
			}
			have := accepted[e.Reading.Device]
			merged, sign, outcome := storage.Merge(&have, &e.Reading.Values)
			if outcome == storage.Conflict {
				t.Fatalf("round %d: two values of %s were accepted", round, sign)
			}
			accepted[e.Reading.Device] = merged
		}
		for i := range 3 {
			device := mustName(fmt.Sprintf("unit-%d", i))
			var got vitals.Values
			for _, r := range scanPages(t, stores[0], storage.Range{Device: device, FromUnixMs: int64(round),
				ToUnixMs: int64(round) + 1}, 2) {
				got = r.Values
			}
			if want := accepted[device]; got != want {
				t.Fatalf("round %d: %s has other values than its accepted units", round, device)
			}
		}
	}
}
