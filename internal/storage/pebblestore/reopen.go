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

// Renew implements [purge.Tree]. It closes and reopens the tree, which makes a new log and a new
// manifest, and removes all files that are no longer needed.
func (t tree) Renew() error {
	// Flush first: the shorter the log, the shorter Append waits.
	if err := t.flush(t.maintenance.ctx); err != nil {
		return err
	}
	t.awaitIdle()
	tables, err := t.reopen()
	if err != nil {
		return err
	}
	return t.awaitRemoval(tables)
}

// idleFor bounds the wait for a moment without compactions. Closing the tree waits for
// running compactions, and Append waits for the tree.
const idleFor = 2 * time.Second

func (t tree) awaitIdle() {
	ctx, cancel := context.WithTimeout(t.maintenance.ctx, idleFor)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { return t.db.Metrics().Compact.NumInProgress == 0, nil })
}

// reopen closes and reopens the tree. It returns the tables that are no longer referred
// to, which Pebble removes.
func (t tree) reopen() (obsolete []string, err error) {
	t.sealing.Lock()
	defer t.sealing.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ready(); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrFailed) {
			t.alarm.raise(fmt.Sprintf("it cannot be reopened after an erasure: %v", err))
			err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
		}
	}()
	t.views.pause()
	defer func() { t.views.resume() }()
	closers := t.opened[t.treeAt:]
	t.opened = t.opened[:t.treeAt]
	err = errors.Join(t.settler.closeBatch(), t.guard(closers.Close))
	if t.renewed != nil {
		close(t.renewed)
		t.renewed = nil
	}
	if err != nil {
		return nil, err
	}
	before, err := t.files.FS.List(t.path)
	if err != nil {
		return nil, err
	}
	if err := t.openTree(-1); err != nil { // there is almost nothing to replay
		return nil, err
	}
	t.settler.db, t.settler.batch = t.db, newBatch(t.db)
	t.publish()
	obsolete, err = t.removeOld(before)
	t.options.Log.Info("store reopened after an erasure", "dir", t.dir, "writes_waited", time.Since(begun))
	return obsolete, err
}

// removeOld removes old logs and manifests, and returns the tables that the tree does not
// refer to. names are the files that existed before the tree was reopened.
//
// The readings of the logs are in tables now; see Replayed in the package comment.
func (t tree) removeOld(names []string) (tables []string, err error) {
	files, err := datadir.Tables(t.db)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, f := range files {
		live[f.Name] = true
	}
	desc, err := pebble.Peek(t.path, t.files.FS)
	if err != nil {
		return nil, err
	}
	current := t.files.FS.PathBase(desc.ManifestFilename)
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, datadir.TableSuffix):
			if !live[name] {
				tables = append(tables, name)
			}
		case strings.HasSuffix(name, wal.LogSuffix), strings.HasPrefix(name, wal.ManifestPrefix) && name != current:
			err := t.files.FS.Remove(t.files.FS.PathJoin(t.path, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble removes some of them too
				return nil, err
			}
		}
	}
	return tables, datadir.SyncDir(t.files.FS, t.path)
}

// awaitRemoval waits until Pebble has removed tables in the background.
func (t tree) awaitRemoval(tables []string) error {
	err := poll(t.maintenance.ctx, func() (bool, error) {
		names, err := t.files.FS.List(t.path)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(tables, func(name string) bool { return slices.Contains(names, name) }), nil
	})
	if err != nil {
		return fmt.Errorf("remove old tables: %w", err)
	}
	return datadir.SyncDir(t.files.FS, t.path)
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
