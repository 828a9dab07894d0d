package ingest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// # Units
//
// The readings of a unit, such as those of a FHIR transaction, are stored all or not at all. A
// store settles each reading by itself, so a unit is compared with the stored records before
// it is appended. The committer's goroutine does that, for nothing else writes to the store
// meanwhile: no other reading of this server can come between the comparison and the write. It
// appends the units of a group before the group's other readings.
//
// What remains: a unit may be stored in part if the store's maximum number of devices is
// reached by one of several new devices in it, or if another server that shares the store
// writes a contradicting value between the comparison and the write.

// Records are the stored records, with which units are compared. Package storage documents
// the methods.
type Records interface {
	Latest(ctx context.Context, device vitals.Name) (storage.Device, error)
	Scan(ctx context.Context, r storage.Range, dst []storage.Record) (int, error)
}

// units holds the units that were submitted to the committer.
type units struct {
	records  Records
	appender Appender
	pending  atomic.Int64 // number of units in lengths

	mu      sync.Mutex
	lengths map[*storage.Entry]int // by first entry; guarded by mu

	// The following are used by the committer's goroutine only.
	kept, others, rejected []*storage.Entry
	newest                 map[vitals.Name]int64     // -1: no records
	merged                 map[unitKey]vitals.Values // records as the accepted units of the group leave them
	own                    map[unitKey]vitals.Values // likewise, with those of the unit itself
}

// A unitKey identifies a record.
type unitKey struct {
	device vitals.Name
	unixMs int64
}

func newUnits(appender Appender, records Records) *units {
	return &units{
		records: records, appender: appender, lengths: map[*storage.Entry]int{},
		newest: map[vitals.Name]int64{}, merged: map[unitKey]vitals.Values{}, own: map[unitKey]vitals.Values{},
	}
}

// add registers the units of n entries from i that are about to be submitted, except those of
// one reading.
func (u *units) add(j *Job, i, n int) {
	if j.session == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for end := i + n; i < end; {
		unit := j.unitAt(i)
		if unit > 1 {
			u.lengths[&j.entries[i]] = unit
			u.pending.Add(1)
		}
		i += unit
	}
}

// take removes the unit that begins with e and returns its length, or 0.
func (u *units) take(e *storage.Entry) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, ok := u.lengths[e]
	if ok {
		delete(u.lengths, e)
		u.pending.Add(-1)
	}
	return n
}

// drop removes the units of entries that were not admitted.
func (u *units) drop(entries []*storage.Entry) {
	if u.pending.Load() == 0 {
		return
	}
	for _, e := range entries {
		u.take(e)
	}
}

// append appends a group. The entries of a unit that does not fit keep the Outcome 0, except
// the first one that is to be rejected.
func (u *units) append(group []*storage.Entry) error {
	if u.pending.Load() == 0 {
		return u.appender.Append(group)
	}
	u.kept, u.others, u.rejected = u.kept[:0], u.others[:0], u.rejected[:0]
	for rest := group; len(rest) > 0; {
		n := u.take(rest[0])
		switch {
		case n == 0:
			n = 1
			u.others = append(u.others, rest[0])
		case u.fits(rest[:n]):
			u.kept = append(u.kept, rest[:n]...)
		default:
			u.rejected = append(u.rejected, rest[:n]...)
		}
		rest = rest[n:]
	}
	n := copy(group, u.kept)
	n += copy(group[n:], u.others)
	copy(group[n:], u.rejected)
	clear(u.newest)
	clear(u.merged)
	clear(u.kept)
	clear(u.others)
	clear(u.rejected)
	if n == 0 {
		return nil
	}
	return u.appender.Append(group[:n])
}

// fits reports whether each reading of a unit would be stored, or is stored already.
func (u *units) fits(unit []*storage.Entry) bool {
	for _, e := range unit {
		e.Outcome, e.Sign = 0, 0
	}
	clear(u.own)
	for _, e := range unit {
		if e.Outcome, e.Sign = u.compare(e); e.Outcome != 0 {
			return false
		}
	}
	for key, values := range u.own {
		u.merged[key] = values
	}
	return true
}

// compare returns the outcome with which e will be rejected, or 0.
func (u *units) compare(e *storage.Entry) (storage.Outcome, vitals.Sign) {
	r := e.Reading
	key := unitKey{r.Device, r.TimeUnixMs}
	have, ok := u.own[key]
	if !ok {
		if have, ok = u.merged[key]; !ok {
			var outcome storage.Outcome
			if have, outcome = u.stored(r); outcome != 0 {
				return outcome, 0
			}
		}
	}
	// The gateways that sent the record's values are not all known here, so the guard
	// decides about each comparison.
	guarded := e.Guard != nil && have.Present()&r.Values.Present() != 0
	if guarded && !e.Guard.Take() {
		return storage.Withheld, 0
	}
	if sign, ok := stateOnce(&have, &r.Values); !ok {
		return storage.Conflict, sign
	}
	if guarded {
		e.Guard.Return()
	}
	u.own[key] = have
	return 0, 0
}

// stored returns the stored values of a reading's device and time.
func (u *units) stored(r *vitals.Reading) (vitals.Values, storage.Outcome) {
	newest, ok := u.newest[r.Device]
	if !ok {
		d, err := u.records.Latest(context.Background(), r.Device)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			d.NewestUnixMs = -1
		case err != nil:
			return vitals.Values{}, storage.Unreadable
		}
		newest = d.NewestUnixMs
		u.newest[r.Device] = newest
	}
	switch {
	case newest < 0 && r.Device.IsAwkward():
		return vitals.Values{}, storage.AwkwardName
	case r.TimeUnixMs > newest:
		return vitals.Values{}, 0
	}
	var record [1]storage.Record
	n, err := u.records.Scan(context.Background(), storage.Range{Device: r.Device, FromUnixMs: r.TimeUnixMs, ToUnixMs: r.TimeUnixMs + 1}, record[:])
	switch {
	case err != nil:
		return vitals.Values{}, storage.Unreadable
	case n == 0:
		return vitals.Values{}, 0
	}
	return record[0].Values, 0
}
