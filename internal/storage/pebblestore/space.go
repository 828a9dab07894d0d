package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
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

// checkSpace returns an error that wraps storage.ErrDiskLow if there is not enough space to rewrite the tables
// that have keys in ranges.
func (s *Store) checkSpace(ranges []purge.Range) error {
	free := s.disk.FreeBytes()
	if free == 0 { // unknown
		return nil
	}
	need := 2*uint64(s.options.MemTableBytes) + space.SmallFilesBytes
	for _, r := range ranges {
		levels, err := s.db.SSTables(pebble.WithKeyRangeFilter(r.Before, r.After))
		if err != nil {
			return corrupt(err)
		}
		for _, level := range levels {
			for i := range level {
				need += level[i].Size
			}
		}
	}
	if free < need {
		return fmt.Errorf("%w: %d bytes are free, and the erasure may take %d", storage.ErrDiskLow, free, need)
	}
	return nil
}
