package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # Why the directory is kept open
//
// The file LOCK can be removed while a server runs, and then created and locked by
// another process. The directory can be moved and replaced by another one: files that
// are created by path are then created in the wrong store. So a store keeps its
// directory open. On Linux it is locked too, and no removal of a file releases this lock.
//
// Four times a second, before a file is opened, created, renamed or removed, and before the first sync of a log is
// acknowledged, the directory at the path is compared with the open one. If it was moved, or LOCK replaced,
// Intact returns an error. So everything acknowledged is in the open directory: a log is written through its
// descriptor.

// An anchor is the open directory of a store.
type anchor struct {
	path string
	dir  *os.File
	self fs.FileInfo // of the directory
	lock fs.FileInfo // of LOCK; nil means there is none
}

func openAnchor(path string) (*anchor, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	self, err := dir.Stat()
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &anchor{path: path, dir: dir, self: self}, nil
}

func (a *anchor) Close() error {
	a.unlockDirectory()
	return a.dir.Close()
}

// acquireLock locks the directory. LOCK must be locked already.
func (a *anchor) acquireLock() (err error) {
	if err := a.lockDirectory(); err != nil {
		return fmt.Errorf("%w, which holds the lock on %s", storage.ErrLocked, a.path)
	}
	a.lock, err = os.Stat(filepath.Join(a.path, LockFile))
	if err != nil {
		return err
	}
	return a.intact()
}

// intact returns an error if the directory or LOCK was removed or replaced. If that is
// unknown it returns nil.
func (a *anchor) intact() error {
	self, err := os.Stat(a.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !os.SameFile(self, a.self):
		return fmt.Errorf("%w: %s is not the directory that the store has open", errMoved, a.path)
	case err != nil || a.lock == nil:
		return nil
	}
	path := filepath.Join(a.path, LockFile)
	lock, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(lock, a.lock) {
		return fmt.Errorf("%w: %s was removed or replaced", errMoved, path)
	}
	return nil
}

var errMoved = errors.New("the data directory was changed while the store was open")
