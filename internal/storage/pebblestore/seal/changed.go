package seal

import (
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
)

// changedProperty is the name of the property of blocks and tables. It is stored.
const changedProperty = "pulsegate.changed"

// NewChangedCollector returns a collector for Pebble's options, of when the segments of each block and each table were
// last changed, for [ChangedSince]. Pebble gives it only keys, so the key of a segment has that time.
func NewChangedCollector() pebble.BlockPropertyCollector {
	return sstable.NewBlockIntervalCollector(changedProperty, changedMapper{}, nil)
}

// ChangedSince returns a filter for iterators over segments, which skip blocks and tables whose segments were all last
// changed before a time. The caller must leave out the others that were, by their keys: these may have been replaced or
// deleted, if a block was skipped that says so.
func ChangedSince(unixMs int64) pebble.BlockPropertyFilter {
	return sstable.NewBlockIntervalFilter(changedProperty, uint64(max(unixMs, 0)), math.MaxUint64, nil)
}

// A changedMapper maps the key of a segment, also of a deleted one, to the time at which it was last changed.
type changedMapper struct{}

// MapPointKey implements [sstable.IntervalMapper].
func (changedMapper) MapPointKey(key pebble.InternalKey, _ []byte) (sstable.BlockInterval, error) {
	_, _, ms, err := layout.DecodeSegmentKey(key.UserKey)
	if err != nil { // it is no segment
		return sstable.BlockInterval{}, nil
	}
	at := uint64(max(ms, 0))
	return sstable.BlockInterval{Lower: at, Upper: at + 1}, nil
}

// MapRangeKeys implements [sstable.IntervalMapper].
func (changedMapper) MapRangeKeys(sstable.Span) (sstable.BlockInterval, error) {
	return sstable.BlockInterval{}, nil
}
