package pgstore

import (
	"testing"
	"time"
)

// TestGapBesideClocks checks that the time of what is missing is never too short, also if the clock of the server was
// set back, or if the times of marks are the database's.
func TestGapBesideClocks(t *testing.T) {
	const hour = 3_600_000
	for name, c := range map[string]struct {
		ackedMs []int64 // by the clock, of transactions 1, 2, ...
		have    int64   // the last one that is there
		atMs    int64   // the time of its mark
		want    gap
	}{
		"the clock advances": {[]int64{1 * hour, 2 * hour, 3 * hour, 4 * hour}, 2, 2*hour - 1,
			gap{2*hour - 1, 4 * hour}},
		"set back after the mark": {[]int64{8 * hour, 9 * hour, 6 * hour, 7 * hour}, 2, 9*hour - 1,
			gap{6 * hour, 9 * hour}},
		"set back after the first": {[]int64{9 * hour, 6 * hour, 7 * hour}, 0, 0, gap{6 * hour, 9 * hour}},
		"set back between mark and answer": {[]int64{5 * hour, 6 * hour, 7 * hour, 9 * hour}, 2, 8 * hour,
			gap{5 * hour, 9 * hour}},
		"set back long before": {[]int64{3 * hour, 1 * hour, 2 * hour, 4 * hour, 5 * hour, 6 * hour}, 5, 5*hour - 1,
			gap{5*hour - 1, 6 * hour}},
		"the database's time": {[]int64{1 * hour, 2 * hour, 3 * hour}, 1, 99 * hour, gap{1 * hour, 3 * hour}},
	} {
		m := newMarks()
		var ms int64
		m.clock.now = func() time.Time { return time.UnixMilli(ms) }
		for i, ackedMs := range c.ackedMs {
			if ms = ackedMs; int64(i)+1 == c.have {
				ms = c.atMs
			}
			k := m.attempt(mark{slot: 1})
			ms = ackedMs
			m.acknowledge(k, 0)
		}
		if got := m.lacks(&[slots]int64{1: c.have}, &[slots]int64{1: c.atMs}); got != c.want {
			t.Errorf("%s: gap %v, want %v", name, got, c.want)
		}
	}
}
