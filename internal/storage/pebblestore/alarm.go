package pebblestore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pulsegate/pulsegate/internal/storage"
)

// # What Pebble does where it cannot go on
//
// A commit whose log fails returns the error: see commit. In all other places Pebble
// calls Logger.Fatalf, or panics with its locks in disorder, and relies on that not
// returning: a flush whose manifest was not synced would write to the manifest again,
// and delete logs that only the lost record replaces. The goroutine that finds it out
// is Pebble's own, or one of the store that Pebble will not let go. So the alarm tells
// the operator and holds that goroutine, with the locks that it has, until the process
// ends, which Options.Fatal sees to.
//
// Two places return the error themselves, and are let on: the creation of a store, and
// what Close does to the log.

// An alarm is told that writing cannot go on. It is shared by everything that may
// find that out, from the start of Open on.
type alarm struct {
	dir  string
	log  *slog.Logger
	tell func(message string) // Options.Fatal

	creating atomic.Bool // Pebble makes the files of a new store
	closing  atomic.Bool // Close has begun

	// cause is why no further group is taken, nil while all is well. It is set before
	// the operator is told.
	cause atomic.Pointer[error]

	// telling is held while the operator is told; it guards told.
	telling sync.Mutex
	told    bool
}

// stop lets no further group in.
func (a *alarm) stop(cause error) { a.cause.CompareAndSwap(nil, &cause) }

// sound lets no further group in and tells the operator, once.
func (a *alarm) sound(cause string) {
	a.telling.Lock()
	defer a.telling.Unlock() // also where Options.Fatal ends the goroutine
	if a.told {
		return
	}
	a.told = true
	a.stop(errors.New(cause))
	a.log.Error("store failed", "dir", a.dir, "cause", cause)
	a.tell(fmt.Sprintf("The store in %s cannot write any more: %s. "+
		"Everything that was acknowledged is on stable storage; readings that were not acknowledged may be missing and should be sent again. "+
		"See to the disk and start again. \"pulsegate check %s\" verifies what is stored.", a.dir, cause, a.dir))
}

// failed returns an error that wraps storage.ErrFailed after a failure.
func (a *alarm) failed() error {
	if cause := a.cause.Load(); cause != nil {
		return fmt.Errorf("%w: %w", storage.ErrFailed, *cause)
	}
	return nil
}

// failure is failed for a caller that returns the error: nobody hears of a failure
// before Options.Fatal has returned. TestFatalComesFirst checks it.
func (a *alarm) failure() error {
	if a.cause.Load() == nil {
		return nil
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	return a.failed()
}

// hold waits for the end of the process.
func (a *alarm) hold() { select {} }

// ring is sound for the places where Pebble calls Logger.Fatalf.
func (a *alarm) ring(cause string) {
	a.sound(cause)
	if !a.creating.Load() {
		a.hold()
	}
}

// lastWord is sound where Pebble panics next with a mutex unlocked that it unlocks
// again, unless it is being closed.
func (a *alarm) lastWord(cause string) {
	a.sound(cause)
	if !a.closing.Load() {
		a.hold()
	}
}

// logFS watches the files of the write-ahead log, which stand in dir. When a log has
// failed by the time it is closed and nobody was told, Pebble is about to panic as for
// a log that cannot be made.
type logFS struct {
	vfs.FS
	dir   string
	alarm *alarm
}

func (fs logFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return fs.watch(f, name, err)
}

func (fs logFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, c)
	return fs.watch(f, newname, err)
}

func (fs logFS) watch(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, logSuffix) || fs.PathDir(name) != fs.dir {
		return f, err
	}
	return &logFile{File: f, name: name, alarm: fs.alarm}, nil
}

// Unwrap is for Pebble's look at what lies below.
func (fs logFS) Unwrap() vfs.FS { return fs.FS }

type logFile struct {
	vfs.File
	name  string
	alarm *alarm

	failed atomic.Pointer[error] // the first
}

func (f *logFile) note(err error) error {
	if err != nil {
		first := err // so that only this allocates
		f.failed.CompareAndSwap(nil, &first)
	}
	return err
}

func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.note(err)
}

func (f *logFile) Sync() error     { return f.note(f.File.Sync()) }
func (f *logFile) SyncData() error { return f.note(f.File.SyncData()) }

func (f *logFile) Close() error {
	err := f.note(f.File.Close())
	if failed := f.failed.Load(); failed != nil {
		f.alarm.lastWord(fmt.Sprintf("the log %s cannot be written: %v", f.name, *failed))
	}
	return err
}
