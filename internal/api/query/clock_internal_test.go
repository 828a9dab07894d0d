package query

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/pulsegate/pulsegate/vitals"
)

// A clock agrees with AppendTime, whatever time it has shown before.
//
// Seen to fail when the first millisecond of the next day counts to the last day.
func TestClock(t *testing.T) {
	text := ""
	check := func(c *clock, ms int64) {
		t.Helper()
		if got, want := string(c.append([]byte("x"), ms)), "x"+text+string(vitals.AppendTime(nil, ms)); got != want {
			t.Errorf("%d is %q, want %q", ms, got, want)
		}
	}
	for _, ms := range []int64{0, -1, 1, math.MaxInt64, math.MinInt64, vitals.MaxTimeUnixMs, vitals.MaxTimeUnixMs + 1,
		vitals.MinTimeUnixMs, vitals.MinTimeUnixMs - 1} {
		check(new(clock), ms)
	}
	var c clock
	const midnight = 1_795_219_200_000
	for day := range int64(400) {
		for _, ms := range []int64{0, 1, msPerMinute - 1, msPerMinute, msPerDay - msPerMinute - 1, msPerDay - 1} {
			check(&c, midnight+day*msPerDay+ms)
			check(&c, midnight-day*msPerDay+ms)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if rapid.Bool().Draw(t, "another text") {
			text = rapid.SampledFrom([]string{"", "time: "}).Draw(t, "text")
			c.setText([]byte(text))
		}
		ms := rapid.Int64().Draw(t, "ms")
		for _, ms := range append(rapid.SliceOf(rapid.Int64Range(-2*msPerDay, 2*msPerDay)).Draw(t, "times"), ms) {
			check(&c, ms)
		}
	})
}
