package space

import "github.com/cockroachdb/pebble/v2"

// LargestCompaction is largestCompaction.
func LargestCompaction(levels [][]pebble.SSTableInfo) uint64 { return largestCompaction(levels) }
