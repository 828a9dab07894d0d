package datadir

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage/pebblestore/datadir/wal"
)

// An Alarm is raised for errors after which Pebble cannot go on.
type Alarm interface {
	// RaiseAndBlock reports a failure. It does not return, except while a store is created.
	RaiseAndBlock(cause string)

	// RaiseBeforePanic reports a failure in a place after which Pebble panics and unlocks an
	// unlocked mutex. It does not return, except while the store is being closed.
	RaiseBeforePanic(cause string)
}

// An FS is the file system through which Pebble accesses a directory.
//
//   - It maintains the list of files, see openList.
//   - It makes Pebble's changes of markers durable in their order. A marker is a file whose name
//     contains that of the current manifest. Pebble creates the manifest, creates the new marker,
//     removes the old one, and then syncs the directory once: after a loss of power, a file system
//     may have any subset of the three changes, and the store would be lost. Here, each change is
//     durable before the next. Common file systems keep the order by themselves; a start takes two
//     more syncs.
//   - It raises the alarm for errors after which Pebble panics in a goroutine of its own, so that
//     the operator reads the reason. Once Pebble's Open has created the first log, its goroutines
//     read tables. If Open then fails, because it cannot write OPTIONS or list the directory, it
//     closes what they use without waiting for them. If the directory cannot be synced after a
//     marker has moved, the goroutine that moved it panics. When Pebble closes a log that has
//     failed, it is about to panic.
//
// TestEveryFault fails each operation to check the last point.
type FS struct {
	vfs.FS // see Dir.Watch
	dir    *Dir
	alarm  Alarm
	list   openList

	begun  atomic.Bool // the first log was created
	opened atomic.Bool // see Opened
}

// Watch returns the file system for opening a tree in d. It accesses files through below, which
// accesses those of d.FS.
func (d *Dir) Watch(below vfs.FS, a Alarm) *FS {
	return &FS{FS: below, dir: d, alarm: a, list: openList{fs: below, dir: d, logs: map[string]*journal{}}}
}

// Opened ends the time in which errors of Pebble's Open raise the alarm.
func (f *FS) Opened() { f.opened.Store(true) }

// Unwrap implements vfs.FS.
func (f *FS) Unwrap() vfs.FS { return f.FS }

// A fileKind is a kind of files that are watched.
type fileKind int

const (
	otherFile fileKind = iota
	logFile
	manifestFile
	markerFile
	optionsFile // while it is written
)

// kindOf returns the name of a file, and its kind. A marker may be in another directory, such as the
// checkpoint of a backup.
func (f *FS) kindOf(path string) (name string, kind fileKind) {
	name = f.PathBase(path)
	switch own := f.PathDir(path) == f.dir.Path; {
	case strings.HasPrefix(name, markerPrefix):
		return name, markerFile
	case !own:
		return name, otherFile
	case isLogName(name):
		return name, logFile
	case strings.HasPrefix(name, wal.ManifestPrefix):
		return name, manifestFile
	case strings.HasSuffix(name, tempSuffix):
		return name, optionsFile
	}
	return name, otherFile
}

// raiseIfOpening raises the alarm for an error after which Pebble's Open would panic.
func (f *FS) raiseIfOpening(err error) error {
	if err != nil && f.begun.Load() && !f.opened.Load() {
		f.alarm.RaiseAndBlock(fmt.Sprintf("it cannot be opened: %v", err))
	}
	return err
}

// Create implements vfs.FS.
func (f *FS) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	name, kind := f.kindOf(path)
	file, err := f.create(path, kind, c)
	switch kind {
	case logFile:
		f.begun.Store(true)
	case optionsFile:
		err = f.raiseIfOpening(err)
	}
	if err != nil {
		return nil, err
	}
	if kind == markerFile && f.PathDir(path) == f.dir.Path {
		f.list.marked(name)
	}
	return f.watch(file, name, kind), nil
}

func (f *FS) create(path string, kind fileKind, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	if kind == markerFile {
		if err := SyncDir(f.FS, f.PathDir(path)); err != nil {
			return nil, err
		}
	}
	if file, err = f.FS.Create(path, c); err != nil {
		return nil, err
	}
	switch kind {
	case markerFile:
		err = SyncDir(f.FS, f.PathDir(path))
	case logFile:
		err = f.list.begin()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// watch returns a file that was created, wrapped if it is watched while it is written.
func (f *FS) watch(file vfs.File, name string, kind fileKind) vfs.File {
	switch kind {
	case logFile, manifestFile:
		j := &journal{File: file, fs: f, name: name, isLog: kind == logFile}
		f.list.created(j)
		return j
	case optionsFile:
		return openingFile{file, f}
	}
	return file
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(oldpath, newpath string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if oldname, kind := f.kindOf(oldpath); kind == logFile {
		if err := f.list.drop(oldname); err != nil {
			return nil, err
		}
	}
	file, err := f.FS.ReuseForWrite(oldpath, newpath, c)
	if err != nil {
		return nil, err
	}
	name, kind := f.kindOf(newpath)
	return f.watch(file, name, kind), nil
}

// Remove implements vfs.FS. Logs of the previous process are removed once the store is open.
func (f *FS) Remove(path string) error {
	if name, kind := f.kindOf(path); kind == logFile {
		if f.list.removeLater(path) {
			return nil
		}
		if err := f.list.drop(name); err != nil {
			return err
		}
	}
	return f.FS.Remove(path)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldpath, newpath string) error {
	return f.raiseIfOpening(f.FS.Rename(oldpath, newpath))
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	return names, f.raiseIfOpening(err)
}

// OpenDir implements vfs.FS.
func (f *FS) OpenDir(path string) (vfs.File, error) {
	file, err := f.FS.OpenDir(path)
	if err != nil || path != f.dir.Path {
		return file, err
	}
	return storeDir{file, f.alarm}, nil
}

// Lock implements vfs.FS. On a read-only file system no file can be locked.
func (f *FS) Lock(path string) (io.Closer, error) {
	if f.dir.Lock == nil {
		return io.NopCloser(nil), nil
	}
	return f.FS.Lock(path)
}

// A storeDir is the directory of the store.
type storeDir struct {
	vfs.File
	alarm Alarm
}

func (d storeDir) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.alarm.RaiseAndBlock(fmt.Sprintf("the directory cannot be synced: %v", err))
	}
	return err
}

// An openingFile is OPTIONS while it is written.
type openingFile struct {
	vfs.File
	fs *FS
}

func (f openingFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.fs.raiseIfOpening(err)
}

func (f openingFile) Sync() error  { return f.fs.raiseIfOpening(f.File.Sync()) }
func (f openingFile) Close() error { return f.fs.raiseIfOpening(f.File.Close()) }

// A journal is a log or a manifest that this process writes. It counts the bytes that were synced.
// Only one goroutine may write and sync it.
type journal struct {
	vfs.File
	fs      *FS
	name    string
	isLog   bool
	written int64
	synced  atomic.Int64
	listed  atomic.Bool           // it is a log, and the list has it
	failed  atomic.Pointer[error] // the first error
}

func (j *journal) record(err error) error {
	if err != nil {
		first := err // a copy, so that calls without an error do not allocate
		j.failed.CompareAndSwap(nil, &first)
	}
	return err
}

func (j *journal) Write(p []byte) (int, error) {
	n, err := j.File.Write(p)
	j.written += int64(n)
	return n, j.record(err)
}

func (j *journal) Sync() error     { return j.record(j.sync(j.File.Sync)) }
func (j *journal) SyncData() error { return j.record(j.sync(j.File.SyncData)) }

func (j *journal) sync(sync func() error) error {
	if err := sync(); err != nil {
		return err
	}
	j.synced.Store(j.written)
	if !j.isLog || j.listed.Load() {
		return nil
	}
	// It may have been created in another directory, if that took the place of the open one just then.
	if err := j.fs.dir.Intact(); err != nil {
		return err
	}
	return j.fs.list.add(j)
}

func (j *journal) Close() error {
	err := j.record(j.File.Close())
	if failed := j.failed.Load(); failed != nil && j.isLog {
		j.fs.alarm.RaiseBeforePanic(fmt.Sprintf("the log %s cannot be written: %v", j.fs.PathJoin(j.fs.dir.Path, j.name),
			*failed))
	}
	return err
}
