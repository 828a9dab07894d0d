package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

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
	reader := tableOptions(s.options)
	for _, r := range deviceRanges(device) {
		files, err := tableFiles(s.db, pebble.WithKeyRangeFilter(r.before, r.behind))
		if err != nil {
			return err
		}
		for _, f := range files {
			path := s.files.fs.PathJoin(s.path, f.name)
			err := tableLacks(s.files.fs, path, reader, r, back)
			if errors.Is(err, fs.ErrNotExist) {
				continue // compacted away meanwhile
			}
			if err != nil {
				return fmt.Errorf("table %s: %w", path, err)
			}
		}
	}
	return nil
}

// mayHold reports whether a file may hold something of a device that the store does not
// know. Where it returns false, none does.
//
// Tables are listed before they are read: what is written meanwhile is made of those, and of
// logs.
func (s *Store) mayHold(device vitals.Name) (bool, error) {
	err := s.verifyErased(&device)
	if errors.Is(err, errNotErased) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	live, err := s.liveTables()
	if err != nil {
		return false, err
	}
	names, err := s.files.fs.List(s.path)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		held := false
		switch path := s.files.fs.PathJoin(s.path, name); {
		case !strings.HasSuffix(name, tableSuffix):
			held, err = journalMayHold(s.files.fs, path, &device)
		case !live[name]:
			held, err = s.deadTableMayHold(path, &device)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if held || err != nil {
			return held, err
		}
	}
	return false, nil
}

// deadTableMayHold looks into a table that the tree does not refer to. Such a table is
// about to be removed, or is being written.
func (s *Store) deadTableMayHold(path string, device *vitals.Name) (bool, error) {
	reader := tableOptions(s.options)
	for _, r := range deviceRanges(device) {
		err := tableLacks(s.files.fs, path, reader, r, false)
		if errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if err != nil {
			return true, nil // a key, or it cannot be told
		}
	}
	return false, nil
}

// journalMayHold reports whether a file that is no table may hold the name of a device, and
// not as a part of a longer name. In logs and manifests a name may be cut by the end of a
// block, where the header of a chunk follows.
func journalMayHold(fsys vfs.FS, path string, device *vitals.Name) (bool, error) {
	if info, err := fsys.Stat(path); err != nil || info.IsDir() {
		return false, err
	}
	f, err := fsys.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return false, err
	}
	defer f.Close()
	around := device.Len() + 2
	var before []byte // the end of what was read so far
	for block := make([]byte, journalBlockBytes); ; {
		n, err := io.ReadFull(f, block)
		over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !over {
			return false, err
		}
		if holdsName(block[:n], device, over) {
			return true, nil
		}
		for _, header := range []int{0, 7, 11, 19} { // none, and those of a manifest and of logs
			from := min(header, n)
			if holdsName(append(bytes.Clone(before), block[from:min(from+around, n)]...), device, over) {
				return true, nil
			}
		}
		if over {
			return false, nil
		}
		before = append(before[:0], block[n-around:]...)
	}
}

// holdsName reports whether b holds the name of a device, and something after it that is of
// no name, unless b is the end. In a log, the key of a record has its length before it, and
// that of the value after it, which may look like a part of the name.
func holdsName(b []byte, device *vitals.Name, end bool) bool {
	name := device.AppendTo(nil)
	recordKey := append([]byte{byte(1 + len(name))}, appendRecordKey(nil, device)...)
	if bytes.Contains(b, recordKey) {
		return true
	}
	for {
		i := bytes.Index(b, name)
		if i < 0 {
			return false
		}
		after := b[i+len(name):]
		if len(after) == 0 {
			return end
		}
		if _, err := vitals.ParseName(after[:1]); err != nil {
			return true
		}
		b = b[i+1:]
	}
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
