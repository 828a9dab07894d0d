package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// sweepGateways removes the names of gateways that no reading names any more. candidates are
// those that may be so; nil means all. Those of s.sweepOf are added to them. It reads all segments, but stops as soon as it has found
// a reading of each candidate. Only one sweep may run.
//
// Expire stores layout.SweepKey with the removal of readings, and the sweep deletes it, so that a sweep
// that was interrupted is made up for.
//
// A reading that names a candidate may arrive meanwhile: the dictionary records which numbers
// are used.
func (s *Store) sweepGateways(ctx context.Context, candidates map[uint32]bool) error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	s.mu.Lock()
	if err := s.alarm.reportedErr(); err != nil {
		s.mu.Unlock()
		return err
	}
	g := s.gateways
	all := candidates == nil
	if s.sweepDue {
		all = all || s.sweepOf == nil
		if !all {
			maps.Copy(candidates, s.sweepOf)
		}
	}
	if all {
		candidates = map[uint32]bool{}
		for _, number := range g.byName {
			candidates[number] = true
		}
	}
	s.sweepOf = map[uint32]bool{}
	delete(candidates, 0)
	v, err := s.views.acquire()
	if err != nil {
		s.sweepOf = nil
		s.mu.Unlock()
		return err
	}
	g.used = map[uint32]bool{}
	s.mu.Unlock()

	err = v.dropUsed(ctx, s.maintenance.ctx, candidates)
	s.views.release(v)
	if errors.Is(err, storage.ErrCorrupt) {
		s.foundDamage("no names of gateways are removed: readings that may name them are damaged", err)
		clear(candidates)
		err = nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	used := g.used
	g.used = nil
	if err == nil {
		err = s.alarm.reportedErr()
	}
	if err != nil {
		s.sweepOf = nil // try again with all
		return err
	}
	names := g.names()
	b := s.db.NewBatch()
	for number := range candidates {
		name := names.at(number)
		if used[number] || name == nil || g.byName[*name] != number {
			continue
		}
		if err := b.DeleteRange(layout.AppendGatewayKey(nil, number), append(layout.AppendGatewayKey(nil, number), 0), nil); err != nil {
			return joinClose(err, b)
		}
		g.forget(name)
	}
	ends := s.sweepDue && len(s.sweepOf) == 0
	if ends {
		if err := b.Delete([]byte(layout.SweepKey), nil); err != nil {
			return joinClose(err, b)
		}
	}
	if b.Empty() {
		return b.Close()
	}
	if err := s.commitAndPublish(b); err != nil {
		return err
	}
	if ends {
		s.sweepDue = false
	}
	return nil
}

// dropUsed removes from candidates the gateways that readings of v name.
func (v *view) dropUsed(ctx, closing context.Context, candidates map[uint32]bool) error {
	for _, w := range v.windows {
		w.Gateways(func(number uint32) { delete(candidates, number) })
	}
	it, err := v.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		return corrupt(err)
	}
	var gateways []uint32 // buffer
	n := 0
	for ok := it.First(); ok && len(candidates) > 0; ok = it.Next() {
		if n++; n%64 == 0 && ctx.Err() != nil {
			return joinClose(ctx.Err(), it)
		}
		if closing.Err() != nil {
			return joinClose(storage.ErrClosed, it)
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return joinClose(corrupt(err), it)
		}
		h, err := columns.SegmentHeader(value, gateways[:0])
		if err != nil {
			return joinClose(fmt.Errorf("%w: a segment: %w", storage.ErrCorrupt, err), it)
		}
		gateways = h.Gateways
		for _, number := range gateways {
			delete(candidates, number)
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read segments: %w", corrupt(err))
	}
	return nil
}

// sweepIfDue sweeps after Expire has removed readings, perhaps before an interruption.
func (s *Store) sweepIfDue(ctx context.Context) error {
	s.mu.Lock()
	due := s.sweepDue
	s.mu.Unlock()
	if !due {
		return nil
	}
	return s.sweepGateways(ctx, map[uint32]bool{})
}
