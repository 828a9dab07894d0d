package pebblestore

import (
	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A trial settles the readings of a unit without adding anything.
type trial struct {
	*settler
	records                 map[unitKey]trialRecord
	newDevices, newGateways map[vitals.Name]bool
}

// A unitKey identifies a record, perhaps of a device that is not in the table yet.
type unitKey struct {
	device     vitals.Name
	timeUnixMs int64
}

// A trialRecord is a record after the readings of the unit so far.
type trialRecord struct {
	values  vitals.Values
	gateway vitals.Name
	shared  bool
}

// fits reports whether all readings of a unit, which begins at the given entry of the group, would be
// stored, or are stored already. If not, it sets the outcomes of the unit.
func (s *settler) fits(unit []*storage.Entry, entry int32) bool {
	t := trial{s, map[unitKey]trialRecord{}, map[vitals.Name]bool{}, map[vitals.Name]bool{}}
	for _, e := range unit {
		e.Outcome, e.Sign = 0, 0
	}
	for i, e := range unit {
		if e.Outcome, e.Sign = t.reject(e, entry+int32(i)); e.Outcome != 0 {
			return false
		}
	}
	return true
}

// reject returns the outcome with which a reading is rejected, or 0.
func (t *trial) reject(e *storage.Entry, entry int32) (storage.Outcome, vitals.Sign) {
	r := e.Reading
	if _, known := t.gateways.number(&r.Gateway); !known {
		if t.newGateways[r.Gateway] = true; t.gateways.full(t.maxGateways - len(t.newGateways) + 1) {
			return storage.TooManyDevices, 0
		}
	}
	key := unitKey{r.Device, r.TimeUnixMs}
	have, held := t.records[key]
	if !held {
		var outcome storage.Outcome
		if have, held, outcome = t.load(r, entry); outcome != 0 {
			return outcome, 0
		}
	}
	if !held {
		t.records[key] = trialRecord{values: r.Values, gateway: r.Gateway}
		return 0, 0
	}
	others := have.shared || have.gateway != r.Gateway
	guarded := e.Guard != nil && others && have.values.Present()&r.Values.Present() != 0
	if guarded && !e.Guard.Take() {
		return storage.Withheld, 0
	}
	merged, sign, outcome := storage.Merge(&have.values, &r.Values)
	if outcome == storage.Conflict {
		return outcome, sign
	}
	if guarded {
		e.Guard.Return()
	}
	if outcome == storage.Completed {
		have.values, have.shared = merged, others
		if have.gateway.IsZero() {
			have.gateway = r.Gateway
		}
	}
	t.records[key] = have
	return 0, 0
}

// load returns the record of a reading as the group so far leaves it, and whether there is one, or the
// outcome with which the reading is rejected.
func (t *trial) load(r *vitals.Reading, entry int32) (have trialRecord, held bool, outcome storage.Outcome) {
	f := t.found[entry]
	if !f.known {
		f.number, f.known = t.table.FindHashed(&r.Device, f.hash)
	}
	if !f.known {
		if r.Device.IsAwkward() && !t.moving {
			return have, false, storage.AwkwardName
		}
		if t.newDevices[r.Device] = true; t.table.Len()+len(t.newDevices) > t.maxDevices {
			return have, false, storage.TooManyDevices
		}
		return have, false, 0
	}
	if r.TimeUnixMs > t.table.At(f.number).NewestUnixMs {
		return have, false, 0
	}
	id := recordID{f.number, r.TimeUnixMs}
	m, err := t.find(id, r, entry)
	if err != nil {
		return have, false, t.noteUnreadable(err)
	}
	if m == nil {
		if t.missing == nil {
			t.missing = map[recordID]bool{}
		}
		t.missing[id] = true
		return have, false, 0
	}
	row := t.row(m)
	have = trialRecord{values: row.Values, shared: row.Shared}
	if name := t.gateways.names().at(row.Gateway); name != nil {
		have.gateway = *name
	}
	return have, true, 0
}
