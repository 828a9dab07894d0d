package storetest

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A step is one reading of a sequence and its expected outcome.
type step struct {
	e    *storage.Entry
	want storage.Outcome
}

// A sequence is a list of readings of device "d" and the records expected after it.
type sequence struct {
	name  string
	steps []step
	want  []storage.Record
}

// sequences returns the settling rules by example.
func sequences() []sequence {
	const (
		stored, completed   = storage.Stored, storage.Completed
		duplicate, conflict = storage.Duplicate, storage.Conflict
	)
	d := func(timeUnixMs int64, signs ...sign) *storage.Entry { return entry("d", timeUnixMs, signs...) }
	rec := func(e *storage.Entry) []storage.Record { return []storage.Record{recordOf(e)} }
	return []sequence{
		{"the same again",
			[]step{{d(1, hr(1)), stored}, {d(1, hr(1)), duplicate}, {d(1, hr(1)), duplicate}},
			rec(d(1, hr(1)))},
		{"a part again",
			[]step{{d(1, hr(1), spo2(2)), stored}, {d(1, hr(1)), duplicate}, {d(1, spo2(2)), duplicate}},
			rec(d(1, hr(1), spo2(2)))},
		{"another sign",
			[]step{{d(1, hr(1)), stored}, {d(1, spo2(2)), completed}, {d(1, hr(1), spo2(2)), duplicate}},
			rec(d(1, hr(1), spo2(2)))},
		{"another sign with a stored one",
			[]step{{d(1, hr(1)), stored}, {d(1, hr(1), spo2(2)), completed}},
			rec(d(1, hr(1), spo2(2)))},
		{"completed twice",
			[]step{{d(1, hr(1)), stored}, {d(1, spo2(2)), completed}, {d(1, sys(4), dia(3)), completed},
				{d(1, rhr(5)), completed}, {d(1, rhr(5)), duplicate}},
			rec(d(1, hr(1), spo2(2), sys(4), dia(3), rhr(5)))},
		{"contradiction",
			[]step{{d(1, hr(1)), stored}, {d(1, hr(2)), conflict}, {d(1, hr(2)), conflict}, {d(1, hr(1)), duplicate}},
			rec(d(1, hr(1)))},
		{"contradiction with a new sign is rejected as a whole",
			[]step{{d(1, hr(1)), stored}, {d(1, hr(2), spo2(2)), conflict}, {d(1, spo2(3)), completed}},
			rec(d(1, hr(1), spo2(3)))},
		{"contradiction with an equal sign",
			[]step{{d(1, hr(1), spo2(2)), stored}, {d(1, hr(1), spo2(3)), conflict}},
			rec(d(1, hr(1), spo2(2)))},
		{"contradiction of a completing reading",
			[]step{{d(1, hr(1)), stored}, {d(1, spo2(2)), completed}, {d(1, spo2(3)), conflict},
				{d(1, spo2(3), rhr(9)), conflict}},
			rec(d(1, hr(1), spo2(2)))},
		{"contradiction before a completing reading",
			[]step{{d(1, hr(1)), stored}, {d(1, hr(2), spo2(2)), conflict}, {d(1, rhr(4)), completed}},
			rec(d(1, hr(1), rhr(4)))},
		{"another gateway sends the same",
			[]step{{by("g1", d(1, hr(1))), stored}, {by("g2", d(1, hr(1))), duplicate}, {d(1, hr(1)), duplicate}},
			rec(by("g1", d(1, hr(1))))},
		{"another gateway completes",
			[]step{{by("g1", d(1, hr(1))), stored}, {by("g2", d(1, spo2(2))), completed}, {d(1, rhr(3)), completed}},
			[]storage.Record{shared(by("g1", d(1, hr(1), spo2(2), rhr(3))))}},
		{"a gateway is named later",
			[]step{{d(1, hr(1)), stored}, {by("g2", d(1, spo2(2))), completed}, {by("g3", d(1, rhr(3))), completed}},
			[]storage.Record{shared(by("g2", d(1, hr(1), spo2(2), rhr(3))))}},
		{"the same gateway completes",
			[]step{{by("g1", d(1, hr(1))), stored}, {by("g1", d(1, spo2(2))), completed}, {by("g2", d(1, spo2(2))), duplicate}},
			rec(by("g1", d(1, hr(1), spo2(2))))},
		{"a duplicate does not set the gateway",
			[]step{{d(1, hr(1)), stored}, {by("g2", d(1, hr(1))), duplicate}},
			rec(d(1, hr(1)))},
		{"a conflict does not set the gateway",
			[]step{{d(1, hr(1)), stored}, {by("g2", d(1, hr(2))), conflict}, {by("g3", d(1, spo2(2))), completed}},
			[]storage.Record{shared(by("g3", d(1, hr(1), spo2(2))))}},
		{"another time is another record",
			[]step{{d(1, hr(1)), stored}, {d(2, hr(2)), stored}, {d(3, spo2(3)), stored}},
			[]storage.Record{recordOf(d(1, hr(1))), recordOf(d(2, hr(2))), recordOf(d(3, spo2(3)))}},
		{"late readings",
			[]step{{d(9, hr(9)), stored}, {d(5, hr(5)), stored}, {d(7, hr(7)), stored}, {d(5, hr(5)), duplicate},
				{d(5, hr(6)), conflict}, {d(7, spo2(7)), completed}, {d(7, spo2(8)), conflict}, {d(9, spo2(1)), completed}},
			[]storage.Record{recordOf(d(5, hr(5))), recordOf(d(7, hr(7), spo2(7))), recordOf(d(9, hr(9), spo2(1)))}},
		{"newest first",
			[]step{{d(4, hr(4)), stored}, {d(3, hr(3)), stored}, {d(2, hr(2)), stored}, {d(1, hr(1)), stored},
				{d(2, hr(2)), duplicate}},
			[]storage.Record{recordOf(d(1, hr(1))), recordOf(d(2, hr(2))), recordOf(d(3, hr(3))), recordOf(d(4, hr(4)))}},
		{"a value of zero is a value",
			[]step{{d(1, hr(0)), stored}, {d(1, hr(0)), duplicate}, {d(1, hr(1)), conflict}, {d(1, spo2(0)), completed}},
			rec(d(1, hr(0), spo2(0)))},

		// Offsets from UTC play no part in identity and conflict, and a record keeps the first that it is
		// given.
		{"another offset is a duplicate",
			[]step{{offset(60, d(1, hr(1))), stored}, {offset(120, d(1, hr(1))), duplicate}, {d(1, hr(1)), duplicate}},
			rec(offset(60, d(1, hr(1))))},
		{"another offset does not excuse a contradiction",
			[]step{{offset(60, d(1, hr(1))), stored}, {offset(120, d(1, hr(2))), conflict},
				{offset(120, d(1, hr(2), spo2(2))), conflict}},
			rec(offset(60, d(1, hr(1))))},
		{"a reading with another offset completes",
			[]step{{offset(60, d(1, hr(1))), stored}, {offset(120, d(1, spo2(2))), completed}, {d(1, rhr(3)), completed}},
			rec(offset(60, d(1, hr(1), spo2(2), rhr(3))))},
		{"an offset is given later",
			[]step{{d(1, hr(1)), stored}, {offset(-60, d(1, spo2(2))), completed}, {offset(120, d(1, rhr(3))), completed}},
			rec(offset(-60, d(1, hr(1), spo2(2), rhr(3))))},
		{"an offset of zero is an offset",
			[]step{{offset(0, d(1, hr(1))), stored}, {offset(120, d(1, spo2(2))), completed}},
			rec(offset(0, d(1, hr(1), spo2(2))))},
		{"a duplicate does not set the offset",
			[]step{{d(1, hr(1)), stored}, {offset(60, d(1, hr(1))), duplicate}},
			rec(d(1, hr(1)))},
		{"a conflict does not set the offset",
			[]step{{d(1, hr(1)), stored}, {offset(60, d(1, hr(2))), conflict}, {offset(120, d(1, spo2(2))), completed}},
			rec(offset(120, d(1, hr(1), spo2(2))))},
		{"gateway and offset of different readings",
			[]step{{by("g1", d(1, hr(1))), stored}, {by("g2", offset(60, d(1, spo2(2)))), completed}},
			[]storage.Record{shared(by("g1", offset(60, d(1, hr(1), spo2(2)))))}},
	}
}

// checkSequences settles each reading in a group of its own.
func checkSequences(t testing.TB, h Harness) { settleSequences(t, h, false) }

// checkSequencesInOneGroup settles each sequence as one group: the outcomes must
// be the same.
func checkSequencesInOneGroup(t testing.TB, h Harness) { settleSequences(t, h, true) }

// settleSequences runs each sequence on a device of its own, and compares the stored
// records afterwards and after a reopen.
func settleSequences(t testing.TB, h Harness, together bool) {
	s := mustOpen(t, h.Open)
	device := func(i int) string { return fmt.Sprintf("d%d", i) }
	for i, q := range sequences() {
		var group []*storage.Entry
		for _, st := range q.steps {
			st.e.Reading.Device = mustName(device(i))
			if group = append(group, st.e); !together {
				mustAppend(t, s, st.e)
			}
		}
		if together {
			mustAppend(t, s, group...)
		}
		for _, st := range q.steps {
			wantOutcome(t, st.e, st.want)
		}
		wantRecords(t, q.name, scanPages(t, s, allOf(device(i)), 100), q.want)
	}
	s = reopen(t, s, h)
	for i, q := range sequences() {
		wantRecords(t, q.name+", reopened", scanPages(t, s, allOf(device(i)), 100), q.want)
	}
	mustClose(t, s)
}

func checkExtremes(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
	const longest = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
	groups := [][]*storage.Entry{ // which arrive one after the other
		{at(math.MinInt64, entry("d", 256, spo2(2)))},
		{at(-1, entry("d", 1, hr(math.MaxUint16)))},
		{at(0, entry("d", math.MaxInt64-1, sys(math.MaxUint16), dia(0), spo2(1), hr(256), rhr(255)))},
		{entry("d", 0, hr(0)), by(longest, entry(longest, 1, rhr(1))), by("-", entry("_", 1, rhr(1)))},
		{
			offset(vitals.MaxUTCOffsetMinutes, entry("o", 1, hr(1))),
			offset(vitals.MinUTCOffsetMinutes, entry("o", 2, hr(1))),
			offset(0, entry("o", 3, hr(1))), // differs from none
			entry("o", 4, hr(1)),
		},
		{at(math.MaxInt64, entry("d", 255, spo2(1)))},
	}
	want := records{}
	for _, group := range groups {
		settleAll(t, s, want, group...)
	}
	wantAll(t, s, want, 3)
	s = reopen(t, s, h)
	wantAll(t, s, want, 3)
	for _, e := range slices.Concat(groups...) {
		mustSettle(t, s, e, storage.Duplicate)
	}
	mustClose(t, s)
}

// checkLargeGroup settles groups of several thousand readings: half of them newest
// first, then all of them in order.
func checkLargeGroup(t testing.TB, h Harness) {
	s := open(t, h)
	const n = 5000
	want := records{}
	var group []*storage.Entry
	for i := range int64(n) {
		group = append(group, entry(fmt.Sprintf("many-%d", i%50), i, hr(vitals.Value(i))),
			entry("one", i, spo2(vitals.Value(i))))
	}
	backwards := slices.Clone(group)
	slices.Reverse(backwards)
	settleAll(t, s, want, backwards[:n]...) // the later half of the times, newest first
	settleAll(t, s, want, group...)
	wantAll(t, s, want, 1000)
}

// checkEntries checks what Append does with the entries themselves.
func checkEntries(t testing.TB, h Harness) {
	s := open(t, h)
	e := by("gw", entry("dev", 7, hr(7200)))
	reading, received := *e.Reading, e.ReceivedUnixMs
	e.Outcome, e.Sign = storage.Conflict, vitals.SpO2
	mustSettle(t, s, e, storage.Stored)
	mustSettle(t, s, e, storage.Duplicate)
	if *e.Reading != reading || e.ReceivedUnixMs != received {
		t.Error("Append changed the reading of an entry")
	}
	want := recordOf(e)
	*e.Reading = vitals.Reading{Device: mustName("other"), TimeUnixMs: 8, Values: valuesOf(spo2(1))}
	wantRecords(t, "scan after the caller reused its reading", scanPages(t, s, allOf("dev"), 10), []storage.Record{want})

	mustAppend(t, s) // an empty group is no error

	// A group may hold one entry twice.
	twice := entry("dev", 9, hr(1))
	mustAppend(t, s, twice, twice)
	if twice.Outcome != storage.Duplicate {
		t.Errorf("an entry that is twice in its group settled as %s, want duplicate", OutcomeName(twice.Outcome))
	}
}

func checkInvalidReadings(t testing.TB, h Harness) {
	s := open(t, h)
	mustSettle(t, s, entry("d", 5, hr(5)), storage.Stored)
	for _, tt := range []struct {
		name string
		bad  *storage.Entry
	}{
		{"no device", entry("", 6, hr(6))},
		{"no value", entry("d", 6)},
		{"negative time", entry("d", -1, hr(6))},
	} {
		err := s.Append([]*storage.Entry{entry("d", 7, hr(7)), tt.bad, entry("d", 8, hr(8))})
		if !errors.Is(err, storage.ErrNotWritten) {
			t.Errorf("%s: Append returned %v, want ErrNotWritten", tt.name, err)
		}
	}
	mustSettle(t, s, entry("d", 6, hr(6)), storage.Stored)
	want := []storage.Record{recordOf(entry("d", 5, hr(5))), recordOf(entry("d", 6, hr(6)))}
	wantRecords(t, "scan", scanPages(t, s, allOf("d"), 10), want)
}

// checkAwkwardNames checks that new devices are rejected if clients cannot use their
// names.
func checkAwkwardNames(t testing.TB, h Harness) {
	s := open(t, h)
	for _, name := range []string{".", "..", "-", "-2-3", "-a"} {
		mustSettle(t, s, entry(name, 1, hr(1)), storage.AwkwardName)
	}
	want := records{}
	for _, name := range []string{"...", ".a", "..a", "a-", "_"} {
		settleAll(t, s, want, entry(name, 1, hr(1)))
	}
	wantAll(t, s, want, 2)
	mustClose(t, s)
}

func checkTooManyDevices(t testing.TB, h Harness) {
	limited := func() store { return mustOpen(t, func() (storage.Store, error) { return h.OpenLimited(2) }) }
	s := limited()
	want := records{}
	for range 2 { // the second time after a reopen
		group := []*storage.Entry{
			entry("a", 1, hr(1)), entry("b", 1, hr(1)), entry("c", 1, hr(1)),
			entry("a", 2, hr(2)), entry("c", 2, hr(2)), entry("b", 0, hr(3)),
		}
		mustAppend(t, s, group...)
		for _, e := range group {
			outcome, _ := want.settle(e, 2, noClaims)
			wantOutcome(t, e, outcome)
		}
		wantAll(t, s, want, 2)
		mustClose(t, s)
		s = limited()
	}
	mustSettle(t, s, entry("d", 1, hr(1)), storage.TooManyDevices)
	mustSettle(t, s, entry("a", 3, hr(1)), storage.Stored)
	mustClose(t, s)
}

// A guard permits a number of conflicts.
type guard struct{ left int }

func (g *guard) Take() bool {
	g.left--
	return g.left >= 0
}

func (g *guard) Return() { g.left++ }

// checkWithheld settles readings of a writer who may find four conflicts with the
// values of others: first each reading in its own group, then all in one.
func checkWithheld(t testing.TB, h Harness) {
	s := open(t, h)
	for _, inOneGroup := range []bool{false, true} {
		device := fmt.Sprintf("d-%t", inOneGroup)
		d := func(timeUnixMs int64, signs ...sign) *storage.Entry { return entry(device, timeUnixMs, signs...) }
		mustAppend(t, s, by("other", d(10, hr(1), spo2(1))), d(11, hr(1)), by("me", d(12, hr(1))), d(13, hr(1)),
			by("me", d(14, rhr(1))), by("other", d(14, hr(1))))
		g := &guard{left: 4}
		var group []*storage.Entry
		var want []storage.Outcome
		add := func(outcome storage.Outcome, e *storage.Entry) {
			e.Guard = g
			group, want = append(group, by("me", e)), append(want, outcome)
		}
		for i := range int64(5) { // the writer's own record is not guarded
			add(storage.Conflict, d(12, hr(vitals.Value(2+i))))
		}
		add(storage.Duplicate, d(12, hr(1)))
		add(storage.Duplicate, d(10, hr(1)))
		add(storage.Duplicate, d(10, hr(1), spo2(1)))
		add(storage.Conflict, d(10, hr(2)))
		add(storage.Completed, d(13, rhr(1))) // sets the gateway; the record is still guarded
		add(storage.Conflict, d(13, hr(2)))
		add(storage.Conflict, d(14, hr(2))) // the writer's record, which the other one completed
		add(storage.Completed, d(10, hr(1), rhr(7)))
		add(storage.Conflict, d(11, hr(3))) // without a gateway: counts as another's
		add(storage.Withheld, d(10, hr(1)))
		add(storage.Withheld, d(10, hr(2)))
		add(storage.Withheld, d(10, hr(1), sys(2), dia(1)))
		add(storage.Withheld, d(11, hr(1)))
		add(storage.Withheld, d(13, hr(2)))
		add(storage.Withheld, d(14, hr(2)))
		add(storage.Conflict, d(12, hr(2)))           // the writer's own record
		add(storage.Completed, d(11, sys(2), dia(1))) // no sign in common: nothing to guess
		add(storage.Stored, d(9, hr(1)))
		add(storage.Stored, d(20, hr(1)))
		add(storage.Duplicate, d(20, hr(1)))
		if inOneGroup {
			mustAppend(t, s, group...)
		}
		for i, e := range group {
			if !inOneGroup {
				mustAppend(t, s, e)
			}
			wantOutcome(t, e, want[i])
		}
		wantRecords(t, "scan", scanPages(t, s, allOf(device), 10), []storage.Record{
			recordOf(by("me", d(9, hr(1)))),
			shared(by("other", d(10, hr(1), spo2(1), rhr(7)))),
			shared(by("me", d(11, hr(1), sys(2), dia(1)))),
			recordOf(by("me", d(12, hr(1)))),
			shared(by("me", d(13, hr(1), rhr(1)))),
			shared(by("me", d(14, hr(1), rhr(1)))),
			recordOf(by("me", d(20, hr(1)))),
		})
		again := by("other", d(10, hr(1)))
		again.Guard = nil
		mustSettle(t, s, again, storage.Duplicate)
	}
}

// checkRelayed settles readings that another server hands over: each in its own group, and all in one.
func checkRelayed(t testing.TB, h Harness) {
	s := open(t, h)
	for _, inOneGroup := range []bool{false, true} {
		device := fmt.Sprintf("d-%t", inOneGroup)
		d := func(timeUnixMs int64, signs ...sign) *storage.Entry { return entry(device, timeUnixMs, signs...) }
		g := &guard{left: 1}
		var group []*storage.Entry
		var want []storage.Outcome
		add := func(outcome storage.Outcome, e *storage.Entry) { group, want = append(group, e), append(want, outcome) }
		relayed := func(outcome storage.Outcome, e *storage.Entry) {
			e.Relayed = true
			add(outcome, e)
		}
		add(storage.Stored, d(10, hr(1)))
		add(storage.Duplicate, by("g", offset(60, d(10, hr(1)))))
		relayed(storage.Completed, by("g", at(receivedUnixMs+7, d(10, hr(1)))))
		relayed(storage.Completed, offset(60, at(receivedUnixMs+7, d(10, hr(1)))))
		relayed(storage.Duplicate, by("other", offset(120, d(10, hr(1)))))
		relayed(storage.Duplicate, d(10, hr(1)))
		relayed(storage.Conflict, by("g", d(10, hr(2))))
		relayed(storage.Stored, offset(0, d(11, hr(1))))
		relayed(storage.Completed, by("g", d(11, hr(1), spo2(1))))
		guarded := func(outcome storage.Outcome, e *storage.Entry) {
			e.Guard = g
			relayed(outcome, e)
		}
		add(storage.Stored, by("g", d(12, hr(1))))
		guarded(storage.Duplicate, by("g", d(12, hr(1)))) // to name the gateway of the record does not help
		guarded(storage.Conflict, by("g", d(12, hr(2))))
		guarded(storage.Withheld, by("g", d(12, hr(1))))
		guarded(storage.Completed, by("g", d(12, spo2(1)))) // no sign in common: nothing to guess
		if inOneGroup {
			mustAppend(t, s, group...)
		}
		for i, e := range group {
			if !inOneGroup {
				mustAppend(t, s, e)
			}
			wantOutcome(t, e, want[i])
		}
		var got []string
		for _, r := range scanPages(t, s, allOf(device), 10) {
			minutes, known := r.UTCOffset.Minutes()
			got = append(got, fmt.Sprintf("%d %s %d %t %d", r.TimeUnixMs, r.Gateway, minutes, known,
				bits.OnesCount32(r.Values.Present())))
		}
		if text, want := strings.Join(got, ", "), "10 g 60 true 1, 11 g 0 true 2, 12 g 0 false 2"; text != want {
			t.Fatalf("records %s, want %s", text, want)
		}
	}
}
