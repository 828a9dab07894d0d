// Package history remembers what a server has acknowledged of late, so that it can be put back into a database that has
// forgotten it.
//
// # Promise
//
// A [History] returns the transactions that were added, in the order of their addition, with exactly the readings that
// they had. When it exceeds its bounds, the oldest go first; [History.Past] has their numbers.
//
// Readings are encoded: those of a transaction with 1,000 readings take about a tenth of what they take otherwise.
//
// # Not here
//
// No decision about what is put back: that is package pgstore's. Without a directory, nothing survives the end of the
// process.
package history

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Slot is one of a server's, which has one transaction at a time.
type Slot struct {
	Server int64
	Slot   int16
}

// A Mark is the number of a transaction. Numbers of a slot rise.
type Mark struct {
	Slot
	Number int64
}

// A Reading is an accepted reading.
type Reading struct {
	vitals.Reading
	ReceivedUnixMs int64
	Relayed        bool // see storage.Entry
}

// An Entry is an acknowledged transaction. It has readings or assignments.
type Entry struct {
	Mark
	Generation int64 // of the database, that the transaction has read
	Epoch      int64 // number of the history of the database
	UnixMs     int64 // when it was acknowledged

	Readings []Reading // those of a device and time in their order

	// first the one that was made or ended, then others of the device, as they were; nil means none
	Assignments  []storage.Assignment
	PreviousToMs int64 // the end that the first one had before; 0 means none
}

// Options configures a History.
type Options struct {
	For      time.Duration // how long entries are kept
	MaxBytes int64         // about how much memory they take
}

// A History is a bounded list of entries. All methods may be called concurrently.
type History struct {
	opt      Options
	encoders sync.Pool // of *encoder

	mu      sync.Mutex // guards the following fields
	kept    []encoded  // oldest first
	bytes   int64      // that they take
	added   int64      // number of entries that were ever added
	gone    map[Slot]int64
	first   map[Slot]int64 // when the first entry was acknowledged, in ms
	last    map[Slot]int64 // number of the last entry
	goneMs  int64          // when the last entry that has gone was acknowledged
	untilMs int64          // when the last entry was acknowledged, or a file of an earlier run was begun
	epoch   int64          // of the last entry
	changes []Change
	damage  []Damage
	signs   []byte     // definitions of signs, which only the store reads
	dir     *directory // nil means none
	server  int64      // of the run that uses dir
}

// An encoded entry is not modified.
type encoded struct {
	entry Entry  // without readings
	rows  []byte // the readings
}

// New returns an empty History.
func New(opt Options) *History {
	return &History{opt: opt, encoders: sync.Pool{New: func() any { return &encoder{} }}, gone: map[Slot]int64{},
		first: map[Slot]int64{}, last: map[Slot]int64{}}
}

// What an entry takes besides its readings and assignments, and an assignment, about.
const (
	entryBytes      = 256
	assignmentBytes = 192
)

func (e *encoded) bytes() int64 {
	return entryBytes + int64(cap(e.rows)+assignmentBytes*len(e.entry.Assignments))
}

// Add adds an entry with readings, which take the fewest bytes when they are sorted by device and time. It does not
// retain them. More entries, of the same transaction, follow without another one between them.
func (h *History) Add(e Entry, readings []*storage.Entry, more ...Entry) {
	added := make([]encoded, 0, 1+len(more))
	w := h.encoders.Get().(*encoder)
	for i := range cap(added) {
		if i > 0 {
			e, readings = more[i-1], nil
		}
		added = append(added, encoded{entry: e, rows: bytes.Clone(w.encode(readings))})
		added[i].entry.Assignments = slices.Clone(e.Assignments)
	}
	h.encoders.Put(w)

	h.mu.Lock()
	for _, e := range added {
		h.add(e)
	}
	h.release(writeWithin)
}

// release unlocks the mutex and, if there is a directory, waits until it has what is new.
func (h *History) release(within time.Duration) {
	d := h.dir
	if d == nil || d.turn == nil {
		h.mu.Unlock()
		return
	}
	request := d.ask()
	h.mu.Unlock()
	d.wait(h, request, within)
}

func (h *History) add(e encoded) {
	h.kept = append(h.kept, e)
	h.bytes += e.bytes()
	h.added++
	if _, known := h.first[e.entry.Slot]; !known {
		h.first[e.entry.Slot] = e.entry.UnixMs
	}
	h.last[e.entry.Slot] = e.entry.Number
	h.untilMs = max(h.untilMs, e.entry.UnixMs)
	h.epoch = max(h.epoch, e.entry.Epoch)
	h.expire(e.entry.UnixMs)
}

// expire removes the entries that exceed the bounds.
func (h *History) expire(nowMs int64) {
	before := nowMs - h.opt.For.Milliseconds()
	for len(h.kept) > 0 && (h.kept[0].entry.UnixMs < before || h.bytes > h.opt.MaxBytes) {
		h.removeFirst()
	}
}

func (h *History) removeFirst() {
	old := &h.kept[0]
	h.gone[old.entry.Slot] = max(h.gone[old.entry.Slot], old.entry.Number)
	h.goneMs = max(h.goneMs, old.entry.UnixMs)
	h.bytes -= old.bytes()
	*old = encoded{}
	h.kept = h.kept[1:]
}

// All returns the entries in the order of their addition. They are new, and belong to the caller.
func (h *History) All() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		h.mu.Lock()
		all := slices.Clone(h.kept)
		h.mu.Unlock()
		for i := range all {
			if e, err := all[i].decode(); !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func (e *encoded) decode() (*Entry, error) {
	entry := e.entry
	entry.Assignments = slices.Clone(entry.Assignments)
	var err error
	if entry.Readings, err = decodeRows(e.rows); err != nil {
		return nil, err
	}
	return &entry, nil
}

// A Past is what a History knows besides its entries, of earlier runs as well. Slots have the numbers of their
// transactions.
type Past struct {
	Gone  map[Slot]int64 // the highest one that the history does not have any more
	First map[Slot]int64 // when the first one was acknowledged, in ms
	Last  map[Slot]int64
	Epoch int64 // of the last entry
	// until when it has what was acknowledged: the time of the last entry, or of a file of an earlier run
	UntilUnixMs int64
	Damage      []Damage // what files of earlier runs could not be read of
}

// Past returns what the history knows besides its entries.
func (h *History) Past() Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Past{maps.Clone(h.gone), maps.Clone(h.first), maps.Clone(h.last), h.epoch, h.untilMs, slices.Clone(h.damage)}
}

// Forget removes all entries, as if they had never been added.
func (h *History) Forget() {
	h.mu.Lock()
	h.kept, h.bytes, h.damage = nil, 0, nil
	clear(h.gone)
	clear(h.first)
	clear(h.last)
	if h.dir != nil {
		h.dir.whole = true
	}
	h.release(wholeWithin)
}

// Stats returns how much memory the entries take, about, and when the first of them was acknowledged; 0 means there is
// none.
func (h *History) Stats() (sizeBytes, fromUnixMs int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) > 0 {
		fromUnixMs = h.kept[0].entry.UnixMs
	}
	return h.bytes, fromUnixMs
}

// Reaches reports whether the history has everything that was acknowledged from a time on, as far as it was added.
func (h *History) Reaches(unixMs int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.goneMs < unixMs
}

// Server returns the identity of this run. It is for a History with a directory.
func (h *History) Server() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server
}

// Changes returns the changes of earlier runs, or those of SetChanges.
func (h *History) Changes() []Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.changes)
}

// SetChanges sets the changes, in their order. Those that are new or have changed are written.
func (h *History) SetChanges(all []Change) {
	h.mu.Lock()
	old := h.changes
	h.changes = slices.Clone(all)
	if h.dir != nil {
		for i := range all {
			if !slices.Contains(old, all[i]) {
				h.dir.changes = append(h.dir.changes, all[i])
			}
		}
	}
	h.release(writeWithin)
}

// Signs returns the definitions of signs of earlier runs, or those of SetSigns.
func (h *History) Signs() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.signs)
}

// SetSigns sets the definitions of signs, in a form that only the caller knows. They must be set before entries with
// such signs are added.
func (h *History) SetSigns(text []byte) {
	h.mu.Lock()
	if h.dir != nil && !bytes.Equal(h.signs, text) {
		h.signs, h.dir.begins = bytes.Clone(text), true
	}
	h.release(writeWithin)
}

// Trouble returns why the directory lacks something of the history, or nil.
func (h *History) Trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == nil {
		return nil
	}
	return h.dir.trouble
}

// replaced returns changes with c, in place of what was known of it before.
func replaced(all []Change, c Change) []Change {
	return append(slices.DeleteFunc(all, func(k Change) bool { return k.ID == c.ID }), c)
}
