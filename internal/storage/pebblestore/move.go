package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
)

// OpenPartial opens a store to which another one is moved, and that is not in dir until
// [Store.Publish] gives it its name. Until then it is in DIR.partial, which is created if it is
// missing, and Open refuses dir. It accepts any number of devices and gateways, and devices with
// any name.
//
// If dir has a store, OpenPartial opens that one for reading, and [Store.Begin] returns an error. The error
// wraps storage.ErrFormat if dir exists and has none.
func OpenPartial(dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	o.MaxDevices, o.MaxGateways, o.moving = math.MaxInt, math.MaxInt, true
	s, err := openPartial(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return s, nil
}

func openPartial(dir string, o Options) (_ *Store, err error) {
	if o.FS == vfs.Default {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
	}
	switch _, err := o.FS.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		o.ReadOnly = true
		s, err := open(dir, o)
		if errors.Is(err, storage.ErrFormat) {
			err = fmt.Errorf("%w; name a directory that does not exist", err)
		}
		return s, err
	}
	s, err := open(dir+datadir.PartialSuffix, o)
	if err != nil {
		return nil, err
	}
	s.becomes = dir
	return s, nil
}

// Begin returns nil if the store may be written to by a move.
func (s *Store) Begin() error {
	if s.becomes == "" {
		return fmt.Errorf("%w: %s exists already, and lacks readings of the source; name a directory that does not exist",
			backup.ErrNotEmpty, s.dir)
	}
	return nil
}

// Publish closes the store, and gives it the name that was passed to OpenPartial.
func (s *Store) Publish() error {
	if err := s.Close(); err != nil || s.becomes == "" {
		return err
	}
	fsys := s.options.FS
	if err := fsys.Rename(s.path, s.becomes); err != nil {
		return fmt.Errorf("publish store: %w", err)
	}
	if err := datadir.SyncDir(fsys, fsys.PathDir(s.becomes)); err != nil {
		return fmt.Errorf("publish store: %w", err)
	}
	return nil
}

// OpenVerified verifies the store in dir with [Check], and opens it for reading. The error wraps
// storage.ErrUnfinished if an erasure is unfinished.
func OpenVerified(ctx context.Context, dir string, o CheckOptions) (*Store, Report, error) {
	report, err := Check(ctx, dir, o)
	if err != nil {
		return nil, report, err
	}
	if !report.Erasing.IsZero() {
		return nil, report,
			fmt.Errorf("open store %s: %w: that of the device %s; a server that starts with the directory finishes it",
				dir, storage.ErrUnfinished, report.Erasing)
	}
	s, err := Open(dir, Options{ReadOnly: true, FS: o.FS, Log: o.Log})
	return s, report, err
}
