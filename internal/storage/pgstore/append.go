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
func (s *Store) Append(group []*storage.Entry) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("append group: %w: %w", storage.ErrNotWritten, err)
	}
	defer s.calls.RUnlock()
	for i, e := range group {
		r, wrong := e.Reading, ""
		switch {
		case r.Device.IsZero():
			wrong = "no device"
		case r.Values.IsZero():
			wrong = "no value"
		case r.TimeUnixMs < 0:
			wrong = "a time before 1970"
		default:
			e.Outcome, e.Sign = 0, 0
			continue
		}
		return fmt.Errorf("append group: %w: reading %d has %s", storage.ErrNotWritten, i, wrong)
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

func (s *Store) append(group []*storage.Entry) error {
	t := s.try()
	denied, generation, err := s.resolve(t, group)
	if err != nil {
		return err
	}
	if denied != nil {
		kept := make([]*storage.Entry, 0, len(group))
		for _, e := range group {
			if e.Outcome = denied[e.Reading.Device]; e.Outcome == 0 {
				kept = append(kept, e)
			}
		}
		group = kept
	}
	lanes := min(Lanes, 1+len(group)/laneReadings)
	if lanes == 1 {
		return s.lane(t, group, generation)
	}
	parts := make([][]*storage.Entry, lanes)
	for _, e := range group {
		i := int(laneOf(e) % uint32(lanes))
		parts[i] = append(parts[i], e)
	}
	tries, errs := make([]try, lanes), make([]error, lanes)
	var running sync.WaitGroup
	for i := range parts {
		tries[i] = *t
		running.Go(func() { errs[i] = s.lane(&tries[i], parts[i], generation) })
	}
	running.Wait()
	return joined(tries, errs, parts)
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
