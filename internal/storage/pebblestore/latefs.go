package pebblestore

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// # Errors after which Pebble panics
//
// Once Pebble's Open has created the first log, its background goroutines read tables. If
// Open then fails, because it cannot write OPTIONS or list the directory, it closes what
// they use without waiting for them: they panic. And if the directory cannot be synced
// after a marker has moved, the goroutine that moved it panics. A lateFS raises the store's
// alarm for these errors, which blocks the goroutine until the process ends; see alarm.go.
// TestEveryFault fails each operation to check it.
type lateFS struct {
	vfs.FS
	dir   string
	raise func(cause string)

	begun    atomic.Bool // the first log was created
	finished atomic.Bool // Pebble's Open has returned
}

// Unwrap implements vfs.FS.
func (fs *lateFS) Unwrap() vfs.FS { return fs.FS }

// raiseIfOpening raises the alarm for an error after which Pebble's Open would panic.
func (fs *lateFS) raiseIfOpening(err error) error {
	if err != nil && fs.begun.Load() && !fs.finished.Load() {
		fs.raise(fmt.Sprintf("it cannot be opened: %v", err))
	}
	return err
}

func (fs *lateFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(path, c)
	switch {
	case strings.HasSuffix(path, logSuffix):
		fs.begun.Store(true)
	case strings.HasSuffix(path, tempSuffix) && err != nil:
		return nil, fs.raiseIfOpening(err)
	case strings.HasSuffix(path, tempSuffix):
		return lateFile{f, fs}, nil
	}
	return f, err
}

func (fs *lateFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return names, fs.raiseIfOpening(err)
}

func (fs *lateFS) Rename(oldpath, newpath string) error {
	return fs.raiseIfOpening(fs.FS.Rename(oldpath, newpath))
}

func (fs *lateFS) OpenDir(path string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(path)
	if err != nil || path != fs.dir {
		return f, err
	}
	return storeDir{f, fs}, nil
}

// A storeDir is the directory of the store.
type storeDir struct {
	vfs.File
	fs *lateFS
}

func (d storeDir) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.fs.raise(fmt.Sprintf("the directory cannot be synced: %v", err))
	}
	return err
}

// A lateFile is OPTIONS while it is written.
type lateFile struct {
	vfs.File
	fs *lateFS
}

func (f lateFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.fs.raiseIfOpening(err)
}

func (f lateFile) Sync() error  { return f.fs.raiseIfOpening(f.File.Sync()) }
func (f lateFile) Close() error { return f.fs.raiseIfOpening(f.File.Close()) }
