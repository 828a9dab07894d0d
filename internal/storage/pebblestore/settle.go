package pebblestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/memory"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/vitals"
)

// A settler settles the readings of a group, using the table of devices, the windows and the
// tree, and writes what the group adds into a batch. Only Append uses it.
//
// It reuses its buffers, so that settling does not allocate per reading once they have
// grown.
type settler struct {
	db          *pebble.DB
	table       *memory.Table
	gateways    *dictionary
	maxDevices  int
	maxGateways int
	moving      bool // as in Options

	active *memory.Window // takes what the groups add
	frozen *memory.Window // is being sealed; nil means none

	entries []*storage.Entry // of the group, until it is written
	found   []foundDevice    // by entry

	// records holds the records of the group's readings so far, both new and looked up,
	// with what the group adds to them. index has the positions of the first indexed
	// ones. It is updated only for a reading that is not newer than all others of its
	// device: most groups have none.
	records []groupRecord
	rows    []columns.Row // of the records that are not as an entry's reading
	index   map[recordID]int32
	indexed int

	// marked holds the devices whose records must be written.
	marked []marked

	batch      *pebble.Batch
	key        []byte
	group      layout.Group
	groupBytes int       // of the group that was written last
	order      []ordered // the records that the group adds, by name and time

	// stored looks up late readings. It is opened for the first one of a group and
	// closed at the end of the group, so that it does not keep obsolete files for long.
	stored *pebble.Iterator

	// segment is the last segment that was read for the group, of the device
	// segmentDevice: the first one that does not end before segmentFromMs.
	segment       []columns.Row
	segmentDevice uint32
	segmentFromMs int64

	wearers map[vitals.Name]*storage.Wearers // of the devices about which the group has claims

	// clockUnixMs is the time of the last change. It falls only if the system's clock was set back by more than
	// clockSlack.
	clockUnixMs  int64
	storedUnixMs int64 // the clock as it is stored, or will be when the batch is
	journal      journal

	// Of the entry that is being settled.
	gateway uint32 // number of its gateway
	id      recordID
	record  *groupRecord // that find has returned

	undo *undo // of the unit that is being settled; nil means a reading is settled by itself

	lookups    int64 // number of look-ups for the group
	unreadable error // error of the group's first failed look-up
}

// A recordID identifies a record by its device's number in the table and its time.
type recordID struct {
	device     uint32
	timeUnixMs int64
}

// A groupRecord is a record after the readings of the group settled so far. Most are as the reading of
// their entry, and then have no row: a large group with copies of all values would not stay in the
// processor's cache.
type groupRecord struct {
	recordID
	entry   int32  // index of an entry with this device
	row     int32  // index in settler.rows, or -1
	gateway uint32 // if there is no row
	adds    bool   // the group creates or completes it
}

// A foundDevice is a device that was looked up in the table.
type foundDevice struct {
	hash, number uint32
	known        bool
}

type marked struct {
	device uint32
	entry  int32
}

// maxKept is the largest number of records for which a settler keeps its buffers.
const maxKept = 1 << 16

func newSettler(db *pebble.DB, l *loaded, o *Options) *settler {
	return &settler{
		db:          db,
		table:       l.table,
		gateways:    l.gateways,
		active:      l.window,
		clockUnixMs: l.clockUnixMs,
		journal:     l.journal,

		storedUnixMs: l.clockUnixMs,
		maxDevices:   o.MaxDevices,
		maxGateways:  o.MaxGateways,
		moving:       o.moving,
		index:        map[recordID]int32{},
		batch:        newBatch(db),
		key:          make([]byte, 0, layout.MaxSegmentKeyBytes),
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
	clear(s.wearers)
	s.segment = s.segment[:0]
	if cap(s.records) > maxKept {
		s.records, s.rows, s.marked, s.index, s.indexed = nil, nil, nil, map[recordID]int32{}, 0
		s.found, s.order, s.group = nil, nil, layout.Group{}
		return
	}
	s.records, s.rows, s.marked = s.records[:0], s.rows[:0], s.marked[:0]
	if s.indexed > 0 {
		clear(s.index)
		s.indexed = 0
	}
}

// clockSlack is by how much the system's clock may be set back without the times of changes following it. If they never
// followed, readings would seem to arrive late for as long as the clock was ahead, and alerts, which need young values,
// would not begin.
const clockSlack = 10_000 // ms

// now returns the time of a change for which a caller has read the clock. It is not before that of an earlier change,
// unless the clock was set back by more than clockSlack: then another mark follows in the journal.
func (s *settler) now(unixMs int64) int64 {
	switch {
	case s.moving:
		s.clockUnixMs = max(s.clockUnixMs, unixMs)
		return unixMs
	case unixMs < s.clockUnixMs && s.clockUnixMs-unixMs > clockSlack:
		s.clockUnixMs, s.journal.started = unixMs, false
	default:
		s.clockUnixMs = max(s.clockUnixMs, unixMs)
	}
	return s.clockUnixMs
}

// setClock adds the clock to a batch. What groups have need not be added: they are read at start.
func (s *settler) setClock(b *pebble.Batch) error {
	s.storedUnixMs = s.clockUnixMs
	return b.Set([]byte(layout.ClockKey), binary.BigEndian.AppendUint64(nil, uint64(s.clockUnixMs)), nil)
}

// setTimes gives all entries of a group the same time of receipt, the latest.
func (s *settler) setTimes(group []*storage.Entry) {
	if len(group) == 0 {
		return
	}
	latest := group[0].ReceivedUnixMs
	for _, e := range group {
		latest = max(latest, e.ReceivedUnixMs)
	}
	latest = s.now(latest)
	for _, e := range group {
		if !s.moving {
			e.ReceivedUnixMs = latest
		}
	}
}

// settle sets the outcome of each entry.
func (s *settler) settle(group []*storage.Entry) {
	s.entries = group
	s.setTimes(group)
	s.findDevices(group)
	storage.Settle(group, ledger{s})
	s.closeStored()
}

// closeStored closes the iterator for look-ups. It ignores the error of Close, which the
// last look-up has returned already.
func (s *settler) closeStored() {
	if s.stored != nil {
		_ = s.stored.Close()
		s.stored = nil
	}
}

// findDevices looks up the devices of a group. Each look-up waits for memory; with nothing else
// between them, the processor does several at once.
func (s *settler) findDevices(group []*storage.Entry) {
	s.found = slices.Grow(s.found[:0], len(group))[:len(group)]
	for i, e := range group {
		s.found[i].hash = s.table.Hash(&e.Reading.Device)
	}
	for i, e := range group {
		f := &s.found[i]
		f.number, f.known = s.table.FindHashed(&e.Reading.Device, f.hash)
	}
}

// A ledger is the records and assignments of a settler for storage.Settle.
type ledger struct{ *settler }

// Admit implements [storage.Ledger].
func (s ledger) Admit(i int) storage.Outcome {
	r := s.entries[i].Reading
	number, ok := s.gateways.number(&r.Gateway)
	if !ok {
		if s.gateways.full(s.maxGateways) {
			return storage.TooManyDevices
		}
		number = noGateway
	}
	s.gateway = number
	f := &s.found[i]
	if !f.known { // before the group; perhaps a reading before this one has added it
		f.number, f.known = s.table.FindHashed(&r.Device, f.hash)
	}
	switch {
	case f.known:
	case r.Device.IsAwkward() && !s.moving:
		return storage.AwkwardName
	case s.table.Len() >= s.maxDevices:
		return storage.TooManyDevices
	}
	return 0
}

// Wearers implements [storage.Ledger].
func (s ledger) Wearers(i int) (*storage.Wearers, storage.Outcome) {
	device := &s.entries[i].Reading.Device
	w := s.wearers[*device]
	if w == nil {
		all, err := assign.Of(s.db, device)
		if err != nil {
			return nil, s.noteUnreadable(err)
		}
		if w = storage.NewWearers(all); s.wearers == nil {
			s.wearers = map[vitals.Name]*storage.Wearers{}
		}
		s.wearers[*device] = w
	}
	return w, 0
}

// Find implements [storage.Ledger]. It adds the device to the table: nothing rejects the reading if it is new.
func (s ledger) Find(i int) (have *vitals.Values, others bool, rejected storage.Outcome) {
	r, f := s.entries[i].Reading, &s.found[i]
	number := f.number
	if !f.known {
		// The first device record is written with this group and includes all of its
		// readings.
		number = s.table.AddHashed(&r.Device, f.hash, -1)
		s.marked = append(s.marked, marked{number, int32(i)})
	}
	s.id = recordID{number, r.TimeUnixMs}
	if r.TimeUnixMs > s.table.At(number).NewestUnixMs {
		return nil, false, 0 // no record of this time can exist: no look-up is needed
	}
	m, err := s.find(s.id, r, int32(i))
	if err != nil {
		return nil, false, s.noteUnreadable(err)
	}
	if s.record = m; m == nil {
		return nil, false, 0
	}
	row := s.row(m)
	return &row.Values, row.Shared || row.Gateway != s.gateway, 0
}

// Lacks implements [storage.Ledger].
func (s ledger) Lacks(i int) bool {
	row, r := s.row(s.record), s.entries[i].Reading
	return row.Gateway == 0 && !r.Gateway.IsZero() || row.UTCOffset == 0 && r.UTCOffset != 0
}

// Complete implements [storage.Ledger].
func (s ledger) Complete(i int, values vitals.Values, others bool) {
	r, m := s.entries[i].Reading, s.record
	row := s.row(m)
	if s.undo != nil {
		s.undo.completed = append(s.undo.completed, completedRecord{s.id, m.adds, *row})
	}
	row.Values, row.Shared, m.adds = values, others, true
	// the clock may have been set back
	row.CompletedMs = max(row.CompletedMs, s.entries[i].ReceivedUnixMs-row.ReceivedUnixMs)
	if row.Gateway == 0 {
		row.Gateway = s.gateways.use(&r.Gateway)
	}
	if row.UTCOffset == 0 {
		row.UTCOffset = r.UTCOffset
	}
	s.table.Update(s.id.device, r.TimeUnixMs, s.entries[i].ReceivedUnixMs, &row.Values, row.UTCOffset)
}

// noteUnreadable notes the error of a look-up, and returns the outcome of its reading.
func (s *settler) noteUnreadable(err error) storage.Outcome {
	s.closeStored() // the next look-up uses a new iterator
	if s.unreadable == nil {
		s.unreadable = err
	}
	return storage.Unreadable
}

// noGateway is not the number of a gateway.
const noGateway = 1<<32 - 1

// Store implements [storage.Ledger].
func (s ledger) Store(i int) {
	r, id := s.entries[i].Reading, s.id
	s.records = append(s.records, groupRecord{id, int32(i), -1, s.gateways.use(&r.Gateway), true})
	d := s.table.At(id.device)
	if id.timeUnixMs > d.NewestUnixMs {
		s.table.Active.Moved(d.NewestUnixMs, id.timeUnixMs)
	}
	s.table.Update(id.device, id.timeUnixMs, s.entries[i].ReceivedUnixMs, &r.Values, r.UTCOffset)
}

// find returns the record of id, or nil if there is none. The pointer is valid until the next
// call of Store or find.
func (s *settler) find(id recordID, r *vitals.Reading, entry int32) (*groupRecord, error) {
	for ; s.indexed < len(s.records); s.indexed++ {
		s.index[s.records[s.indexed].recordID] = int32(s.indexed)
	}
	if i, ok := s.index[id]; ok {
		return &s.records[i], nil
	}
	s.lookups++
	row, err := s.lookUp(id, &r.Device)
	if row.Values.IsZero() || err != nil {
		return nil, err
	}
	s.records = append(s.records, groupRecord{recordID: id, entry: entry, row: int32(len(s.rows))})
	s.rows = append(s.rows, row)
	return &s.records[len(s.records)-1], nil
}

// row returns the row of a record, which it makes if there is none. The pointer is valid until the next call of
// row or find.
func (s *settler) row(m *groupRecord) *columns.Row {
	if m.row < 0 {
		var row columns.Row
		s.copyTo(&row, m)
		m.row = int32(len(s.rows))
		s.rows = append(s.rows, row)
	}
	return &s.rows[m.row]
}

// copyTo makes dst the row of a record.
func (s *settler) copyTo(dst *columns.Row, m *groupRecord) {
	if m.row >= 0 {
		dst.CopyFrom(&s.rows[m.row])
		return
	}
	e := s.entries[m.entry]
	r := e.Reading
	dst.TimeUnixMs, dst.ReceivedUnixMs, dst.CompletedMs = r.TimeUnixMs, e.ReceivedUnixMs, 0
	dst.Gateway, dst.UTCOffset, dst.Shared = m.gateway, r.UTCOffset, false
	dst.Values.CopyFrom(&r.Values)
}

// lookUp returns the stored row of id, or one without values if there is none. Places are searched
// in order of precedence.
func (s *settler) lookUp(id recordID, name *vitals.Name) (columns.Row, error) {
	d := s.table.At(id.device)
	if row, ok := s.active.Find(d, id.timeUnixMs); ok {
		return row, nil
	}
	if s.frozen != nil {
		if row, ok := s.frozen.FindNamed(name, id.timeUnixMs); ok {
			return row, nil
		}
	}
	if id.timeUnixMs <= d.SealedUnixMs {
		return s.findStored(id, name)
	}
	return columns.Row{}, nil
}

// findStored looks up a row in the segments.
func (s *settler) findStored(id recordID, name *vitals.Name) (columns.Row, error) {
	if n := len(s.segment); n == 0 || s.segmentDevice != id.device || id.timeUnixMs < s.segmentFromMs ||
		id.timeUnixMs > s.segment[n-1].TimeUnixMs {
		if err := s.readSegment(id, name); err != nil {
			s.segment = s.segment[:0]
			return columns.Row{}, fmt.Errorf("look up reading: %w", err)
		}
	}
	i, ok := seal.Find(s.segment, id.timeUnixMs)
	if !ok {
		return columns.Row{}, nil
	}
	return s.segment[i], nil
}

// readSegment reads the first segment that does not end before id's time.
func (s *settler) readSegment(id recordID, name *vitals.Name) (err error) {
	s.segment = s.segment[:0]
	if s.stored == nil {
		s.stored, err = s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix},
			UpperBound: []byte{layout.SegmentPrefix + 1}})
		if err != nil {
			return damage.Wrap(err)
		}
	}
	s.key = layout.AppendSegmentBound(s.key[:0], name, uint64(id.timeUnixMs))
	if !s.stored.SeekGE(s.key) || !bytes.HasPrefix(s.stored.Key(), s.key[:len(s.key)-8]) {
		return damage.Wrap(s.stored.Error())
	}
	s.segment, err = seal.Decode(s.stored, name, s.segment)
	s.segmentDevice, s.segmentFromMs = id.device, id.timeUnixMs
	return err
}

// write adds what the group adds to the batch. It reports whether that is any reading.
func (s *settler) write(number uint64) (bool, error) {
	defer func() { s.entries = nil }()
	for _, w := range s.wearers {
		err := assign.Write(s.batch, w)
		for now, before := range w.Changes() {
			if e := assignmentEvent(&now, &before); e != nil {
				err = errors.Join(err, s.journal.add(s.batch, s.clockUnixMs, number, e))
			}
		}
		if err != nil {
			return false, fmt.Errorf("fill batch: %w", err)
		}
	}
	if !s.batch.Empty() {
		if err := s.changes(s.batch, number, nil); err != nil {
			return false, fmt.Errorf("fill batch: %w", err)
		}
	}
	name := func(i int32) *vitals.Name { return &s.entries[s.records[i].entry].Reading.Device }
	if s.sort(name); len(s.order) == 0 {
		return false, nil
	}
	s.storedUnixMs = s.clockUnixMs
	if err := s.journal.start(s.batch, s.clockUnixMs, number); err != nil {
		return false, fmt.Errorf("fill batch: %w", err)
	}
	s.group.Reset(len(s.order))
	for i, x := range s.order {
		if i == 0 || s.order[i-1].device != x.device {
			s.group.Begin(name(x.record))
		}
		s.copyTo(s.group.Add(), &s.records[x.record])
	}
	value := s.group.Encode()
	s.groupBytes = len(value)
	if err := s.batch.Set(layout.AppendGroupKey(s.key[:0], number), value, nil); err != nil {
		return false, fmt.Errorf("fill batch: %w", err)
	}
	if err := s.gateways.write(s.batch); err != nil {
		return false, fmt.Errorf("fill batch: %w", err)
	}
	for _, k := range s.marked {
		record := s.table.Record(k.device)
		if err := seal.SetRecord(s.batch, &s.entries[k.entry].Reading.Device, &record); err != nil {
			return false, fmt.Errorf("fill batch: %w", err)
		}
	}
	return true, nil
}

// An ordered record has what its order depends on, so that records, which are long, are not read again. part is a part
// of its device's name as a number, so that few names are compared in full: names often differ only in digits at their
// end.
type ordered struct {
	part       uint64
	timeUnixMs int64
	device     uint32
	record     int32
}

// padded returns a name with the NULs that follow it.
func padded(name *vitals.Name) []byte { return name.Bytes()[:vitals.MaxNameBytes] }

// sort puts the records that the group adds in order.
func (s *settler) sort(name func(record int32) *vitals.Name) {
	s.order = s.order[:0]
	same := vitals.MaxNameBytes - 8 // bytes that all names have in common, as far as that matters
	var first []byte
	for i := range s.records {
		r := &s.records[i]
		if !r.adds {
			continue
		}
		s.order = append(s.order, ordered{timeUnixMs: r.timeUnixMs, device: r.device, record: int32(i)})
		n := len(s.order)
		if n > 1 && s.order[n-2].device == r.device {
			continue
		}
		text := padded(name(int32(i)))
		if n == 1 {
			first = text
		}
		for !bytes.Equal(text[:same], first[:same]) {
			same--
		}
	}
	for i := range s.order {
		x := &s.order[i]
		if i > 0 && s.order[i-1].device == x.device {
			x.part = s.order[i-1].part
			continue
		}
		x.part = binary.BigEndian.Uint64(padded(name(x.record))[same:])
	}
	slices.SortFunc(s.order, func(x, y ordered) int {
		switch {
		case x.part != y.part:
			return cmp.Compare(x.part, y.part)
		case x.device != y.device:
			return name(x.record).Compare(name(y.record))
		}
		return cmp.Compare(x.timeUnixMs, y.timeUnixMs)
	})
}

// fill adds the rows of the group that write has added to the active window.
func (s *settler) fill() {
	w := s.active
	w.Lock()
	defer w.Unlock()
	w.GroupBytes += int64(s.groupBytes)
	at := 0
	for i := range s.group.Runs {
		run, device := &s.group.Runs[i], s.order[at].device
		d := s.table.At(device)
		for range run.Rows {
			w.Add(d, device, &run.Device, &s.group.Rows[at])
			at++
		}
	}
}
