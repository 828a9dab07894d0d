// Package filewatch keeps what was loaded from files up to date.
//
// # Promise
//
// A change of the files is followed by a load that begins after it, within one
// interval; that goes for changes during a load, the first one included. Several
// changes within one interval are loaded once. One that replaces a file by renaming
// another one over it, as certificate tools and Kubernetes volumes do, is a change; so
// is a file that goes or comes back.
//
// What could not be read is loaded again, at each interval, until it can: no file
// shows that there are descriptors again, or another owner.
//
// # Why it polls
//
// A look at a file costs about a microsecond, once a second. The kernel's
// notifications follow inodes, not names: they need a watch on every folder on
// the way, symbolic links included, and say nothing on network file systems.
//
// # Not here
//
// No reading of files: what they hold, and whether it is good, is the caller's
// matter.
package filewatch

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are those of a [Follower].
type Options struct {
	Paths []string
	Every time.Duration // between two looks at the files: default 1 s, below 0 none

	// Load reads the files and puts what they hold into use, whole or, after an
	// error, not at all. It reports whether that is something new.
	Load func() (changed bool, err error)

	// Loaded is called after each reload that changed something, with nil, and after
	// each that failed, but once only for errors of the same text in a row. One that
	// succeeds after an error counts as a change.
	Loaded func(error)

	// Final are errors that only a change of a file mends. After others the next look
	// loads again, although the files may look no different.
	Final []error
}

// A Follower loads files whenever they change. Its methods may be called from many
// goroutines.
type Follower struct {
	opt  Options
	seen []os.FileInfo // of each path at the last look, nil: not there

	stop sync.Once
	quit chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex // held while the files are loaded, guards lastErr
	lastErr error
	stale   atomic.Bool // lastErr is set
}

// Follow loads the files and follows their changes until Close. It returns an error
// if they cannot be used now. Load and Loaded are called one call at a time, by
// Reload or from the Follower's goroutine, and must not call Reload or Close.
func Follow(opt Options) (*Follower, error) {
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	f := &Follower{opt: opt, seen: make([]os.FileInfo, len(opt.Paths)), quit: make(chan struct{})}
	// A look comes before each load, so that what is written during the load is seen by
	// the next look.
	f.look()
	if _, err := opt.Load(); err != nil {
		return nil, err
	}
	if opt.Every > 0 {
		f.done.Go(f.run)
	}
	return f, nil
}

// Close stops following the files, and waits for a load that is under way. What was
// loaded stays in use.
func (f *Follower) Close() {
	f.stop.Do(func() { close(f.quit) })
	f.done.Wait()
}

// Stale reports whether the files could not be used when they were last read, so
// that what they held before is in use.
func (f *Follower) Stale() bool { return f.stale.Load() }

// Reload loads the files again, now. When it returns nil, what they held at the time
// of the call is in use, otherwise what was in use before.
func (f *Follower) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.opt.Load()
	last := f.lastErr
	f.lastErr = err
	f.stale.Store(err != nil)
	known := err != nil && last != nil && err.Error() == last.Error()
	if !known && (changed || err != nil || last != nil) {
		f.opt.Loaded(err)
	}
	return err
}

func (f *Follower) run() {
	tick := time.NewTicker(f.opt.Every)
	defer tick.Stop()
	again := false
	for {
		select {
		case <-f.quit:
			return
		case <-tick.C:
			if f.look() || again {
				err := f.Reload()
				again = err != nil && !slices.ContainsFunc(f.opt.Final, func(final error) bool { return errors.Is(err, final) })
			}
		}
	}
}

// look reports whether a file differs from the last look.
func (f *Follower) look() (changed bool) {
	for i, path := range f.opt.Paths {
		info, err := os.Stat(path) // follows symbolic links
		if err != nil {
			info = nil
		}
		changed = !same(f.seen[i], info) || changed
		f.seen[i] = info
	}
	return changed
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}
