// Package seal writes the readings of a window to segments, and merges small segments into larger ones.
//
// # Promise
//
// When [Sealer.Run] returns nil, each row is in a segment that was read back through the tree and is what
// was written, or it is in Carried because the segment to which it belongs cannot be read. Segments of a
// device do not overlap. After an interruption between two batches, sealing the same rows again changes
// nothing where they are in segments already.
//
// # How rows are sealed
//
// Device by device, in the order of names, rows are encoded, and added to a batch with the device's record.
// A batch that has grown to 256 KiB is published. At the end, all segments are read back and compared.
//
// Rows after the last segment of their device make new segments. Any other row is late: it is
// merged into the segment that has its time, or into the next later one if none has. A
// segment that would have more than segmentRows readings is split.
//
// A device that rarely sends has few rows in a window, and so small segments, which have fewer
// than half of segmentRows readings. They are merged like the runs of a log-structured merge
// tree: from the newest one back, a segment takes part if it has at most twice as many readings
// as those after it. The segments that take part are merged once they make a segment that is not
// small, or once there are mergeAt of them. So a reading of a device with 50 readings in each window is rewritten
// once. The device's record has the sizes of its last segments, as far as they are small, so
// no segment is read to find them.
//
// If a segment cannot be read, it is not merged.
//
// # Not here
//
// Which window is sealed and when, groups, locks, and what happens to rows that stay: package pebblestore.
// No files.
package seal
