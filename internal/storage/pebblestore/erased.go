package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/layout"
	"github.com/pulsegate/pulsegate/vitals"
)

var errNotErased = errors.New("tables still hold it")

// verifyErased returns an error that wraps errNotErased if a table has a key of a device
// or a deletion of one, or a deleted group, or a deletion of a gateway's name. If the device
// has readings again, only range deletions count: Pebble drops these exactly when nothing is
// left that they delete. The same holds for its assignments. ranges are those of purgedRanges,
// when the device had been removed.
func (s *Store) verifyErased(device *vitals.Name, ranges []keyRange) error {
	if err := s.setLive(device, ranges); err != nil {
		return err
	}
	return s.verifyRanges(ranges, nil)
}

// setLive sets which of the ranges of purgedRanges have keys that are not deleted.
func (s *Store) setLive(device *vitals.Name, ranges []keyRange) error {
	back := s.knows(*device)
	n := len(deviceRanges(device))
	for i := range n {
		ranges[i].live = back
	}
	assigned, err := s.isAssigned(device)
	ranges[n].live = assigned
	return err
}

// verifyRanges returns an error that wraps errNotErased if a table has a key or a deletion in a
// range, or another one if a table cannot be read. Of groups, only those count that have the name
// of device, unless that is nil.
func (s *Store) verifyRanges(ranges []keyRange, device *vitals.Name) error {
	reader := tableOptions(s.options)
	// The file of a part may hold keys that are not in the part.
	parts, err := s.parts()
	if err != nil {
		return err
	}
	var unread error
	for _, r := range ranges {
		files, err := datadir.Tables(s.db, pebble.WithKeyRangeFilter(r.before, r.after))
		if err != nil {
			return err
		}
		for _, part := range parts {
			files = append(files, part.file)
		}
		for _, f := range files {
			path := s.files.FS.PathJoin(s.path, f.Name)
			err := tableLacks(s.files.FS, path, reader, r, device)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				continue // not in it, or compacted away meanwhile
			}
			err = fmt.Errorf("table %s: %w", path, corrupt(err))
			if !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, errNotErased) {
				return err
			}
			unread = cmp.Or(unread, err)
		}
	}
	return unread
}

// mayHold reports whether a file may hold bytes of a device without readings. If it
// returns false, no file does.
//
// Live tables are listed before the files are read: files written meanwhile are made from
// these tables and from logs.
func (s *Store) mayHold(device vitals.Name) (bool, error) {
	s.mu.Lock()
	ranges := s.purgedRanges(&device)
	s.mu.Unlock()
	err := s.verifyRanges(ranges, &device)
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
	names, err := s.files.FS.List(s.path)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		held := false
		switch path := s.files.FS.PathJoin(s.path, name); {
		case !strings.HasSuffix(name, datadir.TableSuffix):
			held, err = journalMayHold(s.files.FS, path, &device)
		case !live[name]:
			held, err = s.deadTableMayHold(path, ranges, &device)
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

// deadTableMayHold is mayHold for a table that the tree does not refer to. Such a table is
// about to be removed, or is being written.
func (s *Store) deadTableMayHold(path string, ranges []keyRange, device *vitals.Name) (bool, error) {
	reader := tableOptions(s.options)
	for _, r := range ranges {
		err := tableLacks(s.files.FS, path, reader, r, device)
		if errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if err != nil {
			return true, nil // it has a key, or is unreadable
		}
	}
	return false, nil
}

// journalMayHold reports whether a file other than a table may hold the name of a device,
// and not as a part of a longer name. In logs and manifests a name may cross the end of a
// block; the header of a chunk is between the parts.
//
// Groups do not have names in full, so those in logs are decoded. Of a group whose beginning was
// overwritten, when the file of its log was reused, only names in full are found.
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
	var before []byte // the end of the previous block
	var batches wal.BatchReader
	log := strings.HasSuffix(path, wal.LogSuffix)
	for block := make([]byte, wal.BlockBytes); ; {
		n, err := io.ReadFull(f, block)
		over := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !over {
			return false, err
		}
		if holdsName(block[:n], device, over) || log && batches.Block(block[:n], func(b []byte) bool { return batchNames(b, device) }) {
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

// holdsName reports whether b holds the name of a device, followed by a byte that cannot be
// part of a name, or by the end of the file if end is true. In a log, the key of a record
// is preceded by its length and followed by that of the value, which may look like a part of
// the name.
func holdsName(b []byte, device *vitals.Name, end bool) bool {
	name := device.AppendTo(nil)
	recordKey := append([]byte{byte(1 + len(name))}, layout.AppendRecordKey(nil, device)...)
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

// batchNames reports whether a group in a batch names a device, or cannot be decoded.
func batchNames(batch []byte, device *vitals.Name) bool {
	var group groupBuffer
	for r := batchrepr.Read(batch); ; {
		kind, key, value, ok, err := r.Next()
		if !ok {
			return err != nil
		}
		if kind == pebble.InternalKeyKindSet && key[0] == layout.GroupPrefix && group.names(value, device) {
			return true
		}
	}
}

// tableLacks returns an error that wraps errNotErased if a table has a key or a range
// deletion in a range, or only the latter if the range is live. Of groups, only those count
// that have the name of device, unless that is nil.
func tableLacks(fsys vfs.FS, path string, o sstable.ReaderOptions, in keyRange, device *vitals.Name) (err error) {
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
			if device != nil && in.groups {
				continue // it names no device
			}
			if bytes.Compare(span.Start, in.after) <= 0 && bytes.Compare(span.End, in.before) > 0 {
				return fmt.Errorf("%w: a deletion", errNotErased)
			}
		}
		if err != nil {
			return err
		}
	}
	if in.live {
		return nil
	}
	var group groupBuffer
	keys, err := r.NewIter(sstable.NoTransforms, in.before, append(bytes.Clone(in.after), 0), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	for kv := keys.First(); kv != nil && err == nil; kv = keys.Next() {
		if device != nil && in.groups {
			value, _, valueErr := kv.Value(nil)
			if valueErr == nil && !group.names(value, device) {
				continue
			}
			err = valueErr
		}
		err = errors.Join(fmt.Errorf("%w: a key", errNotErased), err)
	}
	return errors.Join(err, keys.Close())
}
