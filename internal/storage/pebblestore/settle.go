package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A settler settles the readings of a group, using the table of devices and the tree, and
// writes what the group adds into a batch. Only Append uses it.
//
// It reuses its buffers, so that settling does not allocate per reading once they have
// grown.
type settler struct {
	db         *pebble.DB
	table      *table
	maxDevices int

	// records holds the records of the group's readings so far, both new and looked up,
	// with what the group adds to them. index has the positions of the first indexed
	// ones. It is updated only for a reading that is not newer than all others of its
	// device: most groups have none.
	records []groupRecord
	index   map[recordID]int32
	indexed int

	// marked holds the devices whose records must be written.
	marked []marked

	batch *pebble.Batch
	key   []byte

	// stored looks up late readings. It is opened for the first one of a group and
	// closed at the end of the group, so that it does not keep obsolete files for long.
	stored *pebble.Iterator

	lookups    int64 // number of look-ups for the group
	unreadable error // error of the group's first failed look-up
}

// A recordID identifies a record by its device's number in the table and its time.
type recordID struct {
	device     uint32
	timeUnixMs int64
}

// A groupRecord is a record after the readings of the group settled so far.
type groupRecord struct {
	reading
	id    recordID
	entry int32 // index of an entry with this device
	adds  bool  // the group creates or completes it
}

type marked struct {
	device uint32
	entry  int32
}

// maxKept is the largest number of records for which a settler keeps its buffers.
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

// closeBatch returns the batch to Pebble's pool. It must not do so twice: the batch may
// then be in use by another store.
func (s *settler) closeBatch() error {
	b := s.batch
	if s.batch = nil; b == nil {
		return nil
	}
	return b.Close()
}

// newBatch returns a batch that keeps a buffer of up to 4 MiB when it is reset.
func newBatch(db *pebble.DB) *pebble.Batch {
	return db.NewBatch(pebble.WithInitialSizeBytes(64<<10), pebble.WithMaxRetainedSizeBytes(4<<20))
}

// reset prepares s for a group.
func (s *settler) reset() {
	s.batch.Reset()
	s.lookups, s.unreadable = 0, nil
	if cap(s.records) > maxKept {
		s.records, s.marked, s.index, s.indexed = nil, nil, map[recordID]int32{}, 0
		return
	}
	s.records, s.marked = s.records[:0], s.marked[:0]
	if s.indexed > 0 {
		clear(s.index)
		s.indexed = 0
	}
}

// settle sets the outcome of each entry and fills the batch. After an error the table has
// changes that are not stored, and s must not be used again.
func (s *settler) settle(group []*storage.Entry) error {
	for i, e := range group {
		s.settleOne(e, int32(i))
	}
	s.closeStored()
	return s.write(group)
}

// closeStored closes the iterator for look-ups. It ignores the error of Close, which the
// last look-up has returned already.
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
		// The first device record is written with this group and includes all of its
		// readings.
		number = s.table.add(&r.Device, device{newestUnixMs: -1, recordedUnixMs: -1})
		s.mark(number, entry)
	}
	d := s.table.at(number)
	id := recordID{number, r.TimeUnixMs}
	if r.TimeUnixMs > d.newestUnixMs {
		// No record of this time can exist: no look-up is needed.
		s.store(e, id, entry)
		return
	}
	m, err := s.find(id, r, entry)
	if err != nil {
		e.Outcome = storage.Unreadable
		s.closeStored() // the next look-up uses a new iterator
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
	if d.update(r.TimeUnixMs, &r.Values) && r.TimeUnixMs <= d.recordedUnixMs {
		s.mark(number, entry)
	}
}

// store settles a reading that is the first of its device and time.
func (s *settler) store(e *storage.Entry, id recordID, entry int32) {
	r := e.Reading
	e.Outcome = storage.Stored
	s.addRecord(groupRecord{
		reading: reading{values: r.Values, receivedUnixMs: e.ReceivedUnixMs, gateway: r.Gateway},
		id:      id,
		entry:   entry,
		adds:    true,
	})
	d := s.table.at(id.device)
	if id.timeUnixMs > d.newestUnixMs {
		s.table.active.moved(d.newestUnixMs, id.timeUnixMs)
	}
	changed := d.update(id.timeUnixMs, &r.Values)
	if id.timeUnixMs <= d.recordedUnixMs {
		// It is not in the tail.
		if changed {
			s.mark(id.device, entry)
		}
		return
	}
	if d.tail++; d.tail >= maxTail {
		s.mark(id.device, entry)
	}
}

// find returns the record of id, from the group or from the tree, or nil if there is none.
// The pointer is valid until the next call of store or find.
func (s *settler) find(id recordID, r *vitals.Reading, entry int32) (*groupRecord, error) {
	for ; s.indexed < len(s.records); s.indexed++ {
		s.index[s.records[s.indexed].id] = int32(s.indexed)
	}
	if i, ok := s.index[id]; ok {
		return &s.records[i], nil
	}
	if s.stored == nil {
		// By default, Pebble does not use the filters of the lowest level. Here they
		// help: most late readings are not stored yet.
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
	m := groupRecord{id: id, entry: entry}
	if err := decodeReading(value, &m.reading); err != nil {
		return nil, fmt.Errorf("look up reading: %w", readingError(&r.Device, r.TimeUnixMs, err))
	}
	return s.addRecord(m), nil
}

func (s *settler) addRecord(m groupRecord) *groupRecord {
	s.records = append(s.records, m)
	return &s.records[len(s.records)-1]
}

// mark makes write write the device's record.
func (s *settler) mark(number uint32, entry int32) {
	d := s.table.at(number)
	if d.marked {
		return
	}
	d.marked = true
	s.marked = append(s.marked, marked{number, entry})
}

// write adds the records that the group creates or completes, and the marked device
// records, to the batch. The encoders write into space that the batch has reserved.
func (s *settler) write(group []*storage.Entry) error {
	for i := range s.records {
		m := &s.records[i]
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

// merge settles the values of a reading, part, given those of the stored record, have.
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
