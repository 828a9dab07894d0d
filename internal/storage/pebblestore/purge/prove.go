package purge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/damage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

// ErrHeld means that a table has a key that was removed, or its deletion.
var ErrHeld = errors.New("tables still hold it")

// Tables are the tables of a tree.
type Tables struct {
	DB     *pebble.DB
	Dir    *datadir.Dir
	Reader sstable.ReaderOptions
}

// Lack returns an error that wraps ErrHeld if a table has a key or a deletion in a range, or another one if
// a table cannot be read. If device is not nil, only groups that name it count.
func (t *Tables) Lack(ranges []Range, device *vitals.Name) error {
	var unread error
	for _, r := range ranges {
		files, err := datadir.Tables(t.DB, pebble.WithKeyRangeFilter(r.Before, r.After))
		if err != nil {
			return err
		}
		for _, f := range files {
			path := t.Dir.File(f.Name)
			err := tableLacks(t.Dir.FS, path, t.Reader, r, device)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				continue // not in it, or compacted away since it was listed
			}
			err = fmt.Errorf("table %s: %w", path, damage.Wrap(err))
			if !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, ErrHeld) {
				return err
			}
			unread = cmp.Or(unread, err)
		}
	}
	return unread
}

// tableLacks is Tables.Lack for one table and one range. If the range is live, only a deletion counts:
// Pebble drops a range deletion exactly when nothing is left that it deletes.
func tableLacks(fsys vfs.FS, path string, o sstable.ReaderOptions, in Range, device *vitals.Name) (err error) {
	r, err := datadir.OpenTable(context.Background(), fsys, path, o)
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
			if device != nil && in.Groups {
				continue // it names no device
			}
			if bytes.Compare(span.Start, in.After) <= 0 && bytes.Compare(span.End, in.Before) > 0 {
				return fmt.Errorf("%w: a deletion", ErrHeld)
			}
		}
		if err != nil {
			return err
		}
	}
	if in.Live {
		return nil
	}
	var group layout.Group
	keys, err := r.NewIter(sstable.NoTransforms, in.Before, append(bytes.Clone(in.After), 0), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	for kv := keys.First(); kv != nil && err == nil; kv = keys.Next() {
		if device != nil && in.Groups {
			value, _, valueErr := kv.Value(nil)
			if valueErr == nil && !group.Names(value, device) {
				continue
			}
			err = valueErr
		}
		err = errors.Join(fmt.Errorf("%w: a key", ErrHeld), err)
	}
	return errors.Join(err, keys.Close())
}
