package purge

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// A Range is the range of keys from Start, inclusive, to End, exclusive. Before and After are keys that
// enclose the range and at which nothing is ever stored.
type Range struct {
	Before, Start, End, After []byte

	// Live is true if the range may have keys that are not deleted. Then only range
	// deletions show that it has keys that are.
	Live bool

	Groups bool // it has groups
}

// DeviceRanges returns the ranges of a device's segments and of its record.
func DeviceRanges(device *vitals.Name) []Range {
	segments := layout.AppendSegmentPrefix(nil, device)
	record := layout.AppendRecordKey(nil, device)
	// A key that sorts after all possible previous names and is not a name itself.
	previous := append(slices.Clone(record), 0xff)
	previous[len(record)-1]--
	after := append(slices.Clone(record), 0)
	const negative = "\xff\xff\xff\xff\xff\xff\xff\xff" // as a time
	return []Range{
		{Before: segments, Start: segments, End: layout.AppendSegmentsEnd(nil, device),
			After: append(slices.Clone(segments), negative...)},
		{Before: previous, Start: record, End: after, After: after},
	}
}

// AssignRange returns the range of a device's assignments.
func AssignRange(device *vitals.Name) Range {
	start := layout.AppendAssignPrefix(nil, device)
	end := append(bytes.Clone(start[:len(start)-1]), 1)
	return Range{Before: start, Start: start, End: end, After: binary.BigEndian.AppendUint64(bytes.Clone(start),
		math.MaxUint64)}
}
