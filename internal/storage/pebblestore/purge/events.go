package purge

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// # Events
//
// An erasure removes the content of earlier events about what it erases, and adds an event, which then is the only
// thing with the name of the device. Forget removes events that are old enough, and proves that their bytes are
// gone as an erasure does. What is left of an event is its mark, which positions name.

// maxEvents is the number of events that are kept, however young they are. Each has about 100 bytes.
const maxEvents = 1 << 20

// eventRange returns the range of all events.
func eventRange() Range {
	events := []byte{layout.EventPrefix}
	return Range{Before: events, Start: events, End: []byte{layout.EventPrefix + 1},
		After: append(layout.AppendEventKey(nil, math.MaxUint64), 0), Live: true}
}

// eachEvent calls visit with the keys and values of all events, until it returns an error.
func eachEvent(r pebble.Reader, visit func(key []byte, e *layout.Event) error) error {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.EventPrefix},
		UpperBound: []byte{layout.EventPrefix + 1}})
	if err != nil {
		return damage.Wrap(err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		e, decodeErr := layout.DecodeEvent(it.Value()) // a damaged one says nothing, and is removed in its time
		if decodeErr != nil {
			e = layout.Event{Kind: layout.EventStart}
		}
		err = visit(it.Key(), &e)
	}
	return errors.Join(err, damage.Wrap(it.Close()))
}

// blank adds the removal of an event's content to a batch. See Range for why its key is deleted first.
func blank(b *pebble.Batch, key []byte, e *layout.Event) error {
	mark := layout.Event{Kind: layout.EventStart, AtUnixMs: e.AtUnixMs, Mark: e.Mark}
	return errors.Join(b.DeleteRange(key, append(bytes.Clone(key), 0), nil),
		b.Set(key, layout.AppendEvent(nil, &mark), nil))
}

// event adds the event of the removal, and removes the content of earlier ones that it makes pointless. The event of an
// erased device also names the subjects whose assignments have ended.
func (r *removal) event(b *pebble.Batch) error {
	in := r.in
	if in.OfValues() {
		return r.eventOfValues(b)
	}
	e := layout.Event{Kind: layout.EventErased, Device: in.Device, ToUnixMs: math.MaxInt64}
	if in.ofAssignment() {
		e.FromUnixMs, e.ToUnixMs = in.FromUnixMs, in.ToUnixMs
		e.Spans = []layout.Span{{FromUnixMs: in.FromUnixMs, ToUnixMs: in.ToUnixMs, Subject: string(in.Subject)}}
	} else {
		all, err := assign.Of(r.st.DB, &in.Device)
		if err != nil {
			return err
		}
		all = storage.Worn(all)
		for i := range all {
			e.Spans = append(e.Spans, layout.Span{FromUnixMs: all[i].FromUnixMs, ToUnixMs: all[i].ToUnixMs,
				Subject: string(all[i].Subject)})
		}
	}
	err := eachEvent(r.st.DB, func(key []byte, old *layout.Event) error {
		if in.covers(old) {
			for _, s := range old.Spans { // who has not seen that one learns it from this event, without its times
				if !slices.ContainsFunc(e.Spans, func(x layout.Span) bool { return x.Subject == s.Subject }) {
					e.Spans = append(e.Spans, layout.Span{ToUnixMs: math.MaxInt64, Subject: s.Subject})
				}
			}
			return blank(b, key, old)
		}
		pointless := old.Device == e.Device && (old.Kind == layout.EventAssigned || old.Kind == layout.EventUnassigned)
		if in.ofAssignment() { // what ended beyond it has still ended, and what began before it was another one
			pointless = pointless && old.Kind == layout.EventAssigned && old.Spans[0].Subject == string(in.Subject) &&
				e.FromUnixMs <= old.FromUnixMs && old.FromUnixMs < e.ToUnixMs
		}
		if !pointless {
			return nil
		}
		named := func(s layout.Span) bool { return s.Subject == old.Spans[0].Subject }
		if !in.ofAssignment() && old.Kind == layout.EventUnassigned && !slices.ContainsFunc(e.Spans, named) {
			e.Spans = append(e.Spans, old.Spans[0]) // who has not seen the end learns it from this event
		}
		return blank(b, key, old)
	})
	if err != nil {
		return err
	}
	return r.st.Changed(b, &e)
}

// covers reports whether an erasure of a device or an assignment also erases what an earlier event of an erasure says:
// its times, and signs. That of an assignment keeps one that names another subject.
func (in *Intent) covers(old *layout.Event) bool {
	erased := old.Kind == layout.EventErasedPart ||
		old.Kind == layout.EventErased && (old.FromUnixMs != 0 || old.ToUnixMs != math.MaxInt64 || old.Signs != 0)
	if old.Device != in.Device || !erased {
		return false
	}
	if !in.ofAssignment() {
		return true
	}
	others := slices.ContainsFunc(old.Spans, func(s layout.Span) bool { return s.Subject != string(in.Subject) })
	return !others && len(old.Spans) > 0 && in.FromUnixMs <= old.FromUnixMs && old.ToUnixMs <= in.ToUnixMs
}

// eventOfValues adds the event of an erasure of values, if it has removed some. Assignments stay, and so do their
// events.
func (r *removal) eventOfValues(b *pebble.Batch) error {
	if r.readings == 0 && r.stripped == 0 && r.unread == nil {
		return nil
	}
	all, err := assign.Of(r.st.DB, &r.in.Device)
	if err != nil {
		return err
	}
	x := storage.ErasedEvent(&r.in.Erasure, all)
	e := layout.Event{Kind: layout.EventErased, Device: x.Device, FromUnixMs: x.FromUnixMs, ToUnixMs: x.ToUnixMs,
		Signs: x.Signs}
	if x.Left {
		e.Kind = layout.EventErasedPart
	}
	for _, s := range x.Subjects {
		e.Spans = append(e.Spans, layout.Span{FromUnixMs: x.FromUnixMs, ToUnixMs: x.ToUnixMs, Subject: string(s)})
	}
	return r.st.Changed(b, &e)
}

// Forget removes the events that are older than EventsKeep, but for the mark of the last one, and proves that bytes of
// erased devices are gone. An erasure must not run at the same time.
func (m *Remover) Forget(now time.Time) error {
	var due bool
	err := m.Tree.Lock(func(st *State) (err error) {
		due, err = forget(st, now.Add(-m.EventsKeep).UnixMilli())
		return err
	})
	if err != nil || !due {
		return err
	}
	tables := &Tables{Dir: m.Dir, Reader: m.Reader}
	if err := m.Tree.Lock(func(st *State) error { tables.DB = st.DB; return nil }); err != nil {
		return err
	}
	if err := m.prove(tables, []Range{eventRange()}, func() error { return nil }); err != nil {
		return err
	}
	return m.Tree.Lock(func(st *State) error {
		b := st.DB.NewBatch()
		if err := b.Delete([]byte(layout.ForgetKey), nil); err != nil {
			return errors.Join(err, b.Close())
		}
		return st.Commit(b)
	})
}

// forget removes the events from before a time, and reports whether their bytes must be removed from tables.
func forget(st *State, beforeUnixMs int64) (due bool, err error) {
	_, closer, err := st.DB.Get([]byte(layout.ForgetKey))
	if due = err == nil; due { // an earlier call was not finished
		err = closer.Close()
	}
	if err != nil && !errors.Is(err, pebble.ErrNotFound) {
		return due, damage.Wrap(err)
	}
	left := -maxEvents // events beyond the bound
	if err := eachEvent(st.DB, func([]byte, *layout.Event) error { left++; return nil }); err != nil {
		return due, err
	}
	var last []byte // the last event that is removed
	var lastEvent layout.Event
	removed, named := 0, false
	err = eachEvent(st.DB, func(key []byte, e *layout.Event) error {
		if e.AtUnixMs < beforeUnixMs || removed < left {
			last, lastEvent = append(last[:0], key...), *e
			removed++
			named = named || e.Kind == layout.EventErased || e.Kind == layout.EventErasedPart
		}
		return nil
	})
	if err != nil || removed == 0 || removed == 1 && lastEvent.Kind == layout.EventStart {
		return due, err
	}
	b := st.DB.NewBatch()
	err = b.DeleteRange([]byte{layout.EventPrefix}, last, nil)
	if err == nil && lastEvent.Kind != layout.EventStart {
		err = blank(b, last, &lastEvent)
	}
	if err == nil { // who reads the store from now on has a later time than what is no longer known
		err = st.Pass(b, lastEvent.AtUnixMs)
	}
	if err == nil && named {
		due, err = true, b.Set([]byte(layout.ForgetKey), nil, nil)
	}
	if err != nil {
		return due, errors.Join(err, b.Close())
	}
	if err := st.Commit(b); err != nil {
		return due, err
	}
	return due, nil
}
