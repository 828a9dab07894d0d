package pebblestore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
	"github.com/pulsegate/pulsegate/vitals"
)

// verifyErased returns an error that wraps purge.ErrHeld if a table has a key of a device
// or a deletion of one, or a deleted group, or a deletion of a gateway's name. If the device
// has readings again, only range deletions count: Pebble drops these exactly when nothing is
// left that they delete. The same holds for its assignments. ranges are those of purgedRanges,
// when the device had been removed.
func (s *Store) verifyErased(device *vitals.Name, ranges []purge.Range) error {
	if err := s.setLive(device, ranges); err != nil {
		return err
	}
	return s.verifyRanges(ranges, nil)
}

// setLive sets which of the ranges of purgedRanges have keys that are not deleted.
func (s *Store) setLive(device *vitals.Name, ranges []purge.Range) error {
	back := s.knows(*device)
	n := len(purge.DeviceRanges(device))
	for i := range n {
		ranges[i].Live = back
	}
	assigned, err := s.isAssigned(device)
	ranges[n].Live = assigned
	return err
}

// verifyRanges returns an error that wraps purge.ErrHeld if a table has a key or a deletion in a
// range, or another one if a table cannot be read. If device is not nil, only groups that name it
// count.
func (s *Store) verifyRanges(ranges []purge.Range, device *vitals.Name) error {
	reader := tableOptions(s.options)
	// The file of a part may hold keys that are not in the part.
	parts, err := s.parts()
	if err != nil {
		return err
	}
	var unread error
	for _, r := range ranges {
		files, err := datadir.Tables(s.db, pebble.WithKeyRangeFilter(r.Before, r.After))
		if err != nil {
			return err
		}
		for _, part := range parts {
			files = append(files, part.file)
		}
		for _, f := range files {
			path := s.files.FS.PathJoin(s.path, f.Name)
			err := purge.TableLacks(s.files.FS, path, reader, r, device)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				continue // not in it, or compacted away meanwhile
			}
			err = fmt.Errorf("table %s: %w", path, corrupt(err))
			if !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, purge.ErrHeld) {
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
	if errors.Is(err, purge.ErrHeld) {
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
			held, err = purge.JournalMayHold(s.files.FS, path, &device)
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
func (s *Store) deadTableMayHold(path string, ranges []purge.Range, device *vitals.Name) (bool, error) {
	reader := tableOptions(s.options)
	for _, r := range ranges {
		err := purge.TableLacks(s.files.FS, path, reader, r, device)
		if errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if err != nil {
			return true, nil // it has a key, or is unreadable
		}
	}
	return false, nil
}
