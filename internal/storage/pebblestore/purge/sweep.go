package purge

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// # How names of gateways are removed
//
// Each removal of readings stores layout.SweepKey, and records which gateways the readings have named. A sweep
// reads all segments until it has found a reading of each of these, and removes the names of the others. A
// reading that names one of them may arrive during a sweep: the dictionary remembers which are used. After a start,
// the gateways are not known, and all are looked for.

// due adds to a batch that a sweep is due, because of removed readings that have named gateways, or any if
// gateways is nil. Commit must be called next, while nothing else is written.
func (m *Remover) due(b *pebble.Batch, gateways map[uint32]bool) error {
	if err := b.Set([]byte(layout.SweepKey), nil, nil); err != nil {
		return err
	}
	if !m.Due {
		m.Due, m.candidates = true, map[uint32]bool{}
	}
	if gateways == nil {
		m.candidates = nil
	}
	if m.candidates != nil {
		maps.Copy(m.candidates, gateways)
	}
	return nil
}

// Sweep removes the names of gateways that no reading names any more, if a sweep is due.
func (m *Remover) Sweep(ctx context.Context) error {
	m.sweeping.Lock()
	defer m.sweeping.Unlock()
	var candidates map[uint32]bool
	err := m.Tree.Lock(func(st *State) error {
		if !m.Due {
			return nil
		}
		if candidates = m.candidates; candidates == nil {
			candidates = st.Gateways.Numbers()
		}
		m.candidates = map[uint32]bool{} // of further removals
		st.Gateways.Watch()
		return nil
	})
	if err != nil || candidates == nil {
		return err
	}
	delete(candidates, 0)
	err = m.dropUsed(ctx, candidates)
	if errors.Is(err, storage.ErrCorrupt) {
		m.Tree.FoundDamage("no names of gateways are removed: readings that may name them are damaged", err)
		clear(candidates)
		err = nil
	}
	return m.Tree.Lock(func(st *State) error {
		used := st.Gateways.Watched()
		if err != nil {
			m.candidates = nil // look for all of them the next time
			return err
		}
		b := st.DB.NewBatch()
		for number := range candidates {
			if used[number] || !st.Gateways.Forget(number) {
				continue
			}
			key := layout.AppendGatewayKey(nil, number)
			if err := b.DeleteRange(key, append(layout.AppendGatewayKey(nil, number), 0), nil); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		if m.Due = len(m.candidates) > 0 || m.candidates == nil; !m.Due {
			if err := b.Delete([]byte(layout.SweepKey), nil); err != nil {
				return errors.Join(err, b.Close())
			}
		}
		if b.Empty() {
			return b.Close()
		}
		return st.Commit(b)
	})
}

// dropUsed removes from candidates the gateways that readings name.
func (m *Remover) dropUsed(ctx context.Context, candidates map[uint32]bool) error {
	r, windows, release, err := m.Tree.View(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, w := range windows {
		w.Gateways(func(number uint32) { delete(candidates, number) })
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix},
		UpperBound: []byte{layout.SegmentPrefix + 1}})
	if err != nil {
		return damage.Wrap(err)
	}
	var gateways []uint32 // buffer
	for ok := it.First(); ok && len(candidates) > 0; ok = it.Next() {
		if err := m.ended(ctx); err != nil {
			return errors.Join(err, it.Close())
		}
		value, err := it.ValueAndErr()
		if err != nil {
			break // Close returns it
		}
		h, err := columns.SegmentHeader(value, gateways[:0])
		if err != nil {
			return errors.Join(fmt.Errorf("%w: a segment: %w", storage.ErrCorrupt, err), it.Close())
		}
		gateways = h.Gateways
		for _, number := range gateways {
			delete(candidates, number)
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read segments: %w", damage.Wrap(err))
	}
	return nil
}

// ended returns storage.ErrClosed if the store is being closed, or the error of ctx.
func (m *Remover) ended(ctx context.Context) error {
	if m.Closing.Err() != nil {
		return storage.ErrClosed
	}
	return ctx.Err()
}
