package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
)

// # How bytes are removed from a damaged table
//
// A compaction cannot read a damaged block, even if all of its keys are deleted. So the keys of
// an erased device are excised from its tables: Pebble then refers to one or two parts of the file
// of a table, without the keys between. The parts are compacted, and the file is removed. That
// fails if a block with readings of other devices is damaged: they are not given up, so that the
// damage is reported as long as the file is there. Then the erasure is unfinished.

// A tablePart is a table that is a part of a file.
type tablePart struct {
	file        datadir.Table
	purge.Range // its bounds
}

// parts returns the tables that are parts of files.
func (s *Store) parts() (parts []tablePart, err error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, corrupt(err)
	}
	for _, level := range levels {
		for i := range level {
			if t := &level[i]; t.Virtual {
				parts = append(parts, tablePart{
					datadir.Table{Number: uint64(t.BackingSSTNum), Name: t.BackingSSTNum.String() + datadir.TableSuffix, Bytes: int64(t.Size)},
					purge.Range{Before: purge.KeyBefore(t.Smallest.UserKey), After: append(bytes.Clone(t.Largest.UserKey), 0)},
				})
			}
		}
	}
	return parts, nil
}

// excise removes the keys of a device that was removed from tables that could not be compacted
// because of the damage err. It returns err if it cannot.
func (s *Store) excise(device *vitals.Name, err error) error {
	if exciseErr := s.exciseKeys(device); exciseErr != nil {
		return errors.Join(err, exciseErr)
	}
	parts, err := s.parts()
	if err != nil {
		return err
	}
	ranges := purge.DeviceRanges(device)
	for i := range parts {
		ranges = append(ranges, parts[i].Range)
	}
	return s.compactRanges(ranges)
}

// exciseKeys excises the keys of segments from the previous device to the next one. The index of a table may lead to a damaged block also for keys beside those that it has.
func (s *Store) exciseKeys(device *vitals.Name) error {
	s.sealing.Lock() // no segments are written meanwhile
	defer s.sealing.Unlock()
	previous, next, sealed := s.neighbours(device)
	if sealed {
		return fmt.Errorf("device %s has sent readings since", device)
	}
	span := pebble.KeyRange{Start: []byte{layout.SegmentPrefix}, End: []byte{layout.SegmentPrefix + 1}}
	if !previous.IsZero() {
		span.Start = layout.AppendSegmentsEnd(nil, &previous)
	}
	if !next.IsZero() {
		span.End = layout.AppendSegmentPrefix(nil, &next)
	}
	files, err := datadir.Tables(s.db, pebble.WithKeyRangeFilter(span.Start, span.End))
	if err != nil || len(files) == 0 {
		return err
	}
	for _, f := range files {
		if err := s.readableBeside(f, span); err != nil {
			return err
		}
	}
	return corrupt(s.db.Excise(s.maintenance.ctx, span))
}

// neighbours returns the devices before and after one in the order of names, or zero Names, and
// reports whether that one has segments.
func (s *Store) neighbours(device *vitals.Name) (previous, next vitals.Name, sealed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, name := range s.settler.table.All() {
		switch c := name.Compare(device); {
		case c == 0:
			sealed = s.settler.table.At(number).SealedUnixMs != layout.NoSegment
		case c < 0 && (previous.IsZero() || previous.Compare(&name) < 0):
			previous = name
		case c > 0 && (next.IsZero() || name.Compare(&next) < 0):
			next = name
		}
	}
	return previous, next, sealed
}

// readableBeside returns an error if the last key before a span, or the first one after it, cannot
// be read from a table. Pebble's Excise would take it for the end of the table, and drop the rest.
func (s *Store) readableBeside(f datadir.Table, span pebble.KeyRange) (err error) {
	path := s.files.FS.PathJoin(s.path, f.Name)
	t, err := datadir.OpenTable(context.Background(), s.files.FS, path, tableOptions(s.options))
	if err != nil {
		return fmt.Errorf("table %s: %w", path, corrupt(err))
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	keys, err := t.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return fmt.Errorf("table %s: %w", path, corrupt(err))
	}
	keys.SeekLT(span.Start, 0)
	err = keys.Error()
	if err == nil {
		keys.SeekGE(span.End, 0)
	}
	if err = errors.Join(err, keys.Close()); err != nil {
		return fmt.Errorf("table %s: %w", path, corrupt(err))
	}
	return nil
}
