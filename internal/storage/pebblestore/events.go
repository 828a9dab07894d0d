package pebblestore

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// A journal adds events. engine.mu guards it.
type journal struct {
	first   uint64 // number of the first event, or next
	next    uint64 // number of the next event
	started bool   // the store has the event of this start
	keeps   bool   // events other than starts are kept
	starts  []eventStart
	expired []storage.Horizon // never modified, but replaced

	cursorKey []byte // never modified
	keyStored bool   // cursorKey is stored: the event of the first start brings it
}

// An eventStart is what positions from before the event of a start are checked with. Only at a start can events have
// earlier times than those before them, or groups have numbers that were used before: the system's clock was set back,
// or the store has lost what it had.
type eventStart struct {
	number   uint64
	atUnixMs int64
	group    uint64
}

// eventOptions returns the options of an iterator over the events from a number on.
func eventOptions(from uint64) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: layout.AppendEventKey(nil, from), UpperBound: []byte{layout.EventPrefix + 1}}
}

// visitEvents calls visit with the events from a number on, until it returns false.
func visitEvents(r pebble.Reader, from uint64, visit func(number uint64, e *layout.Event) (more bool)) error {
	it, err := r.NewIter(eventOptions(from))
	if err != nil {
		return damage.Wrap(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		number, e, err := decodeEvent(it)
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !visit(number, &e) {
			break
		}
	}
	return damage.Wrap(it.Close())
}

// decodeEvent returns the event at an iterator's position.
func decodeEvent(it *pebble.Iterator) (number uint64, e layout.Event, err error) {
	value, err := it.ValueAndErr()
	if err != nil {
		return 0, e, damage.Wrap(err)
	}
	if number, err = layout.DecodeEventKey(it.Key()); err == nil {
		e, err = layout.DecodeEvent(value)
	}
	if err != nil {
		err = fmt.Errorf("%w: event %d: %w", storage.ErrCorrupt, number, err)
	}
	return number, e, err
}

// lastEvent returns the last event, or the number 0 if there is none.
func lastEvent(r pebble.Reader) (number uint64, e layout.Event, err error) {
	it, err := r.NewIter(eventOptions(0))
	if err != nil {
		return 0, e, damage.Wrap(err)
	}
	if it.Last() {
		number, e, err = decodeEvent(it)
	}
	return number, e, errors.Join(err, damage.Wrap(it.Close()))
}

// loadJournal returns the journal of a store.
func loadJournal(r pebble.Reader, problem func(error) error) (j journal, err error) {
	last, _, err := lastEvent(r)
	if err == nil {
		j.next = last + 1
		j.first = j.next
		err = visitEvents(r, 0, func(number uint64, e *layout.Event) bool {
			j.first = min(j.first, number)
			j.note(number, e)
			return true
		})
	}
	if err == nil {
		err = j.loadCursorKey(r)
	}
	if err != nil {
		err = problem(err)
	}
	return j, err
}

// note notes an event that is read or added. If the clock was set back, readings that were stored before a removal may
// have later times of change than those that follow: none counts as expired, since all consumers begin again.
func (j *journal) note(number uint64, e *layout.Event) {
	switch {
	case e.Kind == layout.EventExpired:
		j.expired = storage.AddHorizon(j.expired, storage.Horizon{BeforeUnixMs: e.ToUnixMs, AtUnixMs: e.AtUnixMs})
	case e.Kind == layout.EventStart && e.Group > 0: // not what is left of another event
		j.starts = append(j.starts, eventStart{number, e.AtUnixMs, e.Group})
		j.expired = slices.Clone(j.expired)
		for i := range j.expired {
			j.expired[i].AtUnixMs = min(j.expired[i].AtUnixMs, e.AtUnixMs-1)
		}
	}
}

// loadCursorKey reads the key of cursors, or makes one if none is stored.
func (j *journal) loadCursorKey(r pebble.Reader) (err error) {
	if j.cursorKey, err = state(r, layout.CursorsKey); err != nil {
		return err
	}
	if j.keyStored = j.cursorKey != nil; !j.keyStored {
		j.cursorKey = make([]byte, storage.CursorKeyBytes)
		_, _ = rand.Read(j.cursorKey) // never fails
	} else if len(j.cursorKey) != storage.CursorKeyBytes {
		return fmt.Errorf("%w: state cursors has %d bytes", storage.ErrCorrupt, len(j.cursorKey))
	}
	return nil
}

// start adds the event of this start to a batch with a change, unless there is one already. A start that changes
// nothing has none, and can be on a disk without space. group is the number of the next group.
//
// If no other events are kept, none from before the start is, so that nobody continues after those that are missing.
func (j *journal) start(b *pebble.Batch, atUnixMs int64, group uint64) error {
	if j.started {
		return nil
	}
	j.started = true
	var err error
	switch first := layout.AppendEventKey(nil, j.first); {
	case j.keeps || j.first == j.next:
	case j.first+1 == j.next: // as with every start: nothing takes its bytes for those of a device
		err = b.Delete(first, nil)
	default:
		err = b.DeleteRange(first, layout.AppendEventKey(nil, j.next), nil)
	}
	if !j.keeps && j.first != j.next { // events may have the names of erased devices: see purge.Remover.Forget
		err = errors.Join(err, b.Set([]byte(layout.ForgetKey), nil, nil))
	}
	if !j.keyStored {
		err = errors.Join(err, b.Set([]byte(layout.CursorsKey), j.cursorKey, nil))
		j.keyStored = true
	}
	if err != nil {
		return err
	}
	if !j.keeps {
		j.first, j.starts = j.next, nil
	}
	return j.set(b, &layout.Event{Kind: layout.EventStart, AtUnixMs: atUnixMs, Group: group})
}

// add adds an event, if it is not nil and events are kept, after that of this start.
func (j *journal) add(b *pebble.Batch, atUnixMs int64, group uint64, e *layout.Event) error {
	if err := j.start(b, atUnixMs, group); err != nil || e == nil || !j.keeps {
		return err
	}
	e.AtUnixMs = atUnixMs
	return j.set(b, e)
}

// set adds an event with the next number and a random mark.
func (j *journal) set(b *pebble.Batch, e *layout.Event) error {
	var mark [8]byte
	_, _ = rand.Read(mark[:]) // never fails
	e.Mark = binary.BigEndian.Uint64(mark[:])
	j.note(j.next, e)
	j.next++
	return b.Set(layout.AppendEventKey(nil, j.next-1), layout.AppendEvent(nil, e), nil)
}

// eventKinds are the kinds of changes by those of events. It is never modified.
var eventKinds = [...]storage.ChangeKind{
	layout.EventAssigned: storage.ChangeAssigned, layout.EventUnassigned: storage.ChangeUnassigned,
	layout.EventErased:  storage.ChangeErased,
	layout.EventExpired: storage.ChangeExpired, layout.EventSign: storage.ChangeSign,
	layout.EventErasedPart: storage.ChangeErased,
}

// changeOf returns an event as a change. It returns false for a start.
func changeOf(number uint64, e *layout.Event) (c storage.Change, ok bool) {
	if e.Kind == layout.EventStart {
		return c, false
	}
	c = storage.Change{Kind: eventKinds[e.Kind], Number: number, Device: e.Device, FromUnixMs: e.FromUnixMs,
		ToUnixMs: e.ToUnixMs, Signs: e.Signs}
	c.Left = e.Kind == layout.EventErasedPart
	for _, s := range e.Spans {
		c.Subjects = append(c.Subjects, storage.Subject(s.Subject))
	}
	if e.Kind == layout.EventAssigned || e.Kind == layout.EventUnassigned {
		c.Subject, c.Subjects = c.Subjects[0], nil
	}
	return c, true
}

// assignmentEvent returns the event of a changed assignment, or nil: see [storage.AssignmentEvent].
func assignmentEvent(now, before *storage.Assignment) *layout.Event {
	c, ok := storage.AssignmentEvent(now, before)
	if !ok {
		return nil
	}
	e := layout.Event{Kind: layout.EventAssigned, Device: c.Device, FromUnixMs: c.FromUnixMs, ToUnixMs: c.ToUnixMs,
		Spans: []layout.Span{{FromUnixMs: c.FromUnixMs, ToUnixMs: c.ToUnixMs, Subject: string(c.Subject)}}}
	if c.Kind == storage.ChangeUnassigned {
		e.Kind = layout.EventUnassigned
	}
	return &e
}

// changes completes a batch that changes something other than readings, with the event that says so. group is the
// number of the next group.
func (s *settler) changes(b *pebble.Batch, group uint64, e *layout.Event) error {
	return errors.Join(s.journal.add(b, s.clockUnixMs, group, e), s.setClock(b))
}
