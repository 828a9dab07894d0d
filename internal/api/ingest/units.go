package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	newest                 map[vitals.Name]int64 // -1: no records
	late                   []unitKey             // of the unit, not after the newest record
	found                  []storage.Record
	loaded                 map[unitKey]vitals.Values // stored records of late, and others
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
		newest: map[vitals.Name]int64{}, loaded: map[unitKey]vitals.Values{}, merged: map[unitKey]vitals.Values{}, own: map[unitKey]vitals.Values{},
	}
}

// add registers the units of n entries from i that are about to be submitted, except those of
// one reading.
func (u *units) add(j *Job, i, n int) {
	if !j.hasUnits() {
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
	clear(u.loaded)
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
	if u.load(unit) != nil {
		unit[0].Outcome = storage.Unreadable
		return false
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
			if u.newest[r.Device] < 0 && r.Device.IsAwkward() {
				return storage.AwkwardName, 0
			}
			have = u.loaded[key]
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

// maxLoaded bounds the records that are read at once.
const maxLoaded = 256

// load reads the newest times of a unit's devices, and the records of its readings that are not
// newer. A call of Scan, which may be a query of a database, returns the records of many
// readings; how many it reads follows from how many of the last ones were wanted.
func (u *units) load(unit []*storage.Entry) error {
	u.late = u.late[:0]
	for _, e := range unit {
		newest, err := u.newestOf(e.Reading.Device)
		if err != nil {
			return err
		}
		if e.Reading.TimeUnixMs <= newest {
			u.late = append(u.late, unitKey{e.Reading.Device, e.Reading.TimeUnixMs})
		}
	}
	slices.SortFunc(u.late, func(a, b unitKey) int { return cmp.Or(a.device.Compare(&b.device), cmp.Compare(a.unixMs, b.unixMs)) })
	for rest := u.late; len(rest) > 0; {
		device := rest[0].device
		n := slices.IndexFunc(rest, func(k unitKey) bool { return k.device != device })
		if n < 0 {
			n = len(rest)
		}
		if err := u.loadDevice(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// newestOf returns the time of the newest record of a device, or -1 if it has none.
func (u *units) newestOf(device vitals.Name) (int64, error) {
	newest, ok := u.newest[device]
	if ok {
		return newest, nil
	}
	d, err := u.records.Latest(context.Background(), device)
	switch newest = d.NewestUnixMs; {
	case errors.Is(err, storage.ErrNotFound):
		newest = -1
	case err != nil:
		return 0, err
	}
	u.newest[device] = newest
	return newest, nil
}

// loadDevice reads the records of keys of one device, which are sorted by time.
func (u *units) loadDevice(keys []unitKey) error {
	for size := min(len(keys), maxLoaded); len(keys) > 0; {
		if u.found == nil {
			u.found = make([]storage.Record, maxLoaded)
		}
		r := storage.Range{Device: keys[0].device, FromUnixMs: keys[0].unixMs, ToUnixMs: keys[len(keys)-1].unixMs + 1}
		n, err := u.records.Scan(context.Background(), r, u.found[:size])
		if err != nil {
			return err
		}
		for i := range u.found[:n] {
			u.loaded[unitKey{r.Device, u.found[i].TimeUnixMs}] = u.found[i].Values
		}
		if n < size {
			return nil
		}
		passed := slices.IndexFunc(keys, func(k unitKey) bool { return k.unixMs > u.found[n-1].TimeUnixMs })
		if passed < 0 {
			return nil
		}
		keys, size = keys[passed:], min(2*passed, maxLoaded)
	}
	return nil
}

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

// unitAt returns the number of readings of the unit that begins at entry i.
func (j *Job) unitAt(i int) int {
	switch {
	case j.intake.Whole:
		return len(j.entries) - i
	case !j.intake.Units:
		return 1
	}
	n := 1
	for i+n < len(j.entries) && j.batch.Index[i+n] == j.batch.Index[i] {
		n++
	}
	return n
}

// groupAt returns the number of entries from i that are committed together: as many as one group
// takes, but whole units.
func (j *Job) groupAt(i int) int {
	most := min(len(j.entries)-i, j.core.cfg.MaxGroup)
	if !j.hasUnits() {
		return most
	}
	n := 0
	for n < most {
		unit := j.unitAt(i + n)
		if n > 0 && n+unit > most {
			break
		}
		n += unit
	}
	return n
}
