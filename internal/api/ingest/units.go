package ingest

import "fmt"

// hasUnits reports whether the job's readings may form units of several readings.
func (j *Job) hasUnits() bool { return j.intake.Units || j.intake.Whole }

// keepUnits drops the readings of units of which a reading was rejected. It reports false if
// a unit is too large to be stored at once.
func (j *Job) keepUnits() bool {
	b := &j.batch
	if j.intake.Whole {
		if len(b.Refused) > 0 {
			b.Readings, b.Index = b.Readings[:0], b.Index[:0]
		}
		if len(b.Readings) > j.core.cfg.MaxGroup {
			j.refusal = refusal{kind: refusedTooLarge, detail: fmt.Sprintf("%d readings at most are stored all or not at all.", j.core.cfg.MaxGroup)}
			return false
		}
		return true
	}
	refused, kept := b.Refused, 0
	for i := range b.Readings {
		index := b.Index[i]
		for len(refused) > 0 && refused[0].Index < int(index) {
			refused = refused[1:]
		}
		if len(refused) > 0 && refused[0].Index == int(index) {
			continue
		}
		if kept < i {
			b.Readings[kept], b.Index[kept] = b.Readings[i], index
		}
		kept++
	}
	b.Readings, b.Index = b.Readings[:kept], b.Index[:kept]
	return true
}

// markUnits sets the units of the entries. The store settles each as a whole.
func (j *Job) markUnits() {
	if j.intake.Whole && len(j.entries) > 0 {
		j.entries[0].Unit = int32(len(j.entries))
		return
	}
	first := 0
	for i := range j.entries {
		if j.batch.Index[i] != j.batch.Index[first] {
			first = i
		}
		j.entries[first].Unit++
	}
}

// groupAt returns the number of entries from i that are committed together: as many as one group
// takes, but whole units.
func (j *Job) groupAt(i int) int {
	most := min(len(j.entries)-i, j.core.cfg.MaxGroup)
	if !j.hasUnits() {
		return most
	}
	n := int(j.entries[i].Unit)
	for n < most && n+int(j.entries[i+n].Unit) <= most {
		n += int(j.entries[i+n].Unit)
	}
	return n
}
