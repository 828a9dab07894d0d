package pebblestore

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// # How much space must stay free
//
// A compaction writes new tables before it removes the old ones. Where it finds no
// room it fails and is tried again for ever, and nothing makes room any more. So the
// low-water mark is never below what the store itself may still write after the last
// group that it takes:
//
//   - the memtables, of which there may be two, as tables,
//   - the logs behind them, which are made a tenth larger than a memtable,
//   - the largest compaction there may be,
//   - and some for manifests and small files.
//
// A compaction of level 0 takes at most all of it, and of the level below. One of
// another level begins with one table, and takes what that overlaps in the level below.
// Pebble makes it larger than that only where it stays below half of the free space
// (expandedCompactionByteSizeLimit in its compaction.go), which at the mark is half of
// the mark. It runs one at a time.
//
// Invariant: the mark is at least this; TestRoom compares it with compactions as they
// come, TestDiskFull fills real disks.
const smallFilesBytes = 16 << 20

// roomBytes returns what the store may still write without a further group.
func (s *Store) roomBytes() (uint64, error) {
	v, err := s.views.acquire() // keeps the tree open
	if err != nil {
		return 0, err
	}
	defer s.views.release(v)
	levels, err := s.db.SSTables()
	if err != nil {
		return 0, err
	}
	memTable := uint64(s.options.MemTableBytes)
	return 2*memTable + 2*(memTable+memTable/10) + largestCompaction(levels) + smallFilesBytes, nil
}

// largestCompaction returns how many bytes the largest compaction of a tree reads,
// which is more than it writes.
func largestCompaction(levels [][]pebble.SSTableInfo) uint64 {
	sizeOf := func(tables []pebble.SSTableInfo) (n uint64) {
		for i := range tables {
			n += tables[i].Size
		}
		return n
	}
	most := uint64(0)
	if len(levels[0]) > 0 {
		most = sizeOf(levels[0])
		for _, level := range levels[1:] {
			if len(level) > 0 {
				most += sizeOf(level)
				break
			}
		}
	}
	for l := 1; l < len(levels); l++ {
		var below []pebble.SSTableInfo // none of the last level
		if l+1 < len(levels) {
			below = levels[l+1]
		}
		// Tables of a level are in the order of their keys and share none.
		first, end, overlap := 0, 0, uint64(0)
		for i := range levels[l] {
			table := &levels[l][i]
			for ; end < len(below) && bytes.Compare(below[end].Smallest.UserKey, table.Largest.UserKey) <= 0; end++ {
				overlap += below[end].Size
			}
			for ; first < end && bytes.Compare(below[first].Largest.UserKey, table.Smallest.UserKey) < 0; first++ {
				overlap -= below[first].Size
			}
			most = max(most, table.Size+overlap)
		}
	}
	return most
}

// roomToErase returns how many bytes the tables have that hold keys of the ranges of a
// device: as much as their compaction takes.
func (s *Store) roomToErase(ranges [2]keyRange) (n uint64, err error) {
	for _, r := range ranges {
		levels, err := s.db.SSTables(pebble.WithKeyRangeFilter(r.before, r.behind))
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
