package pebblestore

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
)

// sealedRowBytes is how many bytes the sealing of a row may write to tables.
const sealedRowBytes = 16

// neededBytes returns how many bytes the store may still write without a further group.
func (s *Store) neededBytes() (uint64, error) {
	v, err := s.views.acquire() // keeps the tree open
	if err != nil {
		return 0, err
	}
	defer s.views.release(v)
	levels, err := s.db.SSTables()
	if err != nil {
		return 0, err
	}
	// Both windows may be sealed without a further group.
	sealing := 2 * uint64(s.options.WindowRows) * sealedRowBytes
	return space.Reserve(levels, uint64(s.options.MemTableBytes), sealing), nil
}

// eraseBytes returns the size of the tables that hold keys of the ranges of a device,
// which is the space that their compaction takes.
func (s *Store) eraseBytes(ranges []purge.Range) (n uint64, err error) {
	for _, r := range ranges {
		levels, err := s.db.SSTables(pebble.WithKeyRangeFilter(r.Before, r.After))
		if err != nil {
			return 0, corrupt(err)
		}
		for _, level := range levels {
			for i := range level {
				n += level[i].Size
			}
		}
	}
	return n, nil
}
