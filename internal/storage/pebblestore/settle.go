package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A settler settles the readings of a group against the table and the tree, and
// writes what the group adds into a batch. It belongs to Append.
//
// It keeps its buffers from group to group, so that settling allocates nothing per
// reading once they have grown.
type settler struct {
	db         *pebble.DB
	table      *table
	maxDevices int

	// met holds the records that the group has met so far, with what it adds to
	// them: those that it brings and those that were looked up. index finds the
	// first indexed of them. It is made up to date by the first reading of a group
	// that is not newer than all others of its device: most groups have none.
	met     []met
	index   map[recordID]int32
	indexed int

	// marked holds the devices whose record is to be written.
	marked []marked

	batch *pebble.Batch
	key   []byte

	// stored looks up late readings. It is opened by the first of a group and
	// closed behind its last, so that it never holds files for long.
	stored *pebble.Iterator

	lookups    int64 // of the group
	unreadable error // of the group's first look-up that failed
}

// A recordID is device and time of a record, with the device's number in the table.
type recordID struct {
	device     uint32
	timeUnixMs int64
}

// A met is a record as the group leaves it.
type met struct {
	reading
	id    recordID
	entry int32 // an entry of the group with this device
	adds  bool  // the group adds to what is stored
}

type marked struct {
	device uint32
	entry  int32
}

// maxKept is the number of readings up to which a settler keeps its buffers. A
// group beyond it pays for its own.
const maxKept = 1 << 16

func newSettler(db *pebble.DB, t *table, maxDevices int) *settler {
	return &settler{
		db:         db,
		table:      t,
		maxDevices: maxDevices,
		index:      map[recordID]int32{},
		batch:      newBatch(db),
		key:        make([]byte, 0, maxReadingKeyBytes),
	}
}

// closeBatch gives the batch back to Pebble, once: it may be another store's by then.
func (s *settler) closeBatch() error {
	b := s.batch
	if s.batch = nil; b == nil {
		return nil
	}
	return b.Close()
}

// newBatch returns a batch that keeps its buffer when it is reset, up to 4 MiB.
func newBatch(db *pebble.DB) *pebble.Batch {
	return db.NewBatch(pebble.WithInitialSizeBytes(64<<10), pebble.WithMaxRetainedSizeBytes(4<<20))
}

// reset makes s ready for a group.
func (s *settler) reset() {
	s.batch.Reset()
	s.lookups, s.unreadable = 0, nil
	if cap(s.met) > maxKept {
		s.met, s.marked, s.index, s.indexed = nil, nil, map[recordID]int32{}, 0
		return
	}
	s.met, s.marked = s.met[:0], s.marked[:0]
	if s.indexed > 0 {
		clear(s.index)
		s.indexed = 0
	}
}

// settle sets the outcome of each entry and fills the batch. After an error the
// table is ahead of what is stored, and s must not be used again.
func (s *settler) settle(group []*storage.Entry) error {
	for i, e := range group {
		s.settleOne(e, int32(i))
	}
	s.closeStored()
	return s.write(group)
}

// closeStored closes the iterator of look-ups. It returns the error that the last of them
// has returned already.
func (s *settler) closeStored() {
	if s.stored != nil {
		_ = s.stored.Close()
		s.stored = nil
	}
}

func (s *settler) settleOne(e *storage.Entry, entry int32) {
	r := e.Reading
	e.Sign = 0
	number, known := s.table.byName[r.Device]
	if !known {
		if r.Device.IsAwkward() {
			e.Outcome = storage.AwkwardName
			return
		}
		if s.table.len() >= s.maxDevices {
			e.Outcome = storage.TooManyDevices
			return
		}
		// The first record is written with this group, and holds the whole
		// group: until then nothing is recorded.
		number = s.table.add(&r.Device, device{newestUnixMs: -1, recordedUnixMs: -1})
		s.mark(number, entry)
	}
	d := s.table.at(number)
	id := recordID{number, r.TimeUnixMs}
	if r.TimeUnixMs > d.newestUnixMs {
		// Nothing of this time can be there: no look-up.
		s.store(e, id, entry)
		return
	}
	m, err := s.find(id, r, entry)
	if err != nil {
		e.Outcome = storage.Unreadable
		s.closeStored() // the next look-up begins anew
		if s.unreadable == nil {
			s.unreadable = err
		}
		return
	}
	if m == nil {
		s.store(e, id, entry)
		return
	}
	others := m.shared || m.gateway != r.Gateway
	guarded := e.Guard != nil && others && m.values.Present()&r.Values.Present() != 0
	if guarded && !e.Guard.Take() {
		e.Outcome = storage.Withheld
		return
	}
	merged, sign, outcome := merge(&m.values, &r.Values)
	if guarded && outcome != storage.Conflict {
		e.Guard.Return()
	}
	e.Outcome, e.Sign = outcome, sign
	if outcome != storage.Completed {
		return
	}
	m.values, m.shared, m.adds = merged, others, true
	if m.gateway.IsZero() {
		m.gateway = r.Gateway
	}
	if d.note(r.TimeUnixMs, &r.Values) && r.TimeUnixMs <= d.recordedUnixMs {
		s.mark(number, entry)
	}
}

// store takes a reading that is the first of its device and time.
func (s *settler) store(e *storage.Entry, id recordID, entry int32) {
	r := e.Reading
	e.Outcome = storage.Stored
	s.meet(met{
		reading: reading{values: r.Values, receivedUnixMs: e.ReceivedUnixMs, gateway: r.Gateway},
		id:      id,
		entry:   entry,
		adds:    true,
	})
	d := s.table.at(id.device)
	if id.timeUnixMs > d.newestUnixMs {
		s.table.active.moved(d.newestUnixMs, id.timeUnixMs)
	}
	changed := d.note(id.timeUnixMs, &r.Values)
	if id.timeUnixMs <= d.recordedUnixMs {
		// The tail does not show it.
		if changed {
			s.mark(id.device, entry)
		}
		return
	}
	if d.tail++; d.tail >= maxTail {
		s.mark(id.device, entry)
	}
}

// find returns the record of id, from the group or from the tree, or nil when there
// is none. The pointer is valid until the next record is met.
func (s *settler) find(id recordID, r *vitals.Reading, entry int32) (*met, error) {
	for ; s.indexed < len(s.met); s.indexed++ {
		s.index[s.met[s.indexed].id] = int32(s.indexed)
	}
	if i, ok := s.index[id]; ok {
		return &s.met[i], nil
	}
	if s.stored == nil {
		// Filters of the lowest level are left out by default. Here they pay:
		// most late readings are not there.
		it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{readingsStart}, UseL6Filters: true})
		if err != nil {
			return nil, fmt.Errorf("look up reading: %w", corrupt(err))
		}
		s.stored = it
	}
	s.lookups++
	s.key = appendReadingKey(s.key[:0], &r.Device, uint64(r.TimeUnixMs))
	if !s.stored.SeekPrefixGE(s.key) {
		if err := s.stored.Error(); err != nil {
			return nil, fmt.Errorf("look up reading: %w", corrupt(err))
		}
		return nil, nil
	}
	value, err := s.stored.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("look up reading: %w", corrupt(err))
	}
	m := met{id: id, entry: entry}
	if err := decodeReading(value, &m.reading); err != nil {
		return nil, fmt.Errorf("look up reading: %w", readingError(&r.Device, r.TimeUnixMs, err))
	}
	return s.meet(m), nil
}

func (s *settler) meet(m met) *met {
	s.met = append(s.met, m)
	return &s.met[len(s.met)-1]
}

// mark has the device's record written with this group.
func (s *settler) mark(number uint32, entry int32) {
	d := s.table.at(number)
	if d.marked {
		return
	}
	d.marked = true
	s.marked = append(s.marked, marked{number, entry})
}

// write puts the records that the group adds to, and the marked device records,
// into the batch. The encoders fill space that the batch has already made.
func (s *settler) write(group []*storage.Entry) error {
	for i := range s.met {
		m := &s.met[i]
		if !m.adds {
			continue
		}
		name := &group[m.entry].Reading.Device
		op := s.batch.SetDeferred(name.Len()+1+8, readingBytes(&m.reading))
		appendReadingKey(op.Key[:0], name, uint64(m.id.timeUnixMs))
		appendReading(op.Value[:0], &m.reading)
		if err := op.Finish(); err != nil {
			return fmt.Errorf("fill batch: %w", err)
		}
	}
	for _, k := range s.marked {
		d, name := s.table.at(k.device), &group[k.entry].Reading.Device
		d.marked, d.recordedUnixMs, d.tail = false, d.newestUnixMs, 0
		op := s.batch.SetDeferred(1+name.Len(), recordBytes(d))
		appendRecordKey(op.Key[:0], name)
		appendRecord(op.Value[:0], d)
		if err := op.Finish(); err != nil {
			return fmt.Errorf("fill batch: %w", err)
		}
	}
	return nil
}

// merge settles the values of a part against those of the record that is there.
func merge(have, part *vitals.Values) (merged vitals.Values, sign vitals.Sign, outcome storage.Outcome) {
	merged, outcome = *have, storage.Duplicate
	for s := range vitals.Sign(vitals.NumSigns) {
		v, ok := part.Get(s)
		if !ok {
			continue
		}
		old, held := have.Get(s)
		switch {
		case !held:
			merged.Set(s, v)
			outcome = storage.Completed
		case old != v:
			return vitals.Values{}, s, storage.Conflict
		}
	}
	return merged, 0, outcome
}
