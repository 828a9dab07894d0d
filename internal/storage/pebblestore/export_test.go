package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/columns"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/assign"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/seal"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/space"
	"github.com/pulsegate/pulsegate/vitals"
)

// List writes the list of all files of a directory, with a state.
func List(fs vfs.FS, dir, state string) error {
	l, err := datadir.ListFiles(fs, dir, datadir.ListState(state))
	if err != nil {
		return err
	}
	return l.Write(fs, dir)
}

// WithSum returns a text followed by the line with its checksum.
func WithSum(text string) string {
	return fmt.Sprintf("%send %08x\n", text, datadir.Checksum([]byte(text)))
}

// HoldView keeps the current view of s open until release is called.
func HoldView(s *Store) (release func()) {
	v, err := s.views.acquire()
	if err != nil {
		panic(err)
	}
	return func() { s.views.release(v) }
}

// GroupNames returns the names of the devices in the groups of a log, also of those that were in its file before
// the file was reused, as far as they are not overwritten.
func GroupNames(log []byte) (names []string) {
	var batch []byte // its parts so far
	var ofLog uint32 // the number of its log; 0 if none has begun
	var group layout.Group
	for block := range slices.Chunk(log, wal.BlockBytes) {
		for len(block) >= 11 {
			number := binary.LittleEndian.Uint32(block[7:])
			size := wal.Log(number).Chunk(block)
			if size == 0 {
				block = block[1:] // it may be the middle of an overwritten chunk
				continue
			}
			chunk, kind, header := block[:size], block[6]-5, 11 // see the table of package wal
			if block = block[size:]; kind >= 4 {
				kind, header = kind-4, 19
			}
			if kind < 2 {
				batch, ofLog = batch[:0], number
			}
			if ofLog != number {
				continue
			}
			if batch = append(batch, chunk[header:]...); kind == 1 || kind == 2 {
				continue
			}
			ofLog = 0
			r := batchrepr.Read(batch)
			for kind, key, value, ok, _ := r.Next(); ok; kind, key, value, ok, _ = r.Next() {
				if kind == pebble.InternalKeyKindSet && key[0] == layout.GroupPrefix && group.Decode(value) == nil {
					for i := range group.Runs {
						names = append(names, group.Runs[i].Device.String())
					}
				}
			}
		}
	}
	return names
}

// Flush writes the memtable of s to a table.
func Flush(s *Store) error { return s.flush(context.Background()) }

// CommitAlong commits a batch as the sealer does. It sets a state.
func CommitAlong(s *Store, state string) (err error) {
	b := s.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	return errors.Join(b.Set([]byte(state), nil, nil), s.commitAlong(b))
}

// HandedBatch reports whether a batch waits for a group.
func HandedBatch(s *Store) bool { return s.handed.Load() != nil }

// HasState reports whether a state is stored.
func HasState(s *Store, key string) bool {
	value, err := state(s.db, key)
	return value != nil && err == nil
}

// CompactAll compacts everything down to the last level, as background compactions may.
func CompactAll(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.db.Flush(), s.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false)); err != nil {
		panic(err)
	}
}

// CompactReadings compacts the devices' records, segments and groups down to the last level.
func CompactReadings(s *Store) {
	if err := s.db.Compact(context.Background(), []byte{layout.RecordPrefix}, []byte{layout.GatewayPrefix},
		false); err != nil {
		panic(err)
	}
}

// Resting reports whether s is neither flushing nor compacting. If so, it does neither until
// the next group, because the end of each starts the next one that is due.
func Resting(s *Store) bool {
	m := s.db.Metrics()
	return m.Flush.NumInProgress == 0 && m.Compact.NumInProgress == 0
}

// TableReserve returns how many bytes s may still write to tables without a further
// group.
func TableReserve(s *Store) (int64, error) {
	n, err := s.neededBytes()
	memTable := uint64(s.options.MemTableBytes)
	return int64(n - space.SmallFilesBytes - 2*(memTable+memTable/10)), err
}

// RecordEnds returns the ends of the records of a log or a manifest.
func RecordEnds(name string, b []byte) (ends []int) {
	c := wal.Manifest()
	if number, ok := wal.LogNumber(name); ok {
		c = wal.Log(uint32(number))
	}
	for block := 0; block < len(b); block += wal.BlockBytes {
		in := b[block:min(block+wal.BlockBytes, len(b))]
		for pos := 0; ; {
			size := c.Chunk(in[pos:])
			if size == 0 {
				break
			}
			last := c.EndsRecord(in[pos:])
			if pos += size; last {
				ends = append(ends, block+pos)
			}
		}
	}
	return ends
}

// MemTables returns the number of memtables, including those that are being flushed.
func MemTables(s *Store) int64 { return s.db.Metrics().MemTable.Count }

// Reopen closes and reopens the tree.
func Reopen(s *Store) error {
	_, err := tree{s.segments}.reopen()
	return err
}

// Closing reports whether Close waits for what runs in the background, or has done so.
func Closing(s *Store) bool { return s.maintenance.ctx.Err() != nil }

// Locked reports whether Append would wait.
func Locked(s *Store) bool {
	if s.mu.TryLock() {
		s.mu.Unlock()
		return false
	}
	return true
}

// ScrubFindings holds the metrics of the scrub.
type ScrubFindings struct {
	ScrubbedBytes, ScrubEndedUnixMs int64
	Damaged                         int64 // reports of damaged files
	DamagedTables, UnreadableTables int64
}

// Scrubbed returns the metrics of the scrub of s.
func Scrubbed(s *Store) ScrubFindings {
	c := s.scrubber
	return ScrubFindings{c.BytesRead.Load(), c.EndedUnixMs.Load(), s.troubles.damaged.Load(), c.Damaged.Load(),
		c.Unreadable.Load()}
}

// TableFiles returns the names of the tables of s.
func TableFiles(s *Store) (names []string) {
	files, err := s.tableFiles()
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		names = append(names, f.Name)
	}
	return names
}

// WithSegmentRows returns o with segments of at most a number of readings.
func WithSegmentRows(o Options, rows int) Options {
	o.segmentRows = rows
	return o
}

// Seal seals all readings in windows.
func Seal(s *Store) error {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	return s.sealAll()
}

// TidyPass merges small segments as Tidy does in one pass. It may be called while s is closed.
func TidyPass(s *Store) error {
	leave, ok := s.maintenance.join()
	if !ok {
		return storage.ErrClosed
	}
	defer leave()
	for next, more := uint32(0), true; more; {
		var err error
		if next, more, err = s.tidyStep(next); err != nil {
			return err
		}
	}
	return nil
}

// TidyFailing is Tidy with steps that return what fail returns, if that is not nil.
func TidyFailing(ctx context.Context, s *Store, fail func() error) {
	s.tidy(ctx, func(from uint32) (uint32, bool, error) {
		if err := fail(); err != nil {
			return from, true, err
		}
		return s.tidyStep(from)
	})
}

// SegmentRows returns the numbers of rows in the segments of a device.
func SegmentRows(s *Store, device vitals.Name) (rows []int) {
	v, err := s.views.acquire()
	if err != nil {
		panic(err)
	}
	defer s.views.release(v)
	r := purge.DeviceRanges(&device)[0]
	it, err := v.NewIter(&pebble.IterOptions{LowerBound: r.Start, UpperBound: r.End})
	if err != nil {
		panic(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		h, err := columns.SegmentHeader(it.Value(), nil)
		if err != nil {
			panic(err)
		}
		rows = append(rows, h.Count)
	}
	return rows
}

// ExpireAfterSeal is Expire for all readings before a time. It calls between after the windows
// were sealed.
func ExpireAfterSeal(s *Store, beforeUnixMs int64, between func()) (storage.Expiry, error) {
	if _, err := s.sealOlder(beforeUnixMs); err != nil {
		return storage.Expiry{}, err
	}
	between()
	x, err := s.remover.Expire(context.Background(), beforeUnixMs, math.MaxInt64)
	return x, errors.Join(err, s.remover.Sweep(context.Background()))
}

// AssignKey returns the key of an assignment.
func AssignKey(a storage.Assignment) []byte { return assign.Key(&a) }

// AssignValue returns the value of an assignment.
func AssignValue(a storage.Assignment) []byte {
	return layout.AppendAssignment(nil, layout.Assignment{By: byte(a.By), NamedUnixMs: a.NamedUnixMs,
		OtherUnixMs: a.ToUnixMs, ChangedUnixMs: a.ChangedUnixMs, Subject: string(a.Subject)})
}

// SubjectKey returns the key of an assignment in the index of subjects.
func SubjectKey(a storage.Assignment) []byte { return assign.SubjectKey(&a) }

// GatewayNumbers returns the number of numbers of gateways that were given.
func GatewayNumbers(s *Store) uint32 { return s.gateways.next - 1 }

// SegmentsSince returns the segments of s by their keys that were changed since a time, and the number of those that
// are read to find them.
func SegmentsSince(s *Store, since int64) (found map[string]string, read int) {
	v, err := s.views.acquire()
	if err != nil {
		panic(err)
	}
	defer s.views.release(v)
	o := &pebble.IterOptions{LowerBound: []byte{layout.SegmentPrefix}, UpperBound: []byte{layout.SegmentPrefix + 1}}
	o.PointKeyFilters = append(o.PointKeyFilters, seal.ChangedSince(since))
	it, err := v.NewIter(o)
	if err != nil {
		panic(err)
	}
	found = map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		read++
		if layout.SegmentKeyChanged(it.Key()) >= since {
			found[string(it.Key())] = string(it.Value())
		}
	}
	if err := it.Close(); err != nil {
		panic(err)
	}
	return found, read
}

// Clock returns the latest time at which something in s was changed.
func Clock(s *Store) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settler.clockUnixMs
}

// ArrivedUnixMs returns when a reading of a device last arrived, as the table of s and its record have it. The record
// may have an earlier time.
func ArrivedUnixMs(s *Store, device vitals.Name) (table, record int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.settler.table.Find(&device)
	value, closer, err := s.db.Get(layout.AppendRecordKey(nil, &device))
	if !ok || err != nil {
		panic("no such device")
	}
	defer closer.Close()
	var d layout.Record
	if err := layout.DecodeRecord(value, &d); err != nil {
		panic(err)
	}
	return s.settler.table.At(i).ArrivedUnixMs, d.ArrivedUnixMs
}

// Marks returns the marks of the events of s by number.
func Marks(s *Store) map[uint64]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[uint64]uint64{}
	err := eachValue(s.db, layout.EventPrefix, func(err error) error { return err }, func(key, value []byte) error {
		number, err := layout.DecodeEventKey(key)
		if err != nil {
			return err
		}
		e, err := layout.DecodeEvent(value)
		all[number] = e.Mark
		return err
	})
	if err != nil {
		panic(err)
	}
	return all
}

// WithoutStart makes s add no event for its start.
func WithoutStart(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settler.journal.started = true
}

// TableBytes returns the size of the tables of s.
func TableBytes(s *Store) int64 {
	total := s.db.Metrics().Total()
	return int64(total.TablesSize)
}

// Reclaim compacts a range of s, as Tidy does.
func Reclaim(ctx context.Context, s *Store, busy func() bool) (more bool, err error) {
	return s.reclaim(ctx, busy)
}

// A Dead counts dead bytes.
type Dead struct{ dead }

// A DeadSpan is a range of keys with dead bytes.
type DeadSpan struct {
	Start, End string
	Bytes      int64
}

// Add adds dead bytes of a device.
func (d *Dead) Add(device *vitals.Name, segments, records int) { d.add(device, segments, records) }

// Take takes off what a compaction has dropped.
func (d *Dead) Take(start, end []byte, bytes int64) { d.take(start, end, bytes) }

// Total returns the number of dead bytes.
func (d *Dead) Total() int64 { return d.total() }

// Spans returns the ranges of keys that have dead bytes, in the order of keys.
func (d *Dead) Spans() (all []DeadSpan) {
	for _, s := range d.spans() {
		all = append(all, DeadSpan{string(s.start), string(s.end), s.bytes})
	}
	slices.SortFunc(all, func(a, b DeadSpan) int { return strings.Compare(a.Start, b.Start) })
	return all
}

// ForgetEventsAt is [Store.ForgetEvents] at a time.
func ForgetEventsAt(s *Store, now time.Time) error { return s.remover.Forget(now) }
