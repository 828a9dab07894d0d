package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Why a directory is held by its descriptor
//
// The file LOCK can be removed while a server runs, and then locked again by another one.
// The directory can be moved, and another one put in its place: files that are created by
// their paths then come to be in somebody else's store. So a store holds its directory
// open. On Linux
//
//   - a second lock is on the directory itself, which no removal of a file gives away,
//   - and all files are reached through the descriptor: they are those of this directory,
//     wherever it is by now.
//
// What the path names is compared with what is held before a sync of the log is
// acknowledged, before a file is created, and by a watch. A store whose directory was
// moved, or whose LOCK is another file, takes no further group, and Options.Fatal is
// called. What it has acknowledged is in the directory that it holds.
//
// On other systems there is the comparison alone. Between two of them, a table that is
// written in the background could be created in another directory.

// An anchor is the directory of an open store.
type anchor struct {
	path string
	dir  *os.File
	self fs.FileInfo // of the directory
	lock fs.FileInfo // of LOCK; nil: there is none
}

func openAnchor(path string) (*anchor, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	self, err := dir.Stat()
	if err != nil {
		return nil, joinClose(err, dir)
	}
	return &anchor{path: path, dir: dir, self: self}, nil
}

func (a *anchor) Close() error { return a.dir.Close() }

// hold locks the directory, of which LOCK is locked already.
func (a *anchor) hold() (err error) {
	if err := a.lockDirectory(); err != nil {
		return fmt.Errorf("%w, which holds the lock on %s", storage.ErrLocked, a.path)
	}
	a.lock, err = os.Stat(filepath.Join(a.path, lockFile))
	if err != nil {
		return err
	}
	return a.intact()
}

// intact returns an error when the path names another directory than this one, or another
// LOCK. Where that cannot be told it returns nil.
func (a *anchor) intact() error {
	self, err := os.Stat(a.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !os.SameFile(self, a.self):
		return fmt.Errorf("%w: %s is another directory than the one that the store has open", errMoved, a.path)
	case err != nil || a.lock == nil:
		return nil
	}
	path := filepath.Join(a.path, lockFile)
	lock, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(lock, a.lock) {
		return fmt.Errorf("%w: %s was removed or replaced", errMoved, path)
	}
	return nil
}

var errMoved = errors.New("the data directory was changed while the store was open")

// fs returns the file system through which the files of this directory are reached.
func (a *anchor) fs() vfs.FS {
	via := a.descriptorPath()
	if via == "" {
		return vfs.Default
	}
	if self, err := os.Stat(via); err != nil || !os.SameFile(self, a.self) {
		return vfs.Default // no /proc
	}
	return anchoredFS{FS: vfs.Default, real: a.path, via: via}
}
