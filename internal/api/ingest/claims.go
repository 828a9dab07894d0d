package ingest

import (
	"context"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Claims
//
// Most messages name the patient to whom the device is already assigned. So the first commit stores the readings that
// change no assignment. The changes that the others need are recorded, with one call for the message, and only then
// are these readings committed: no assignment exists without a record.

// commitClaims records the changes of assignments that the rejected readings need, and commits these readings again.
func (j *Job) commitClaims(ctx context.Context) {
	c, in := j.core, &j.batch.intake
	var changes []storage.Assignment // of each device the earliest, and those of a millisecond
	lasting := map[vitals.Name]int{} // the indexes of the former
	of := map[*storage.Entry]int{}   // the change that each entry needs
	for i := range j.entries {
		e := &j.entries[i]
		if e.Outcome != storage.Unrecorded {
			continue
		}
		r := e.Reading
		n, known := lasting[r.Device]
		if e.Momentary || !known {
			n = len(changes)
			changes = append(changes, storage.Assignment{
				Device: r.Device, Subject: in.Claim.Subject, FromUnixMs: r.TimeUnixMs, ToUnixMs: storage.OpenEnd,
				By: storage.ByHL7,
			})
		}
		if of[e] = n; e.Momentary {
			changes[n].ToUnixMs = r.TimeUnixMs + 1
			continue
		}
		lasting[r.Device] = n
		changes[n].FromUnixMs = min(changes[n].FromUnixMs, r.TimeUnixMs)
	}
	if in.Record != nil && len(changes) > 0 {
		changes = changes[:in.Record(ctx, changes, false)]
	}
	var again []*storage.Entry
	for i := range j.entries {
		if e := &j.entries[i]; e.Outcome == storage.Unrecorded && of[e] < len(changes) {
			e.Recorded = true
			again = append(again, e)
		}
	}
	made := make([]bool, len(changes)) // or perhaps made
	for part := range slices.Chunk(again, c.cfg.MaxGroup) {
		flush, err := c.committer.Commit(ctx, part)
		if j.trace.flushed(flush, len(part)); err != nil {
			if j.refuse(err, true); j.lost {
				return
			}
			break
		}
		for _, e := range part {
			made[of[e]] = made[of[e]] || e.Outcome <= storage.Duplicate
		}
	}
	failed := changes[:0]
	for i, a := range changes {
		if !made[i] {
			failed = append(failed, a)
		}
	}
	if in.Record != nil && len(failed) > 0 {
		in.Record(ctx, failed, true)
	}
}
