package pgstore

import (
	"math/rand/v2"
	"testing"
)

// TestJournal compares a journal with all times that it was told: it is bounded, never later than the
// first transaction that is missing, and precise for the last ones, also while a clock is set back now and then.
func TestJournal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, step := range []int64{1, 300, 2000, 100_000} {
		var j journal
		m := newMarks()
		nowMs, first := int64(1_800_000_000_000), make([]int64, 5000)
		for n := range first {
			nowMs += rng.Int64N(step) + 1
			if n%1000 == 999 {
				nowMs -= 10_000
			}
			first[n] = nowMs
			j.add(int64(n)+1, nowMs)
		}
		if len(j.spans) > maxSpans {
			t.Errorf("step %d: %d spans, want at most %d", step, len(j.spans), maxSpans)
		}
		earliest := first[len(first)-1]
		for n := len(first) - 1; n >= 0; n-- { // n transactions are there
			earliest = min(earliest, first[n])
			fromMs, ok := j.after(int64(n))
			if !ok || fromMs > earliest {
				t.Fatalf("step %d: after(%d) = %d, %t, later than %d", step, n, fromMs, ok, earliest)
			}
			if n > len(first)-100 && fromMs < earliest-spanMs {
				t.Fatalf("step %d: after(%d) = %d, long before %d", step, n, fromMs, earliest)
			}
		}
		if _, ok := j.after(int64(len(first))); ok {
			t.Errorf("step %d: something is missing though all is there", step)
		}

		// The gap is that of all slots that lack something.
		m.acknowledged[1], m.acked[1] = j, int64(len(first))
		m.acknowledge(mark{slot: 2, number: 7}, 1)
		if g := m.lacks(&[slots]int64{0, int64(len(first)), 7}); g != (gap{}) {
			t.Errorf("step %d: gap %v though all is there", step, g)
		}
		if g, want := m.lacks(&[slots]int64{0, 0, 6}), (gap{j.spans[0].fromMs, m.acknowledged[2].lastMs}); g.fromMs != min(want.fromMs, m.acknowledged[2].spans[0].fromMs) || g.toMs != max(want.toMs, j.lastMs) {
			t.Errorf("step %d: gap %v, want %v", step, g, want)
		}
	}
}
