package pgstore

import (
	"fmt"
	"sync"
	"time"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// laneReadings is the number of readings that are worth a lane of their own: fewer in a statement
// cost the server more for each.
const laneReadings = 500

// Append implements [storage.Store]. It may be called concurrently.
//
// It returns nil or an error at the latest when Options.Timeout is over. An error that does not
// wrap storage.ErrNotWritten does not end the store.
func (s *writer) Append(group []*storage.Entry) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	defer s.calls.RUnlock()
	if err := storage.CheckGroup(group, s.signs); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	for _, e := range group {
		e.Outcome, e.Sign = 0, 0
	}
	if len(group) == 0 {
		return nil
	}
	began := time.Now()
	err := s.append(group)
	s.counters.group(time.Since(began), len(group))
	if err != nil {
		return fmt.Errorf("append group: %w", err)
	}
	return nil
}

func (s *writer) append(group []*storage.Entry) error {
	t := s.try()
	if closed := s.partitions.closed(); closed != nil || s.lacking() != 0 {
		group = s.admit(group, isClosed(closed))
	}
	group, generation, err := s.resolve(t, group)
	if err != nil {
		return err
	}
	units, group := ofUnits(group)
	lanes := min(Lanes, 1+len(group)/laneReadings)
	if lanes == 1 && len(units) == 0 {
		return s.lane(t, group, generation)
	}
	parts := make([][]*storage.Entry, lanes, lanes+1)
	for _, e := range group {
		i := int(laneOf(e) % uint32(lanes))
		parts[i] = append(parts[i], e)
	}
	if len(units) > 0 {
		parts = append(parts, units)
	}
	tries, errs := make([]try, len(parts)), make([]error, len(parts))
	var running sync.WaitGroup
	for i := range parts {
		tries[i] = *t
		running.Go(func() {
			errs[i] = s.lane(&tries[i], parts[i], generation)
		})
	}
	running.Wait()
	return joined(tries, errs, parts)
}

// isClosed returns a function that rejects entries whose partition is closed.
func isClosed(closed map[int64]bool) func(*storage.Entry) storage.Outcome {
	return func(e *storage.Entry) storage.Outcome {
		if closed[partitionOf(e.Reading.TimeUnixMs)] {
			return storage.Unavailable
		}
		return 0
	}
}

// admit returns the entries of group without those that reject returns an outcome for, or that have a sign without a
// column, and without the units of such entries.
func (s *writer) admit(group []*storage.Entry, reject func(*storage.Entry) storage.Outcome) []*storage.Entry {
	kept, columns := make([]*storage.Entry, 0, len(group)), s.sql.reading.Load().signs
	for n := 0; len(group) > 0; group = group[n:] {
		n = storage.UnitLen(group)
		var rejected *storage.Entry
		for _, e := range group[:n] {
			e.Outcome, e.Sign = reject(e), 0
			if e.Outcome == 0 && e.Reading.Values.Present()&^columns != 0 {
				e.Outcome = storage.Unavailable
			}
			if rejected != nil {
				e.Outcome = 0
			} else if e.Outcome != 0 {
				rejected = e
			}
		}
		if rejected == nil {
			kept = append(kept, group[:n]...)
		} else if n > 1 || rejected.Outcome == storage.Unavailable || rejected.Outcome == storage.Unreadable {
			s.unswept.Store(true) // devices may have been registered for it
		}
	}
	return kept
}

// laneOf returns a hash of the entry's device.
func laneOf(e *storage.Entry) uint32 {
	h := uint32(2166136261)
	var text [64]byte
	for _, c := range e.Reading.Device.AppendTo(text[:0]) {
		h = (h ^ uint32(c)) * 16777619
	}
	return h ^ h>>15
}

// joined returns the error of a group from those of its lanes. Nothing was written only if
// nothing was written by any.
func joined(tries []try, errs []error, parts [][]*storage.Entry) error {
	var first error
	written := false
	for i, err := range errs {
		switch {
		case err == nil:
			written = written || len(parts[i]) > 0
		case first == nil:
			first = err
		}
		written = written || tries[i].written || tries[i].unknown
	}
	if first != nil && written {
		return fmt.Errorf("outcome unknown: %s", first)
	}
	return first
}
