// Package history remembers what a server has acknowledged of late, so that it can be put back into a database that has forgotten it.
//
// # Promise
//
// A [History] returns the transactions that were added, in the order of their addition, with exactly the readings that they had. When it exceeds its
// bounds, the oldest go first; [History.Gone] has their numbers.
//
// Readings are encoded: those of a transaction with 1,000 readings take about a tenth of what they take otherwise.
//
// # Not here
//
// No decision about what is put back: that is package pgstore's. Without a directory, nothing survives the end of the process.
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
}

// An Entry is an acknowledged transaction. It has readings or an assignment.
type Entry struct {
	Mark
	Generation int64 // of the database, that the transaction has read
	Epoch      int64 // number of the history of the database
	UnixMs     int64 // when it was acknowledged

	Readings []Reading // those of a device and time in their order

	Assignment   *storage.Assignment // nil means none
	PreviousToMs int64               // the end that the assignment had before; 0 means none
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
	last    map[Slot]int64 // number of the last entry
	epoch   int64          // of the last entry
	changes []Change
	damage  []Damage
	signs   []byte     // definitions of signs, which only the store reads
	dir     *directory // nil means none
	server  int64      // of the run that uses dir
	buf     []byte     // a frame
}

// An encoded entry is not modified.
type encoded struct {
	entry Entry  // without readings
	rows  []byte // the readings
}

// New returns an empty History.
func New(opt Options) *History {
	return &History{opt: opt, encoders: sync.Pool{New: func() any { return &encoder{} }}, gone: map[Slot]int64{}, last: map[Slot]int64{}}
}

// entryBytes is what an entry takes besides its readings, about.
const entryBytes = 256

func (e *encoded) bytes() int64 { return entryBytes + int64(cap(e.rows)) }

// Add adds an entry with readings, sorted by device and time; those of one device and time are in their order. It does not retain them.
func (h *History) Add(e Entry, readings []*storage.Entry) {
	added := encoded{entry: e}
	if e.Assignment != nil {
		a := *e.Assignment
		added.entry.Assignment = &a
	}
	w := h.encoders.Get().(*encoder)
	added.rows = bytes.Clone(w.encode(readings))
	h.encoders.Put(w)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(added)
	if h.dir != nil {
		h.dir.write(h, func(b []byte) []byte { return appendEntry(b, &added) })
	}
}

func (h *History) add(e encoded) {
	h.kept = append(h.kept, e)
	h.bytes += e.bytes()
	h.added++
	h.last[e.entry.Slot] = e.entry.Number
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
	if entry.Assignment != nil {
		a := *entry.Assignment
		entry.Assignment = &a
	}
	var err error
	if entry.Readings, err = decodeRows(e.rows); err != nil {
		return nil, err
	}
	return &entry, nil
}

// Gone returns the highest number of each slot that the history does not have any more.
func (h *History) Gone() map[Slot]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.gone)
}

// Forget removes all entries, as if they had never been added.
func (h *History) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept, h.bytes, h.damage = nil, 0, nil
	clear(h.gone)
	clear(h.last)
	if h.dir != nil {
		if err := h.dir.begin(h, true); err != nil {
			h.dir.fail(err)
		}
	}
}

// Stats returns how much memory the entries take, about, and when the first of them was acknowledged; 0 means there is none.
func (h *History) Stats() (sizeBytes, fromUnixMs int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.kept) > 0 {
		fromUnixMs = h.kept[0].entry.UnixMs
	}
	return h.bytes, fromUnixMs
}

// Server returns the identity of this run. It is for a History with a directory.
func (h *History) Server() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server
}

// Last returns the number of the last entry of each slot, of earlier runs as well.
func (h *History) Last() map[Slot]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.last)
}

// Epoch returns the epoch of the last entry.
func (h *History) Epoch() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

// Damage returns what files of earlier runs could not be read of.
func (h *History) Damage() []Damage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.damage)
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
	defer h.mu.Unlock()
	old := h.changes
	h.changes = slices.Clone(all)
	if h.dir == nil {
		return
	}
	for i := range all {
		if !slices.Contains(old, all[i]) {
			h.dir.write(h, func(b []byte) []byte { return appendChange(append(b, changeFrame), &all[i]) })
		}
	}
}

// Signs returns the definitions of signs of earlier runs, or those of SetSigns.
func (h *History) Signs() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.signs)
}

// SetSigns sets the definitions of signs, in a form that only the caller knows. They must be set before entries with such signs are added.
func (h *History) SetSigns(text []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dir == nil || bytes.Equal(h.signs, text) {
		return nil
	}
	h.signs = bytes.Clone(text)
	return h.dir.begin(h, false)
}

// replaced returns changes with c, in place of what was known of it before.
func replaced(all []Change, c Change) []Change {
	return append(slices.DeleteFunc(all, func(k Change) bool { return k.ID == c.ID }), c)
}
