// Package filewatch reloads files when they change.
//
// # Promise
//
// Each change is followed, within one interval, by a load that begins after it; this
// includes changes during a load, and during the first load. Several changes within one
// interval cause one load. Renaming another file over a file, as certificate tools and
// Kubernetes volumes do, is a change; so is removing or recreating a file.
//
// After a failure, the load is retried at each interval until it succeeds, because the
// cause may leave no trace in the file: a lack of descriptors, for example.
//
// A caller that needs a change sooner calls [Follower.Refresh].
//
// # Why it polls
//
// Checking a file costs about a microsecond, once a second. The kernel's notifications
// follow inodes, not names: they need a watch on every directory in the path, symbolic
// links included, and do not work on network file systems.
//
// # Not here
//
// No reading of files: the caller reads and validates them.
package filewatch

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options configure a [Follower].
type Options struct {
	Paths []string
	Every time.Duration // interval at which the files are checked: default 1 s; negative: never

	// Load reads the files and puts their content into effect as a whole or, if it
	// returns an error, not at all. It reports whether the content is new.
	Load func() (changed bool, err error)

	// OnLoad, if not nil, is called with nil after each reload that changed something, and with the
	// error after each that failed; consecutive errors with the same text are reported
	// once. Success after an error counts as a change.
	OnLoad func(error)

	// Final lists errors that only a change of a file can fix. After any other error,
	// the next check loads again even if the files look unchanged.
	Final []error
}

// A Follower reloads files when they change. It is safe for concurrent use.
type Follower struct {
	opt Options

	stop sync.Once
	quit chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex    // held while checking and loading; guards the following fields
	looked  time.Time     // when the last check began
	seen    []os.FileInfo // of each path at the last check; nil means no such file
	lastErr error
	stale   atomic.Bool // lastErr is not nil; read without mu
}

// Follow loads the files and follows their changes until Close. It returns an error if
// they cannot be used now. Calls of Load and OnLoad are serialized. They come from
// Reload or the Follower's goroutine, and must not call Reload or Close.
func Follow(opt Options) (*Follower, error) {
	if opt.Every == 0 {
		opt.Every = time.Second
	}
	f := &Follower{opt: opt, seen: make([]os.FileInfo, len(opt.Paths)), quit: make(chan struct{})}
	// Check the files before each load, so that the next check detects a change during
	// the load.
	f.lookLocked()
	if _, err := opt.Load(); err != nil {
		return nil, err
	}
	if opt.Every > 0 {
		f.done.Go(f.run)
	}
	return f, nil
}

// Close stops following the files and waits for a load in progress. The loaded content
// stays in effect.
func (f *Follower) Close() {
	f.stop.Do(func() { close(f.quit) })
	f.done.Wait()
}

// Stale reports whether the last load failed, so that older content is in effect.
func (f *Follower) Stale() bool { return f.stale.Load() }

// Reload loads the files now. If it returns nil, their content at the time of the call
// is in effect; otherwise the previous content stays in effect.
func (f *Follower) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reloadLocked()
}

// RefreshInterval is the shortest time between two checks by [Follower.Refresh], which bounds
// the cost of frequent calls.
const RefreshInterval = 10 * time.Millisecond

// Refresh checks the files, and loads them if they have changed. When it returns, their
// content of a [RefreshInterval] before the call is in effect, unless it cannot be used.
func (f *Follower) Refresh() {
	f.mu.Lock() // waits for a load in progress
	defer f.mu.Unlock()
	if time.Since(f.looked) >= RefreshInterval {
		f.refreshLocked(false)
	}
}

// refreshLocked loads the files if they have changed. With retry it also loads unchanged files
// after an error that another load may fix.
func (f *Follower) refreshLocked(retry bool) {
	if f.lookLocked() || retry && f.fixableLocked() {
		_ = f.reloadLocked() // OnLoad reports the error
	}
}

// fixableLocked reports whether the last load failed with an error that another load may fix
// although no file has changed.
func (f *Follower) fixableLocked() bool {
	return f.lastErr != nil &&
		!slices.ContainsFunc(f.opt.Final, func(final error) bool { return errors.Is(f.lastErr, final) })
}

func (f *Follower) reloadLocked() error {
	changed, err := f.opt.Load()
	last := f.lastErr
	f.lastErr = err
	f.stale.Store(err != nil)
	known := err != nil && last != nil && err.Error() == last.Error()
	if f.opt.OnLoad != nil && !known && (changed || err != nil || last != nil) {
		f.opt.OnLoad(err)
	}
	return err
}

func (f *Follower) run() {
	tick := time.NewTicker(f.opt.Every)
	defer tick.Stop()
	for {
		select {
		case <-f.quit:
			return
		case <-tick.C:
			f.mu.Lock()
			f.refreshLocked(true)
			f.mu.Unlock()
		}
	}
}

// lookLocked reports whether a file differs from the last call.
func (f *Follower) lookLocked() (changed bool) {
	f.looked = time.Now()
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
