package pebblestore

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An alarm is told that writing cannot go on. It is shared by everything that may
// find that out, from the start of Open on.
type alarm struct {
	dir  string
	log  *slog.Logger
	tell func(message string) // Options.Fatal

	closing atomic.Bool // Close has begun, which reports what fails

	once  sync.Once
	cause atomic.Pointer[string] // nil while all is well
}

// A fatalError is what ring panics with, where that is recovered.
type fatalError string

func (e fatalError) Error() string { return string(e) }

// ring records the cause, tells the operator, and does not return: the callers in
// Pebble rely on that. Where guard or openPebble recover the panic, Append and Open
// report the cause. Elsewhere a panic would end the process in the midst of what
// Options.Fatal has begun.
func (a *alarm) ring(cause string) {
	a.sound(cause)
	if !recovered() {
		a.hold()
	}
	panic(fatalError(cause))
}

// hold waits for the end of the process, which Options.Fatal has promised.
func (a *alarm) hold() { select {} }

// recovered reports whether a panic of this goroutine is recovered by this package.
func recovered() bool {
	var pcs [128]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, ".(*Store).guard") || strings.HasSuffix(frame.Function, ".openPebble") {
			return true
		}
		if !more {
			return false
		}
	}
}

// lastWord is sound where Pebble panics next, unless it is being closed. The panic
// would end the process whatever is done about it: Pebble unlocks a mutex that is not
// locked.
func (a *alarm) lastWord(cause string) {
	a.sound(cause)
	if !a.closing.Load() {
		a.hold()
	}
}

// sound records the cause and tells the operator, once.
func (a *alarm) sound(cause string) {
	a.once.Do(func() {
		a.cause.Store(&cause)
		a.log.Error("store failed", "dir", a.dir, "cause", cause)
		a.tell(fmt.Sprintf("The store in %s cannot write any more: %s. "+
			"Everything that was acknowledged is on stable storage; readings that were not acknowledged may be missing and should be sent again. "+
			"See to the disk and start again. \"pulsegate check %s\" verifies what is stored.", a.dir, cause, a.dir))
	})
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
