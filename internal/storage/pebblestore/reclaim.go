package pebblestore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// # How a quiet store gives space back
//
// What a merged segment, a record or a group replaces or deletes stays in tables until a compaction drops it. Pebble
// compacts when more arrives, so a store would keep it while nothing does. Pebble does not count values that were
// overwritten, so the sealer adds up the bytes that it supersedes, by ranges of device names. Each compaction subtracts
// what it has dropped, also one that Pebble starts.
//
// Once Tidy has merged what there is to merge, and while few readings arrive, it compacts the ranges of which more than
// a tenth is dead, the worst first. A range has at most reclaimBytes, and is compacted level by level. When readings
// arrive, no further level is. What was superseded before a start is not known.
const (
	reclaimBytes = 64 << 20 // that are compacted at once
	reclaimShare = 10       // a range is compacted if more than one tenth of it is dead
	reclaimLeast = 64 << 10 // dead bytes of a range that is compacted
	reclaimWatch = 20 * time.Millisecond

	splitBytes = 1 << 20 // dead bytes at which a range is divided
	maxRanges  = 1024
)

// A dead counts the bytes that were superseded. The zero dead has counted none.
type dead struct {
	mu      sync.Mutex
	ranges  []deadRange // of segments, by name: each ends where the next one begins
	records int64
	groups  int64
}

// A deadRange counts the bytes of segments of the devices from one on.
type deadRange struct {
	from  vitals.Name // the first one has the zero Name
	bytes int64
}

// add adds superseded bytes of a device: of segments and of records.
func (d *dead) add(device *vitals.Name, segments, records int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records += int64(records)
	if segments == 0 {
		return
	}
	if len(d.ranges) == 0 {
		d.ranges = append(d.ranges, deadRange{})
	}
	i, found := slices.BinarySearchFunc(d.ranges, device, func(r deadRange, device *vitals.Name) int {
		return r.from.Compare(device)
	})
	if !found {
		i--
	}
	r := &d.ranges[i]
	r.bytes += int64(segments)
	if r.bytes >= splitBytes && !found && len(d.ranges) < maxRanges {
		half := r.bytes / 2 // most are as often before the device as after it
		r.bytes -= half
		d.ranges = slices.Insert(d.ranges, i+1, deadRange{*device, half})
	}
}

// addGroups adds the bytes of deleted groups.
func (d *dead) addGroups(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.groups += bytes
}

// total returns the number of bytes.
func (d *dead) total() (bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bytes = d.records + d.groups
	for i := range d.ranges {
		bytes += d.ranges[i].bytes
	}
	return bytes
}

// A deadSpan is a range of keys with the number of dead bytes in it.
type deadSpan struct {
	start, end []byte
	bytes      int64
	used       uint64 // bytes in tables, dead ones included
}

// spans returns all ranges of keys that have dead bytes.
func (d *dead) spans() (all []deadSpan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	add := func(start, end []byte, bytes int64) {
		if bytes > 0 {
			all = append(all, deadSpan{start: start, end: end, bytes: bytes})
		}
	}
	add([]byte{layout.RecordPrefix}, []byte{layout.RecordPrefix + 1}, d.records)
	add([]byte{layout.GroupPrefix}, []byte{layout.GroupPrefix + 1}, d.groups)
	for i := range d.ranges {
		end := []byte{layout.SegmentPrefix + 1}
		if i+1 < len(d.ranges) {
			end = layout.AppendSegmentPrefix(nil, &d.ranges[i+1].from)
		}
		add(layout.AppendSegmentPrefix(nil, &d.ranges[i].from), end, d.ranges[i].bytes)
	}
	return all
}

// take takes off what was dropped from the tables in a range of keys: at most bytes, as far as it counts in the range.
func (d *dead) take(start, end []byte, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	overlaps := func(from, to []byte) bool { return string(start) < string(to) && string(from) <= string(end) }
	var counts []*int64
	if overlaps([]byte{layout.RecordPrefix}, []byte{layout.RecordPrefix + 1}) {
		counts = append(counts, &d.records)
	}
	if overlaps([]byte{layout.GroupPrefix}, []byte{layout.GroupPrefix + 1}) {
		counts = append(counts, &d.groups)
	}
	for i := range d.ranges {
		to := []byte{layout.SegmentPrefix + 1}
		if i+1 < len(d.ranges) {
			to = layout.AppendSegmentPrefix(nil, &d.ranges[i+1].from)
		}
		if overlaps(layout.AppendSegmentPrefix(nil, &d.ranges[i].from), to) {
			counts = append(counts, &d.ranges[i].bytes)
		}
	}
	total := int64(0)
	for _, n := range counts {
		total += *n
	}
	if total <= 0 {
		return
	}
	for _, n := range counts {
		*n -= int64(float64(*n) * min(float64(bytes)/float64(total), 1))
	}
}

// compacted takes off what a compaction has dropped.
func (d *dead) compacted(info pebble.CompactionInfo) {
	if info.Err != nil {
		return
	}
	dropped := int64(0)
	var start, end []byte
	for _, level := range info.Input {
		for _, t := range level.Tables {
			dropped += int64(t.Size)
			if start == nil || string(t.Smallest.UserKey) < string(start) {
				start = t.Smallest.UserKey
			}
			if string(t.Largest.UserKey) > string(end) {
				end = t.Largest.UserKey
			}
		}
	}
	for _, t := range info.Output.Tables {
		dropped -= int64(t.Size)
	}
	if dropped > 0 {
		d.take(start, end, dropped)
	}
}

// reclaim compacts one range of which more than a tenth is dead, and reports whether there was one. It gives way to
// backups and erasures, and ends when ctx does, or when busy returns true: then it returns context.Canceled.
func (g *segments) reclaim(ctx context.Context, busy func() bool) (more bool, err error) {
	ctx, done, err := g.maintenance.awaitTurn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		for sleep(ctx, reclaimWatch) == nil {
			if busy() {
				cancel()
			}
		}
	})
	v, err := g.enter(ctx) // keeps the tree open
	if err != nil {
		return false, err
	}
	defer g.views.release(v)
	var worst deadSpan
	share := func(s *deadSpan) float64 { return float64(s.bytes) / float64(s.used+1) }
	for _, s := range g.dead.spans() {
		if s.used, err = g.db.EstimateDiskUsage(s.start, s.end); err != nil {
			return false, damage.Wrap(err)
		}
		if s.bytes = min(s.bytes, int64(s.used)); s.bytes >= reclaimLeast && s.bytes*reclaimShare > int64(s.used) &&
			s.used <= reclaimBytes &&
			(worst.start == nil || cmp.Compare(share(&s), share(&worst)) > 0) {
			worst = s
		}
	}
	if worst.start == nil {
		return false, nil
	}
	if err := g.db.Compact(ctx, worst.start, worst.end, false); err != nil {
		return false, damage.Wrap(err)
	}
	g.dead.take(worst.start, worst.end, int64(worst.used)) // the rest was in no table
	return true, nil
}
