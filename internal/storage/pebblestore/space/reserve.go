package space

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"
)

// # How much space must stay free
//
// A compaction writes new tables before it removes the old ones. On a full disk it fails
// and is retried forever, and nothing frees space. So the low-water mark is at least as
// much as the store itself may still write after the last group that it accepts:
//
//   - the memtables as tables; there may be two,
//   - their logs, which are a tenth larger than a memtable,
//   - the largest possible compaction,
//   - the segments of both windows, with the small segments that are merged with them,
//   - and some space for manifests and small files.
//
// A compaction of level 0 reads at most all of that level and the next. One of another
// level begins with one table, and reads the tables that this overlaps in the next level.
// Pebble extends it only up to half of the free space (expandedCompactionByteSizeLimit
// in its compaction.go), which at the mark is half of the mark. Only one compaction runs
// at a time.
//
// Invariant: the mark is at least this sum. TestRoom compares it with actual compactions;
// TestDiskFull fills real disks.

// SmallFilesBytes is the space for manifests and small files.
const SmallFilesBytes = 16 << 20

// Reserve returns how many bytes a store may still write without a further group. levels are the
// tables of its tree, and windowBytes is what the sealing of its windows may write.
func Reserve(levels [][]pebble.SSTableInfo, memTableBytes, windowBytes uint64) uint64 {
	return windowBytes + 2*memTableBytes + 2*(memTableBytes+memTableBytes/10) + largestCompaction(levels) + SmallFilesBytes
}

// largestCompaction returns how many bytes the largest possible compaction of a tree
// reads. It writes fewer.
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
		var below []pebble.SSTableInfo // empty for the last level
		if l+1 < len(levels) {
			below = levels[l+1]
		}
		// Tables of a level are sorted by their keys and do not overlap.
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
