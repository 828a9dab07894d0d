package ingest

import (
	"testing"

	"github.com/pulsegate/pulsegate/vitals"
)

// A list of jobs gives the last one back first, and keeps no more than its bound,
// whether the jobs are many or large.
func TestJobList(t *testing.T) {
	for _, room := range []int{0, 1, decoderRoom, 100, maxKeptReadings} {
		var l jobList
		counted := max(room, decoderRoom)
		most := maxKeptRoom / counted
		var all []*Job
		for range most + 3 {
			j := &Job{ownsDecoder: true, batch: vitals.Batch{Readings: make([]vitals.Reading, 0, room)}}
			all = append(all, j)
			l.put(j)
		}
		if len(l.jobs) != most || l.room != most*counted {
			t.Errorf("with room for %d each: %d jobs and room for %d kept, want %d and %d", room, len(l.jobs), l.room, most, most*counted)
		}
		for i := most - 1; i >= 0; i-- {
			if l.get() != all[i] {
				t.Fatalf("with room for %d each: job %d was not the next", room, i)
			}
		}
		if l.get() != nil || l.room != 0 {
			t.Errorf("with room for %d each: the empty list has room for %d", room, l.room)
		}
	}
}
