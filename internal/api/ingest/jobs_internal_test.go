package ingest

import (
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// TestJobList checks that a list returns the last job first, and keeps at most its bound of
// capacity, in many small jobs or few large ones.
func TestJobList(t *testing.T) {
	for _, size := range []int{0, 1, decoderCapacity, 100, maxKeptReadings} {
		var l jobList
		counted := max(size, decoderCapacity)
		most := maxKeptCapacity / counted
		var all []*Job
		for range most + 3 {
			j := &Job{ownsDecoder: true, batch: batch{Batch: vitals.Batch{Readings: make([]vitals.Reading, 0, size)}}}
			all = append(all, j)
			l.put(j)
		}
		if len(l.jobs) != most || l.capacity != most*counted {
			t.Errorf("capacity %d each: %d jobs with capacity %d kept, want %d and %d", size, len(l.jobs), l.capacity, most, most*counted)
		}
		for i := most - 1; i >= 0; i-- {
			if l.get() != all[i] {
				t.Fatalf("capacity %d each: job %d was not the next", size, i)
			}
		}
		if l.get() != nil || l.capacity != 0 {
			t.Errorf("capacity %d each: the empty list has capacity %d", size, l.capacity)
		}
	}
}
