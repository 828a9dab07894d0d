package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pulsegate/pulsegate/internal/storage"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir"
	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
)

// awaitReaders publishes a new snapshot and waits for the readers of older ones.
func (s *Store) awaitReaders() error {
	s.mu.Lock()
	if err := s.alarm.reportedErr(); err != nil {
		s.mu.Unlock()
		return err
	}
	older := s.views.turn()
	s.publish()
	s.mu.Unlock()
	older.Wait()
	return nil
}

// renewTree closes and reopens the tree, which makes a new log and a new manifest, and
// removes all files that are no longer needed.
func (s *Store) renewTree() error {
	// Flush first: the shorter the log, the shorter Append waits.
	if err := s.flush(s.maintenance.ctx); err != nil {
		return err
	}
	s.awaitIdle()
	tables, err := s.reopen()
	if err != nil {
		return err
	}
	return s.awaitRemoval(tables)
}

// idleFor bounds the wait for a moment without compactions. Closing the tree waits for
// running compactions, and Append waits for the tree.
const idleFor = 2 * time.Second

func (s *Store) awaitIdle() {
	ctx, cancel := context.WithTimeout(s.maintenance.ctx, idleFor)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { return s.db.Metrics().Compact.NumInProgress == 0, nil })
}

// reopen closes and reopens the tree. It returns the tables that are no longer referred
// to, which Pebble removes.
func (s *Store) reopen() (obsolete []string, err error) {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrFailed) {
			s.alarm.raise(fmt.Sprintf("it cannot be reopened after an erasure: %v", err))
			err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
		}
	}()
	s.views.pause()
	defer func() { s.views.resume() }()
	tree := s.opened[s.treeAt:]
	s.opened = s.opened[:s.treeAt]
	err = errors.Join(s.settler.closeBatch(), s.guard(tree.Close))
	if s.renewed != nil {
		close(s.renewed)
		s.renewed = nil
	}
	if err != nil {
		return nil, err
	}
	before, err := s.files.FS.List(s.path)
	if err != nil {
		return nil, err
	}
	o := s.options
	o.MinFreeBytes = -1 // there is almost nothing to replay
	if s.db, err = openPebble(s.files, o, s.alarm, s.disk, &s.troubles, &s.opened); err != nil {
		return nil, err
	}
	s.settler.db, s.settler.batch = s.db, newBatch(s.db)
	s.publish()
	obsolete, err = s.removeOld(before)
	s.options.Log.Info("store reopened after an erasure", "dir", s.dir, "writes_waited", time.Since(begun))
	return obsolete, err
}

// removeOld removes old logs and manifests, and returns the tables that the tree does not
// refer to. names are the files that existed before the tree was reopened.
//
// The readings of the logs are in tables now; see Replayed in the package comment.
func (s *Store) removeOld(names []string) (tables []string, err error) {
	live, err := s.liveTables()
	if err != nil {
		return nil, err
	}
	desc, err := pebble.Peek(s.path, s.files.FS)
	if err != nil {
		return nil, err
	}
	current := s.files.FS.PathBase(desc.ManifestFilename)
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, datadir.TableSuffix):
			if !live[name] {
				tables = append(tables, name)
			}
		case strings.HasSuffix(name, wal.LogSuffix), strings.HasPrefix(name, wal.ManifestPrefix) && name != current:
			err := s.files.FS.Remove(s.files.FS.PathJoin(s.path, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble removes some of them too
				return nil, err
			}
		}
	}
	return tables, datadir.SyncDir(s.files.FS, s.path)
}

// liveTables returns the names of the tables that the tree refers to.
func (s *Store) liveTables() (map[string]bool, error) {
	files, err := datadir.Tables(s.db)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, f := range files {
		live[f.Name] = true
	}
	return live, nil
}

// awaitRemoval waits until Pebble has removed tables in the background.
func (s *Store) awaitRemoval(tables []string) error {
	err := poll(s.maintenance.ctx, func() (bool, error) {
		names, err := s.files.FS.List(s.path)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(tables, func(t string) bool { return slices.Contains(names, t) }), nil
	})
	if err != nil {
		return fmt.Errorf("remove old tables: %w", err)
	}
	return datadir.SyncDir(s.files.FS, s.path)
}

// poll calls cond periodically until it returns true or an error, or until ctx ends.
func poll(ctx context.Context, cond func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := cond()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
