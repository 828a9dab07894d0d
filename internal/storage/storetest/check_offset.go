package storetest

import (
	"testing"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// checkOffsets stores readings with offsets from UTC next to readings without.
func checkOffsets(t testing.TB, h Harness) {
	s := mustOpen(t, h.Open)
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
	want := records{}
	settleAll(t, s, want, group...)
	wantAll(t, s, want, 3)
	mustClose(t, s)
	wantAll(t, open(t, h), want, 30)
}

// checkLatestOffsets checks that each latest value has the offset of its own record, which a
// reading of the same time may set after the value was stored.
func checkLatestOffsets(t testing.TB, h Harness) {
	s, model := mustOpen(t, h.Open), records{}
	for _, group := range [][]*storage.Entry{
		{offset(120, entry("a", 10, hr(1), spo2(2))), entry("b", 10, hr(1)), offset(0, entry("c", 10, hr(1)))},
		{offset(60, entry("a", 20, hr(3))), offset(-210, entry("b", 10, spo2(2)))},                                    // sets the offset of a latest value
		{offset(345, entry("a", 20, rhr(4))), offset(60, entry("b", 10, rhr(5))), offset(60, entry("c", 10, rhr(6)))}, // keep the first
		{entry("a", 30, sys(5), dia(6)), offset(60, entry("b", 10, hr(1))), offset(60, entry("b", 10, hr(2)))},        // a duplicate and a conflict
		{offset(vitals.MaxUTCOffsetMinutes, entry("a", 5, hr(7), rhr(8))), entry("c", 11, hr(9))},                     // late; without one again
		{offset(90, entry("a", 30, spo2(9))), offset(vitals.MinUTCOffsetMinutes, entry("c", 12, spo2(9)))},
	} {
		settleAll(t, s, model, group...)
		wantAll(t, s, model, 2)
		s = reopen(t, s, h)
		wantAll(t, s, model, 2)
	}
	mustClose(t, s)
}
