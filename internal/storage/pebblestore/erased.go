package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/vitals"
)

var errNotErased = errors.New("tables still hold it")

// verifyErased looks for keys of a device in all tables, those of deletions included.
// Where the device has readings again, only the deletion of ranges counts: Pebble
// drops it when, and only when, nothing is left that it deletes.
func (s *Store) verifyErased(device *vitals.Name) error {
	s.mu.Lock()
	_, back := s.settler.table.byName[*device]
	s.mu.Unlock()
	o := pebbleOptions(s.options)
	o.EnsureDefaults()
	for _, r := range deviceRanges(device) {
		levels, err := s.db.SSTables(pebble.WithKeyRangeFilter(r.before, r.behind))
		if err != nil {
			return fmt.Errorf("list tables: %w", corrupt(err))
		}
		for _, level := range levels {
			for i := range level {
				path := s.files.fs.PathJoin(s.path, level[i].BackingSSTNum.String()+tableSuffix)
				err := tableLacks(s.files.fs, path, o.MakeReaderOptions(), r, back)
				if errors.Is(err, fs.ErrNotExist) {
					continue // compacted away meanwhile
				}
				if err != nil {
					return fmt.Errorf("table %s: %w", path, err)
				}
			}
		}
	}
	return nil
}

// tableLacks returns an error that wraps errNotErased when a table has a key in a
// range; when there may be new ones, only deletions of ranges count.
func tableLacks(fsys vfs.FS, path string, o sstable.ReaderOptions, in keyRange, newer bool) (err error) {
	r, err := openTable(context.Background(), fsys, path, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	deletions, err := r.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if err != nil {
		return err
	}
	if deletions != nil {
		defer deletions.Close()
		span, err := deletions.First()
		for ; span != nil && err == nil; span, err = deletions.Next() {
			if bytes.Compare(span.Start, in.behind) <= 0 && bytes.Compare(span.End, in.before) > 0 {
				return fmt.Errorf("%w: a deletion", errNotErased)
			}
		}
		if err != nil {
			return err
		}
	}
	if newer {
		return nil
	}
	keys, err := r.NewIter(sstable.NoTransforms, in.before, append(bytes.Clone(in.behind), 0), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	if key := keys.First(); key != nil {
		err = fmt.Errorf("%w: a key", errNotErased)
	}
	return errors.Join(err, keys.Close())
}
