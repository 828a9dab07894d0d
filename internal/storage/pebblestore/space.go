package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
)

// CheckSpace implements [purge.Tree]. It returns an error that wraps storage.ErrDiskLow if there is not enough
// space to rewrite the tables that have keys in ranges.
func (t tree) CheckSpace(ranges []purge.Range) error {
	free := t.disk.FreeBytes()
	if free == 0 { // unknown
		return nil
	}
	need := 2*uint64(t.options.MemTableBytes) + space.SmallFilesBytes
	for _, r := range ranges {
		levels, err := t.db.SSTables(pebble.WithKeyRangeFilter(r.Before, r.After))
		if err != nil {
			return damage.Wrap(err)
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
