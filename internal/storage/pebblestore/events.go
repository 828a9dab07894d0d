package pebblestore

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// keptEvents is the number of the newest events that are kept.
const keptEvents = 10_000

// A journal adds events. engine.mu guards it.
type journal struct {
	next    uint64 // number of the next event
	started bool   // the store has the event of this start
}

// loadJournal returns the journal of a store.
func loadJournal(r pebble.Reader, problem func(error) error) (journal, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: []byte{layout.EventPrefix}, UpperBound: []byte{layout.EventPrefix + 1}})
	if err != nil {
		return journal{}, damage.Wrap(err)
	}
	last := uint64(0)
	if it.Last() {
		if last, err = layout.DecodeEventKey(it.Key()); err != nil {
			err = problem(fmt.Errorf("%w: key of an event: %w", storage.ErrCorrupt, err))
		}
	}
	if closeErr := damage.Wrap(it.Close()); closeErr != nil {
		err = problem(closeErr)
	}
	return journal{next: last + 1}, err
}

// start adds the event of this start to a batch with a change, unless there is one already. A start that changes
// nothing has none, and can be on a disk without space.
func (j *journal) start(b *pebble.Batch, atUnixMs int64) error {
	if j.started {
		return nil
	}
	var mark [8]byte
	_, _ = rand.Read(mark[:]) // never fails
	e := layout.Event{Kind: layout.EventStart, AtUnixMs: atUnixMs, Mark: binary.BigEndian.Uint64(mark[:])}
	if err := b.Set(layout.AppendEventKey(nil, j.next), layout.AppendEvent(nil, &e), nil); err != nil {
		return err
	}
	if j.next > keptEvents {
		first, end := layout.AppendEventKey(nil, 0), layout.AppendEventKey(nil, j.next-keptEvents+1)
		if err := b.DeleteRange(first, end, nil); err != nil {
			return err
		}
	}
	j.next++
	j.started = true
	return nil
}
