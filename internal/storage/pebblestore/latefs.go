package pebblestore

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// # Where Pebble does not survive an error of its own
//
// Once Pebble's Open has made the first log, goroutines of its own read tables. When it then
// fails, because it cannot write OPTIONS or list the directory, it closes what they use and
// does not wait for them: they panic. And when the directory cannot be synced after a marker
// has moved, the goroutine that has moved it panics. A lateFS rings the store's alarm in
// these places, which holds the goroutine until the process ends; see alarm.go.
// TestEveryFault fails each operation to see it.
type lateFS struct {
	vfs.FS
	dir  string
	ring func(cause string)

	begun    atomic.Bool // the first log is there
	finished atomic.Bool // Pebble's Open has returned
}

// Unwrap is for Pebble's look at what lies below.
func (fs *lateFS) Unwrap() vfs.FS { return fs.FS }

// late rings for an error that Pebble's Open would return too late.
func (fs *lateFS) late(err error) error {
	if err != nil && fs.begun.Load() && !fs.finished.Load() {
		fs.ring(fmt.Sprintf("the start cannot be finished: %v", err))
	}
	return err
}

func (fs *lateFS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(path, c)
	switch {
	case strings.HasSuffix(path, logSuffix):
		fs.begun.Store(true)
	case strings.HasSuffix(path, tempSuffix) && err != nil:
		return nil, fs.late(err)
	case strings.HasSuffix(path, tempSuffix):
		return lateFile{f, fs}, nil
	}
	return f, err
}

func (fs *lateFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	return names, fs.late(err)
}

func (fs *lateFS) Rename(oldpath, newpath string) error {
	return fs.late(fs.FS.Rename(oldpath, newpath))
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
		d.fs.ring(fmt.Sprintf("the directory cannot be synced: %v", err))
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
	return n, f.fs.late(err)
}

func (f lateFile) Sync() error  { return f.fs.late(f.File.Sync()) }
func (f lateFile) Close() error { return f.fs.late(f.File.Close()) }
