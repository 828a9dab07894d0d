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

// renewTree closes and reopens the tree, which makes a new log and a new manifest, and
// removes all files that are no longer needed.
func (g *segments) renewTree() error {
	// Flush first: the shorter the log, the shorter Append waits.
	if err := g.flush(g.maintenance.ctx); err != nil {
		return err
	}
	g.awaitIdle()
	tables, err := g.reopen()
	if err != nil {
		return err
	}
	return g.awaitRemoval(tables)
}

// idleFor bounds the wait for a moment without compactions. Closing the tree waits for
// running compactions, and Append waits for the tree.
const idleFor = 2 * time.Second

func (e *engine) awaitIdle() {
	ctx, cancel := context.WithTimeout(e.maintenance.ctx, idleFor)
	defer cancel()
	_ = poll(ctx, func() (bool, error) { return e.db.Metrics().Compact.NumInProgress == 0, nil })
}

// reopen closes and reopens the tree. It returns the tables that are no longer referred
// to, which Pebble removes.
func (g *segments) reopen() (obsolete []string, err error) {
	g.sealing.Lock()
	defer g.sealing.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reopenLocked()
}

// reopenLocked is reopen. segments.sealing and e.mu must be held.
func (e *engine) reopenLocked() (obsolete []string, err error) {
	if err := e.ready(); err != nil {
		return nil, err
	}
	begun := time.Now()
	defer func() {
		if err != nil && !errors.Is(err, storage.ErrFailed) {
			e.alarm.raise(fmt.Sprintf("it cannot be reopened after an erasure: %v", err))
			err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
		}
	}()
	e.views.pause()
	defer func() { e.views.resume() }()
	tree := e.opened[e.treeAt:]
	e.opened = e.opened[:e.treeAt]
	err = errors.Join(e.settler.closeBatch(), e.guard(tree.Close))
	if e.renewed != nil {
		close(e.renewed)
		e.renewed = nil
	}
	if err != nil {
		return nil, err
	}
	before, err := e.files.FS.List(e.path)
	if err != nil {
		return nil, err
	}
	if err := e.openTree(-1); err != nil { // there is almost nothing to replay
		return nil, err
	}
	e.settler.db, e.settler.batch = e.db, newBatch(e.db)
	e.publish()
	obsolete, err = e.removeOld(before)
	e.options.Log.Info("store reopened after an erasure", "dir", e.dir, "writes_waited", time.Since(begun))
	return obsolete, err
}

// removeOld removes old logs and manifests, and returns the tables that the tree does not
// refer to. names are the files that existed before the tree was reopened.
//
// The readings of the logs are in tables now; see Replayed in the package comment.
func (e *engine) removeOld(names []string) (tables []string, err error) {
	live, err := e.liveTables()
	if err != nil {
		return nil, err
	}
	desc, err := pebble.Peek(e.path, e.files.FS)
	if err != nil {
		return nil, err
	}
	current := e.files.FS.PathBase(desc.ManifestFilename)
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, datadir.TableSuffix):
			if !live[name] {
				tables = append(tables, name)
			}
		case strings.HasSuffix(name, wal.LogSuffix), strings.HasPrefix(name, wal.ManifestPrefix) && name != current:
			err := e.files.FS.Remove(e.files.FS.PathJoin(e.path, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // Pebble removes some of them too
				return nil, err
			}
		}
	}
	return tables, datadir.SyncDir(e.files.FS, e.path)
}

// liveTables returns the names of the tables that the tree refers to.
func (e *engine) liveTables() (map[string]bool, error) {
	files, err := datadir.Tables(e.db)
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
func (e *engine) awaitRemoval(tables []string) error {
	err := poll(e.maintenance.ctx, func() (bool, error) {
		names, err := e.files.FS.List(e.path)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(tables, func(t string) bool { return slices.Contains(names, t) }), nil
	})
	if err != nil {
		return fmt.Errorf("remove old tables: %w", err)
	}
	return datadir.SyncDir(e.files.FS, e.path)
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
