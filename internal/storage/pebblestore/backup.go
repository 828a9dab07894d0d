package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/backup"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/purge"
)

// # How a backup is made
//
// Pebble makes a checkpoint between two groups, and between two windows that are sealed.
// Nothing else is written while it is made, so it ends after a complete group: it holds
// every reading acknowledged until then. Package backup makes a backup of it.

// ErrBackup means that a directory cannot be opened for writing because it is a backup.
var ErrBackup = errors.New("the directory is a backup, which must not be changed")

// Backup makes a copy of the store that holds every reading acknowledged so far. Append
// waits while hard links to all tables are made and the log, which is short then, is
// copied.
//
// The error wraps storage.ErrBusy during another backup or an erasure. The caller must
// close the Backup. Closing the store makes WriteTo return an error, and waits for the
// Backup to be closed.
func (s *Store) Backup() (*backup.Backup, error) {
	b, err := s.makeBackup()
	if err != nil {
		return nil, fmt.Errorf("back up store %s: %w", s.dir, err)
	}
	return b, nil
}

func (s *Store) makeBackup() (*backup.Backup, error) {
	if s.options.ReadOnly {
		return nil, ErrReadOnly
	}
	done, err := s.maintenance.begin("a backup")
	if err != nil {
		return nil, err
	}
	return backup.Running(s.maintenance.ctx, s.files, func(dir string) error {
		if err := s.checkpoint(dir); err != nil {
			return err
		}
		// An unfinished erasure must be finished in the copy, too.
		in, err := purge.ReadIntent(s.files)
		if in == nil || err != nil {
			return err
		}
		return in.Write(s.files.FS, dir)
	}, done)
}

// checkpoint makes a checkpoint between two groups, and while nothing is being sealed.
func (s *Store) checkpoint(dir string) error {
	// Flush first: the shorter the log, the shorter Append waits.
	if s.disk.Ready() == nil {
		if err := s.flush(s.maintenance.ctx); err != nil {
			return err
		}
	}
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.alarm.reportedErr(); err != nil {
		return err
	}
	return s.guard(func() error { return s.db.Checkpoint(dir) })
}

// ReceiveBackup is [backup.Receive]. It verifies the copy like [Check], and returns the Report.
func ReceiveBackup(ctx context.Context, r io.Reader, dir string, o backup.Options) (report Report, err error) {
	err = backup.Receive(ctx, r, dir, o, checkCopy(ctx, o, &report))
	return report, err
}

// Restore is [backup.Restore]. It verifies the copy like [Check], and returns the Report.
func Restore(ctx context.Context, from, dir string, o backup.Options) (report Report, err error) {
	err = backup.Restore(ctx, from, dir, o, checkCopy(ctx, o, &report))
	return report, err
}

// checkCopy returns a function that verifies a copy and sets report.
func checkCopy(ctx context.Context, o backup.Options, report *Report) func(dir string) error {
	return func(dir string) (err error) {
		*report, err = Check(ctx, dir, CheckOptions{FS: o.FS, Progress: func(done, of, _ int64) {
			if o.Progress != nil {
				o.Progress(done, of)
			}
		}})
		return err
	}
}
