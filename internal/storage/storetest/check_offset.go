package storetest

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkOffsets stores readings with offsets from UTC next to readings without.
func checkOffsets(t testing.TB, h Harness) {
	s := mustOpen(t, h)
	group := []*storage.Entry{
		entry("a", 1, hr(1)),
		offset(0, entry("a", 2, hr(1))), // differs from none
		offset(vitals.MaxUTCOffsetMinutes, entry("a", 3, hr(1))),
		by("gw", offset(vitals.MinUTCOffsetMinutes, entry("a", 4, hr(1), spo2(2)))),
		entry("a", 5, hr(1)),
		offset(345, entry("b", 1, hr(1))),
		offset(-210, entry("b", 0, hr(1))),
	}
	for i := range int64(200) { // a change of zone, among many readings
		group = append(group, offset(60+60*int(i/100), entry("many", i, hr(1))))
	}
	mustAppend(t, s, group...)
	want := records{}
	for _, e := range group {
		want.settle(e, 0)
	}
	wantAll(t, s, want, 3)
	mustClose(t, s)
	wantAll(t, open(t, h), want, 30)
}

// checkLatestOffsets checks that each latest value has the offset of its own record, which a
// reading of the same time may set after the value was stored.
func checkLatestOffsets(t testing.TB, h Harness) {
	s, model := mustOpen(t, h), records{}
	for _, group := range [][]*storage.Entry{
		{offset(120, entry("a", 10, hr(1), spo2(2))), entry("b", 10, hr(1)), offset(0, entry("c", 10, hr(1)))},
		{offset(60, entry("a", 20, hr(3))), offset(-210, entry("b", 10, spo2(2)))},                                    // sets the offset of a latest value
		{offset(345, entry("a", 20, rhr(4))), offset(60, entry("b", 10, rhr(5))), offset(60, entry("c", 10, rhr(6)))}, // keep the first
		{entry("a", 30, sys(5), dia(6)), offset(60, entry("b", 10, hr(1))), offset(60, entry("b", 10, hr(2)))},        // a duplicate and a conflict
		{offset(vitals.MaxUTCOffsetMinutes, entry("a", 5, hr(7), rhr(8))), entry("c", 11, hr(9))},                     // late; without one again
		{offset(90, entry("a", 30, spo2(9))), offset(vitals.MinUTCOffsetMinutes, entry("c", 12, spo2(9)))},
	} {
		settleAll(t, s, model, group)
		wantAll(t, s, model, 2)
		mustClose(t, s)
		s = mustOpen(t, h)
		wantAll(t, s, model, 2)
	}
	mustClose(t, s)
}

// offsetSequences returns the rules about offsets from UTC by example: they play no part
// in identity and conflict, and a record keeps the first that it is given.
func offsetSequences() []sequence {
	const (
		stored, completed   = storage.Stored, storage.Completed
		duplicate, conflict = storage.Duplicate, storage.Conflict
	)
	d := func(signs ...sign) *storage.Entry { return entry("d", 1, signs...) }
	rec := func(e *storage.Entry) []storage.Record { return []storage.Record{recordOf(e)} }
	return []sequence{
		{"another offset is a duplicate",
			[]step{{offset(60, d(hr(1))), stored}, {offset(120, d(hr(1))), duplicate}, {d(hr(1)), duplicate}},
			rec(offset(60, d(hr(1))))},
		{"another offset does not excuse a contradiction",
			[]step{{offset(60, d(hr(1))), stored}, {offset(120, d(hr(2))), conflict}, {offset(120, d(hr(2), spo2(2))), conflict}},
			rec(offset(60, d(hr(1))))},
		{"a reading with another offset completes",
			[]step{{offset(60, d(hr(1))), stored}, {offset(120, d(spo2(2))), completed}, {d(rhr(3)), completed}},
			rec(offset(60, d(hr(1), spo2(2), rhr(3))))},
		{"an offset is given later",
			[]step{{d(hr(1)), stored}, {offset(-60, d(spo2(2))), completed}, {offset(120, d(rhr(3))), completed}},
			rec(offset(-60, d(hr(1), spo2(2), rhr(3))))},
		{"an offset of zero is an offset",
			[]step{{offset(0, d(hr(1))), stored}, {offset(120, d(spo2(2))), completed}},
			rec(offset(0, d(hr(1), spo2(2))))},
		{"a duplicate does not set the offset",
			[]step{{d(hr(1)), stored}, {offset(60, d(hr(1))), duplicate}},
			rec(d(hr(1)))},
		{"a conflict does not set the offset",
			[]step{{d(hr(1)), stored}, {offset(60, d(hr(2))), conflict}, {offset(120, d(spo2(2))), completed}},
			rec(offset(120, d(hr(1), spo2(2))))},
		{"gateway and offset of different readings",
			[]step{{by("g1", d(hr(1))), stored}, {by("g2", offset(60, d(spo2(2)))), completed}},
			[]storage.Record{shared(by("g1", offset(60, d(hr(1), spo2(2)))))}},
	}
}

// checkOffsetSequences settles each reading in a group of its own.
func checkOffsetSequences(t testing.TB, h Harness) {
	checkEachSequence(t, h, offsetSequences(), settleEach)
}

// checkOffsetSequencesInOneGroup settles each sequence as one group.
func checkOffsetSequencesInOneGroup(t testing.TB, h Harness) {
	checkEachSequence(t, h, offsetSequences(), settleTogether)
}
